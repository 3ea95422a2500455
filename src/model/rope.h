/* Rotary position embedding: which elements of a head form a pair, and by what angle a pair turns.
 *   theta_j = pos * base^(-2j / n_rot) / factor_j, then scaled (linear or YaRN)
 *   (a, b) -> (a cos - b sin, a sin + b cos) * magnitude
 * source  Su et al. 2021, arXiv:2104.09864; YaRN: Peng et al. 2023, arXiv:2309.00071 */
#ifndef TRINE_MODEL_ROPE_H
#define TRINE_MODEL_ROPE_H

#include <stdbool.h>

/* ADJACENT: elements 2j and 2j+1 (GGUF "norm"); HALVES: j and j + n_rot/2 ("neox"). */
enum rope_pairs { ROPE_ADJACENT, ROPE_HALVES };

struct rope_config {
    enum rope_pairs pairs;
    int n_rot; /* rotated elements of a head; the others pass through */
    double freq_base;
    double freq_scale; /* 1 / factor of the context extension; 1: none */
    bool is_yarn;
    double attn_factor;          /* multiplies the magnitude */
    double original_ctx;         /* YaRN: context length before the extension */
    double beta_fast, beta_slow; /* YaRN: turns within original_ctx that bound the ramp */
    const float *factors;        /* borrowed: divisors of theta, n_rot/2 of them; NULL: all 1 */
};

/* Cosine and sine, magnitude included, of all n_rot/2 pairs at position pos.
 * accuracy  computed in double; error of the angle below 1e-12 relative */
void rope_angles(const struct rope_config *rope, int pos, float *cosines, float *sines);

/* Turns one head of at least n_rot elements in place. */
void rope_turn(const struct rope_config *rope, const float *cosines, const float *sines,
               float *head);

#endif
