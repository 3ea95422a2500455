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

#endif
