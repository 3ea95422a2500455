/* Which instruction sets this process may use. */
#ifndef TRINE_MACHINE_CPU_FEATURES_H
#define TRINE_MACHINE_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

/* x86: CPUID reports its features, and the operating system saves its registers (XCR0) and, for tiles,
 * permits them: this asks it, so the first call comes before threads are started.
 * ARM: the operating system reports them (AT_HWCAP). */
bool cpu_has_isa(enum isa isa);

/* The strongest of all, and of those that `cap` includes. */
enum isa cpu_best_isa(void);
enum isa cpu_isa_within(enum isa cap);

/* Brand string of the processor, on ARM the name of its cores; "unknown" where there is none. */
const char *cpu_name(void);

/* Of the main identification register of an ARM core: "ARM Neoverse-N1", or the two numbers that it
 * gives. */
void cpu_name_of_midr(uint64_t midr, char *name, size_t size);

#endif
