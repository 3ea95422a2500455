#include "limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench_team.h"
#include "machine/cpu_features.h"

struct loop {
    const char *name;
    read_loop *read;
    enum isa isa;
    size_t prefetch;
    double best; /* bytes per second */
};

#define WITH_PREFETCH(text, loop, isa)                                                             \
    {text, loop, isa, 0, 0}, {text ", prefetch 512", loop, isa, 512, 0},                           \
        {text ", prefetch 1024", loop, isa, 1024, 0},                                              \
        {text ", prefetch 2048", loop, isa, 2048, 0},                                              \
        {text ", prefetch 4096", loop, isa, 4096, 0},                                              \
    {                                                                                              \
        text ", prefetch 8192", loop, isa, 8192, 0                                                 \
    }

static struct loop loops[] = {
    {"64 bit words", read_words, ISA_scalar, 0, 0},
#if defined(__x86_64__)
    WITH_PREFETCH("32 byte loads", read_avx2_1, ISA_avx2),
    WITH_PREFETCH("32 byte loads, 2 streams", read_avx2_2, ISA_avx2),
    WITH_PREFETCH("32 byte loads, 4 streams", read_avx2_4, ISA_avx2),
    WITH_PREFETCH("64 byte loads", read_avx512_1, ISA_avx512),
    WITH_PREFETCH("64 byte loads, 2 streams", read_avx512_2, ISA_avx512),
    WITH_PREFETCH("64 byte loads, 4 streams", read_avx512_4, ISA_avx512),
#endif
};

enum { N_LOOPS = sizeof loops / sizeof loops[0], N_FAVOURITES = 4 };

static uint8_t *memory;
static size_t memory_bytes, mapped_bytes;
static int probed_threads; /* the count that loops[].best belongs to */
static int next_loop;
static uint64_t consumed; /* so that no result is unused */

#define HUGE_BYTES ((size_t)2 << 20)

void limits_start(int64_t bytes)
{
    memory_bytes = (size_t)bytes / HUGE_BYTES * HUGE_BYTES;
    if (!memory_bytes)
        memory_bytes = HUGE_BYTES;
    mapped_bytes = memory_bytes + 2 * HUGE_BYTES; /* prefetches run over the end */
    uint8_t *mapped =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        fprintf(stderr, "kernel_bench: out of memory\n");
        exit(1);
    }
    memory = (uint8_t *)(((uintptr_t)mapped + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    madvise(memory, memory_bytes, MADV_HUGEPAGE);
    memset(memory, 1, memory_bytes);
}

void limits_stop(void)
{
    if (consumed == 0xdeadbeef)
        fprintf(stderr, "\n");
}

uint64_t read_words(const uint8_t *bytes, size_t n, size_t prefetch)
{
    (void)prefetch;
    const uint64_t *words = (const uint64_t *)bytes;
    uint64_t sum[4] = {0};
    for (size_t i = 0; i < n / 8; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] ^= words[i + (size_t)k];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

static void read_part(void *context, int thread, int n_threads)
{
    const struct loop *loop = context;
    size_t part = memory_bytes / (size_t)n_threads / 4096 * 4096;
    uint64_t value = loop->read(memory + (size_t)thread * part, part, loop->prefetch);
    __atomic_fetch_add(&consumed, value, __ATOMIC_RELAXED);
}

static double read_once(struct loop *loop, int n_threads)
{
    int64_t ns = bench_team_run(read_part, loop, n_threads);
    size_t bytes = memory_bytes / (size_t)n_threads / 4096 * 4096 * (size_t)n_threads;
    double speed = (double)bytes * 1e9 / (double)ns;
    if (speed > loop->best)
        loop->best = speed;
    return speed;
}

static int by_speed(const void *a, const void *b)
{
    const struct loop *x = a, *y = b;
    return (x->best < y->best) - (x->best > y->best);
}

double limits_read(int n_threads, bool is_all)
{
    if (probed_threads != n_threads) {
        for (int i = 0; i < N_LOOPS; i++)
            loops[i].best = 0;
        probed_threads = n_threads;
        is_all = true;
    }
    double best = 0;
    for (int i = 0; i < N_LOOPS; i++) {
        bool is_next =
            i >= N_FAVOURITES && next_loop % (N_LOOPS - N_FAVOURITES) + N_FAVOURITES == i;
        if (!cpu_has_isa(loops[i].isa) || (!is_all && i >= N_FAVOURITES && !is_next))
            continue;
        double speed = read_once(&loops[i], n_threads);
        best = speed > best ? speed : best;
    }
    next_loop++;
    qsort(loops, N_LOOPS, sizeof loops[0], by_speed);
    return best;
}

double limits_best_read(int n_threads, const char **loop)
{
    if (probed_threads != n_threads)
        limits_read(n_threads, true);
    if (loop)
        *loop = loops[0].name;
    return loops[0].best;
}

/* The loop that multiplies fastest with an instruction set and what it includes. */
static struct peak {
    enum isa isa;
    uint64_t (*run)(int64_t n);
    int64_t macs; /* a round */
    double best;  /* per thread */
} peaks[] = {
#if defined(__x86_64__)
    {ISA_avx2, multiply_avx2, PEAK_AVX2_MACS, 0},
    {ISA_avxvnni, multiply_avxvnni, PEAK_AVXVNNI_MACS, 0},
    {ISA_avx512, multiply_avx512, PEAK_AVX512_MACS, 0},
#endif
};

enum { N_PEAKS = sizeof peaks / sizeof peaks[0] };

static struct peak *peak_of(enum isa isa)
{
    struct peak *peak = NULL;
    for (int i = 0; i < N_PEAKS; i++)
        if (isa_includes(isa, peaks[i].isa) && cpu_has_isa(isa))
            peak = &peaks[i];
    return peak;
}

bool limits_has_peak(enum isa isa)
{
    const struct peak *peak = peak_of(isa);
    return peak && peak->isa == isa;
}

#define PEAK_ROUNDS 400000

static void run_peak(void *context, int thread, int n_threads)
{
    (void)thread, (void)n_threads;
    const struct peak *peak = context;
    __atomic_fetch_add(&consumed, peak->run(PEAK_ROUNDS), __ATOMIC_RELAXED);
}

double limits_peak(enum isa isa, int n_threads)
{
    struct peak *peak = peak_of(isa);
    double best = 0;
    for (int i = 0; i < 4 && peak; i++) {
        int64_t ns = bench_team_run(run_peak, peak, n_threads);
        double speed = (double)(PEAK_ROUNDS * peak->macs) * 1e9 / (double)ns;
        best = speed > best ? speed : best;
    }
    if (peak && best > peak->best)
        peak->best = best;
    return best * n_threads;
}

double limits_best_peak(enum isa isa, int n_threads)
{
    struct peak *peak = peak_of(isa);
    if (peak && peak->best == 0)
        limits_peak(isa, n_threads);
    return peak ? peak->best * n_threads : 0;
}
