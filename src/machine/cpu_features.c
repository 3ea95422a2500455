#include "machine/cpu_features.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

struct cpuid {
    uint32_t eax, ebx, ecx, edx;
};

/* Zeros for a leaf that the processor does not have. */
static struct cpuid cpuid_count(uint32_t leaf, uint32_t subleaf)
{
    struct cpuid r = {0};
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

static struct cpuid cpuid(uint32_t leaf)
{
    return cpuid_count(leaf, 0);
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

#define STATE_AVX    0x06    /* SSE, AVX upper halves */
#define STATE_AVX512 0xe6    /* and opmask, upper ZMM halves, ZMM16 to 31 */
#define STATE_TILES  0x60000 /* tile configuration, tile data */

static bool has_avx2(void)
{
    struct cpuid one = cpuid(1), seven = cpuid(7);
    bool has_fma_avx_f16c = has_bit(one.ecx, 12) && has_bit(one.ecx, 28) && has_bit(one.ecx, 29);
    return (saved_state() & STATE_AVX) == STATE_AVX && has_fma_avx_f16c && has_bit(seven.ebx, 5);
}

/* Subleaf 1 of leaf 7 exists where subleaf 0 says so. */
static bool has_avxvnni(void)
{
    return has_avx2() && cpuid(7).eax >= 1 && has_bit(cpuid_count(7, 1).eax, 4);
}

static bool has_avx512(void)
{
    struct cpuid seven = cpuid(7);
    bool has_f_dq_bw_vl = has_bit(seven.ebx, 16) && has_bit(seven.ebx, 17) &&
                          has_bit(seven.ebx, 30) && has_bit(seven.ebx, 31);
    return has_avx2() && (saved_state() & STATE_AVX512) == STATE_AVX512 && has_f_dq_bw_vl &&
           has_bit(seven.ecx, 11);
}

static bool has_avx512vbmi(void)
{
    return has_avx512() && has_bit(cpuid(7).ecx, 1);
}

/* Linux gives a process tile registers when it asks for them: one time, for all its threads, and
 * before a thread has a signal stack too small for them. */
#define REQUEST_STATE 0x1023 /* ARCH_REQ_XCOMP_PERM, since Linux 5.16 */
#define TILE_DATA     18

static bool are_tiles_granted(void)
{
    static _Atomic int answer; /* 0: not asked yet, 1: no, 2: yes */
    if (answer == 0)
        answer = 1 + (syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0);
    return answer == 2;
}

static bool has_amx(void)
{
    struct cpuid seven = cpuid(7);
    bool has_tile_int8 = has_bit(seven.edx, 24) && has_bit(seven.edx, 25);
    return has_avx512vbmi() && (saved_state() & STATE_TILES) == STATE_TILES && has_tile_int8 &&
           are_tiles_granted();
}

bool cpu_has_isa(enum isa isa)
{
    switch (isa) {
    case ISA_scalar: return true;
    case ISA_avx2: return has_avx2();
    case ISA_avxvnni: return has_avxvnni();
    case ISA_avx512: return has_avx512();
    case ISA_avx512vbmi: return has_avx512vbmi();
    case ISA_amx: return has_amx();
    case ISA_neon:
    case ISA_i8mm:
    case N_ISAS: break;
    }
    return false;
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

#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

/* The kernel says what it and the processor let a process use. */
bool cpu_has_isa(enum isa isa)
{
    bool has_neon = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
    if (isa == ISA_i8mm)
        return has_neon && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
    return isa == ISA_scalar || (isa == ISA_neon && has_neon);
}

const char *cpu_name(void)
{
    static char name[48];
    uint64_t midr = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "r");
    bool is_read = file && fscanf(file, "%" SCNx64, &midr) == 1;
    if (file)
        fclose(file);
    if (!is_read)
        return "unknown";
    cpu_name_of_midr(midr, name, sizeof name);
    return name;
}

#else

bool cpu_has_isa(enum isa isa)
{
    return isa == ISA_scalar;
}

const char *cpu_name(void)
{
    return "unknown";
}

#endif

void cpu_name_of_midr(uint64_t midr, char *name, size_t size)
{
    static const struct {
        int implementer, part;
        const char *name;
    } cores[] = {
        {0x41, 0xd08, "ARM Cortex-A72"},  {0x41, 0xd0b, "ARM Cortex-A76"},
        {0x41, 0xd0c, "ARM Neoverse-N1"}, {0x41, 0xd40, "ARM Neoverse-V1"},
        {0x41, 0xd49, "ARM Neoverse-N2"}, {0x41, 0xd4f, "ARM Neoverse-V2"},
        {0xc0, 0xac3, "Ampere-1"},
    };
    int implementer = midr >> 24 & 0xff, part = midr >> 4 & 0xfff;
    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++)
        if (cores[i].implementer == implementer && cores[i].part == part) {
            snprintf(name, size, "%s", cores[i].name);
            return;
        }
    snprintf(name, size, "implementer 0x%02x, part 0x%03x", implementer, part);
}

enum isa cpu_isa_within(enum isa cap)
{
    enum isa best = ISA_scalar;
    for (enum isa isa = ISA_scalar; isa < N_ISAS; isa++)
        if (isa_includes(cap, isa) && cpu_has_isa(isa))
            best = isa;
    return best;
}

enum isa cpu_best_isa(void)
{
    enum isa best = ISA_scalar;
    for (enum isa isa = ISA_scalar; isa < N_ISAS; isa++)
        if (cpu_has_isa(isa))
            best = isa;
    return best;
}
