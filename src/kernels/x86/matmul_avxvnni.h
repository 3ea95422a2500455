/* What the AVX-VNNI matmuls add to those of AVX2, whose walk over tiles they share: a multiply-add of
 * four codes and activations a lane straight into int32, which nothing can overflow or saturate. */
#ifndef TRINE_KERNELS_X86_MATMUL_AVXVNNI_H
#define TRINE_KERNELS_X86_MATMUL_AVXVNNI_H

#include "kernels/x86/matmul_avx2.h"

/* acc + codes . quad. As assembly, because compilers move and spill accumulators of the intrinsic. */
ALWAYS_INLINE __m256i add_quad(__m256i acc, __m256i codes, __m256i quad)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(quad));
    return acc;
}

/* acc[half] += what VNNI's `name` multiplies: factors of that half and the 32 bits at q. One statement with
 * their broadcast: else gcc loads broadcasts early, runs out of registers and spills sums. The first sum is
 * written while the second factor is still to be read (&). */
#define ADD_BROADCAST(name, acc, factor0, factor1, q)                                              \
    do {                                                                                           \
        __m256i all_;                                                                              \
        __asm__("vpbroadcastd %5, %2\n\t"                                                          \
                "%{vex%} " name " %2, %3, %0\n\t"                                                  \
                "%{vex%} " name " %2, %4, %1"                                                      \
                : "+&x"((acc)[0]), "+x"((acc)[1]), "=&x"(all_)                                     \
                : "x"(factor0), "x"(factor1), "m"(*(const int32_t *)(const void *)(q)));           \
    } while (0)

/* Bytes of codes times a quad. */
ALWAYS_INLINE void add_token_quad(__m256i acc[2], __m256i codes0, __m256i codes1, const int8_t *q)
{
    ADD_BROADCAST("vpdpbusd", acc, codes0, codes1, q);
}

/* Pairs of int16 times a pair. */
ALWAYS_INLINE void add_token_pair(__m256i acc[2], __m256i pairs0, __m256i pairs1,
                                  const int32_t *pair)
{
    ADD_BROADCAST("vpdpwssd", acc, pairs0, pairs1, pair);
}

#endif
