/* Many tokens on AVX-VNNI, six at a time: 12 of 16 registers are sums. */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_AVXVNNI_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_AVXVNNI_H

#include "kernels/x86/matmul_avxvnni.h"

#define PANEL_TOKENS 6 /* of a run at most */
#include "kernels/x86/matmul_panel_256.h"

/* name_1 ... name_6 from an inlined body(panel, token, state, ..., n). */
#define PANEL_RUNS(name, ...)                                                                      \
    PANEL_RUN(name, 1, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 2, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 3, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 4, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 5, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 6, __VA_ARGS__)
#define PANEL_NAMES(name)                                                                          \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6                                 \
    }

/* acc += n_quads quads of codes times n tokens. */
ALWAYS_INLINE void panel_quads(const uint8_t *codes, const int8_t *q, int n_quads, int n,
                               __m256i acc[PANEL_TOKENS][2])
{
#pragma GCC unroll 4
    for (int i = 0; i < n_quads; i++) {
        __m256i codes0 = load_256(codes + i * STEP_BYTES);
        __m256i codes1 = load_256(codes + i * STEP_BYTES + 32);
#pragma GCC unroll 6
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * PANEL_INPUTS + 4 * i);
            acc[t][0] = add_quad(acc[t][0], codes0, quad);
            acc[t][1] = add_quad(acc[t][1], codes1, quad);
        }
    }
}

#endif
