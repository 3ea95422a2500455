/* All kernels: one signature, one job struct per op. A kernel computes one range of a job; it knows
 * no threads, allocates nothing and cannot fail: sizes are checked when a plan is made.
 *
 * Floats have one order of operations on every instruction set (see each op), so results are equal
 * to the last bit; fused multiply-add is fmaf where written and nowhere else. "16 lanes" means:
 * element i belongs to lane i % 16, lanes are summed in ascending i, then lane l += lane l + 8,
 * l + 4, l + 2, l + 1 in turn. */
#ifndef TRINE_KERNELS_KERNELS_H
#define TRINE_KERNELS_KERNELS_H

#include <stdint.h>

#include "base/isa.h"
#include "kernels/jobs_attention.h"
#include "kernels/jobs_layer.h"
#include "kernels/jobs_matmul.h"

union job {
    struct matmul_job matmul;
    struct embed_job embed;
    struct copy_rows_job copy_rows;
    struct peak_job peak;
    struct quantize_job quantize;
    struct rms_norm_job rms_norm;
    struct squares_job squares;
    struct norm_factor_job norm_factor;
    struct hadamard_job hadamard;
    struct rope_job rope;
    struct kv_store_job kv_store;
    struct attention_job attention;
    struct attention_fold_job attention_fold;
    struct reduce_job reduce;
    struct top_k_job top_k;
    struct pack_job pack;
};

typedef void kernel(const union job *job, int begin, int end);

#define OP_LIST(X)                                                                                 \
    X(pack)                                                                                        \
    X(embed)                                                                                       \
    X(copy_rows)                                                                                   \
    X(peak)                                                                                        \
    X(quantize)                                                                                    \
    X(rms_norm)                                                                                    \
    X(squares)                                                                                     \
    X(norm_factor)                                                                                 \
    X(hadamard)                                                                                    \
    X(matmul)                                                                                      \
    X(rope)                                                                                        \
    X(kv_store)                                                                                    \
    X(attention)                                                                                   \
    X(attention_fold)                                                                              \
    X(reduce)                                                                                      \
    X(top_k)
#define OP_ENUM(name) OP_##name,
enum op { OP_LIST(OP_ENUM) N_OPS };
#undef OP_ENUM

#define KERNEL(op, packing, isa, grain, function) kernel function;
#include "kernels/kernel_list.h"
#undef KERNEL

#endif
