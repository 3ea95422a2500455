/* Drops memory from the caches. */
#ifndef TRINE_MACHINE_CACHE_FLUSH_H
#define TRINE_MACHINE_CACHE_FLUSH_H

#include <stddef.h>

/* The next read of any of these bytes comes from memory. Writes what was changed back; the content stays.
 * Some 5 ns a line (clflushopt), 300 ns on processors that have clflush only (before 2015). */
void cache_flush(const void *memory, size_t bytes);

#endif
