#include "machine/cache_flush.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE_BYTES 64 /* the smallest there is: a longer line is flushed twice */

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

/* Asked once: CPUID leaves a virtual machine, for microseconds. */
static bool has_clflushopt(void)
{
    static _Atomic int known; /* 0: not asked, 1: no, 2: yes */
    unsigned eax, ebx = 0, ecx, edx;
    if (known == 0) {
        bool has_leaf = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
        known = has_leaf && (ebx & bit_CLFLUSHOPT) ? 2 : 1;
    }
    return known == 2;
}

/* Lines one beside the other, where clflush waits for each. */
__attribute__((target("clflushopt"))) static void flush_unordered(const uint8_t *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_ia32_clflushopt(line + i);
}

static void flush_lines(const uint8_t *line, size_t bytes)
{
    if (has_clflushopt())
        flush_unordered(line, bytes);
    else
        for (size_t i = 0; i < bytes; i += LINE_BYTES)
            __builtin_ia32_clflush(line + i);
    __builtin_ia32_mfence(); /* loads that follow are not made before */
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
