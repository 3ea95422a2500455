/* How much memory this process can still take. */
#ifndef TRINE_MACHINE_MEMORY_INFO_H
#define TRINE_MACHINE_MEMORY_INFO_H

#include <stdint.h>

/* Bytes that are free or can be freed (MemAvailable), but not more than the process's cgroups leave
 * of their limits; UINT64_MAX when the system does not tell. */
uint64_t memory_available(void);

#endif
