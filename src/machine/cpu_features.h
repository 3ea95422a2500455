/* Which instruction sets this process may use. */
#ifndef TRINE_MACHINE_CPU_FEATURES_H
#define TRINE_MACHINE_CPU_FEATURES_H

#include "base/isa.h"

/* CPUID reports its features, and the operating system saves its registers (XCR0) and, for tiles,
 * permits them: this asks it, so the first call comes before threads are started. */
bool cpu_has_isa(enum isa isa);

/* The strongest of all, and of those that `cap` includes. */
enum isa cpu_best_isa(void);
enum isa cpu_isa_within(enum isa cap);

/* Brand string of the processor, "unknown" where there is none. */
const char *cpu_name(void);

#endif
