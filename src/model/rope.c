#include "model/rope.h"

#include <math.h>

/* Pair index whose wavelength makes `turns` full turns within the original context. */
static double pair_of_turns(const struct rope_config *rope, double turns)
{
    return rope->n_rot * log(rope->original_ctx / (turns * 2 * M_PI)) / (2 * log(rope->freq_base));
}

/* YaRN's blend for pair j: 1 keeps the angle, 0 scales it down. */
static double yarn_ramp(const struct rope_config *rope, int j)
{
    double low = fmax(0, floor(pair_of_turns(rope, rope->beta_fast)));
    double high = fmin(rope->n_rot - 1, ceil(pair_of_turns(rope, rope->beta_slow)));
    double at = (j - low) / fmax(0.001, high - low);
    return 1 - fmin(1, fmax(0, at));
}

void rope_angles(const struct rope_config *rope, int pos, float *cosines, float *sines)
{
    double magnitude = rope->attn_factor;
    if (rope->is_yarn)
        magnitude *= 1 + 0.1 * log(1 / rope->freq_scale);
    for (int j = 0; j < rope->n_rot / 2; j++) {
        double theta = pos * pow(rope->freq_base, -2.0 * j / rope->n_rot);
        if (rope->factors)
            theta /= rope->factors[j];
        double keep = rope->is_yarn ? yarn_ramp(rope, j) : 0;
        theta = rope->freq_scale * theta * (1 - keep) + theta * keep;
        cosines[j] = (float)(cos(theta) * magnitude);
        sines[j] = (float)(sin(theta) * magnitude);
    }
}

void rope_turn(const struct rope_config *rope, const float *cosines, const float *sines,
               float *head)
{
    int stride = rope->pairs == ROPE_ADJACENT ? 2 : 1;
    int distance = rope->pairs == ROPE_ADJACENT ? 1 : rope->n_rot / 2;
    for (int j = 0; j < rope->n_rot / 2; j++) {
        float *a = &head[j * stride], *b = a + distance;
        float turned = (float)((double)*a * cosines[j] - (double)*b * sines[j]);
        *b = (float)((double)*a * sines[j] + (double)*b * cosines[j]);
        *a = turned;
    }
}
