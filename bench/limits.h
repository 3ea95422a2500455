/* What this machine can do at most: bytes read per second, int8 multiplications per second.
 * Measured between the kernels, with the same threads, so that both see the same neighbours and
 * clock. */
#ifndef TRINE_BENCH_LIMITS_H
#define TRINE_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

/* Reads n bytes (a multiple of 1024) once and returns a value that depends on all of them.
 * prefetch: bytes ahead, 0: none. */
typedef uint64_t read_loop(const uint8_t *bytes, size_t n, size_t prefetch);
read_loop read_words;
read_loop read_avx2_1, read_avx2_2, read_avx2_4; /* 32 byte loads; 1, 2, 4 streams */
read_loop read_avx512_1, read_avx512_2, read_avx512_4;

/* n rounds of independent multiply-add chains in registers: as many as hide the latency and leave
 * registers for the factors. */
#define PEAK_AVX2_CHAINS    8
#define PEAK_AVX512_CHAINS  12
#define PEAK_AVXVNNI_CHAINS 12
#define PEAK_AVX2_MACS      (PEAK_AVX2_CHAINS * 32) /* multiplications a round */
#define PEAK_AVX512_MACS    (PEAK_AVX512_CHAINS * 64)
#define PEAK_AVXVNNI_MACS   (PEAK_AVXVNNI_CHAINS * 32)
uint64_t multiply_avx2(int64_t n);
uint64_t multiply_avx512(int64_t n);
uint64_t multiply_avxvnni(int64_t n);

/* Allocates the memory that the reads go over. */
void limits_start(int64_t bytes);
void limits_stop(void);

/* One more look: the best few read loops so far and the next of the others, on n threads. Returns
 * the best bytes per second of this look. All of them: every loop once. */
double limits_read(int n_threads, bool is_all);
/* The best of the run, and which loop it was. */
double limits_best_read(int n_threads, const char **loop);

/* Multiplications per second of kernels of an instruction set on n threads: one look, the best of
 * the run. 0: there is no such measure. */
double limits_peak(enum isa isa, int n_threads);
double limits_best_peak(enum isa isa, int n_threads);
/* Has a loop of its own, and this machine runs it. */
bool limits_has_peak(enum isa isa);

#endif
