#include "machine/cpu_features.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

struct cpuid {
    uint32_t eax, ebx, ecx, edx;
};

/* Zeros for a leaf that the processor does not have. */
static struct cpuid cpuid(uint32_t leaf)
{
    struct cpuid r = {0};
    __get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

static bool has_bit(uint32_t word, int bit)
{
    return word >> bit & 1;
}

/* Register state that the operating system saves; 0 if it does not say. */
static uint64_t saved_state(void)
{
    if (!has_bit(cpuid(1).ecx, 27)) /* OSXSAVE */
        return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

#define STATE_AVX    0x06 /* SSE, AVX upper halves */
#define STATE_AVX512 0xe6 /* and opmask, upper ZMM halves, ZMM16 to 31 */

static bool has_avx2(uint64_t state)
{
    struct cpuid one = cpuid(1), seven = cpuid(7);
    bool has_fma_avx_f16c = has_bit(one.ecx, 12) && has_bit(one.ecx, 28) && has_bit(one.ecx, 29);
    return (state & STATE_AVX) == STATE_AVX && has_fma_avx_f16c && has_bit(seven.ebx, 5);
}

static bool has_avx512(uint64_t state)
{
    struct cpuid seven = cpuid(7);
    bool has_f_dq_bw_vl = has_bit(seven.ebx, 16) && has_bit(seven.ebx, 17) &&
                          has_bit(seven.ebx, 30) && has_bit(seven.ebx, 31);
    return (state & STATE_AVX512) == STATE_AVX512 && has_f_dq_bw_vl && has_bit(seven.ecx, 11);
}

enum isa cpu_best_isa(void)
{
    uint64_t state = saved_state();
    if (!has_avx2(state))
        return ISA_scalar;
    if (!has_avx512(state))
        return ISA_avx2;
    return has_bit(cpuid(7).ecx, 1) ? ISA_avx512vbmi : ISA_avx512;
}

const char *cpu_name(void)
{
    static char name[49];
    if (cpuid(0x80000000u).eax < 0x80000004u)
        return "unknown";
    for (uint32_t i = 0; i < 3; i++) {
        struct cpuid part = cpuid(0x80000002u + i);
        memcpy(name + 16 * i, &part, 16);
    }
    return name + strspn(name, " ");
}

#else

enum isa cpu_best_isa(void)
{
    return ISA_scalar;
}

const char *cpu_name(void)
{
    return "unknown";
}

#endif
