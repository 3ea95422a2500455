/* Which instruction sets this process may use. */
#ifndef TRINE_MACHINE_CPU_FEATURES_H
#define TRINE_MACHINE_CPU_FEATURES_H

#include "base/isa.h"

/* The highest step of the ladder whose features CPUID reports and whose registers the operating
 * system saves (XCR0). */
enum isa cpu_best_isa(void);

/* Brand string of the processor, "unknown" where there is none. */
const char *cpu_name(void);

#endif
