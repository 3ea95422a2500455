#include "machine/cache_flush.h"

#include <stdint.h>

#define LINE_BYTES 64 /* the smallest there is: a longer line is flushed twice */

#if defined(__x86_64__)
#include <cpuid.h>

/* Lines one beside the other, where clflush waits for each. */
__attribute__((target("clflushopt"))) static void flush_unordered(const uint8_t *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_ia32_clflushopt(line + i);
    __builtin_ia32_mfence();
}

static void flush_lines(const uint8_t *line, size_t bytes)
{
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_CLFLUSHOPT)) {
        flush_unordered(line, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_ia32_clflush(line + i);
}

#elif defined(__aarch64__)

static void flush_lines(const uint8_t *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE_BYTES)
        __asm__ volatile("dc civac, %0" : : "r"(line + i) : "memory");
    __asm__ volatile("dsb sy" : : : "memory");
}

#else
#error "which instruction of this architecture drops a line from the caches?"
#endif

void cache_flush(const void *memory, size_t bytes)
{
    size_t ahead = (uintptr_t)memory % LINE_BYTES;
    flush_lines((const uint8_t *)memory - ahead, bytes + ahead);
}
