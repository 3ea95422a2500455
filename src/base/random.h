/* Reproducible pseudo-random numbers: the same seed gives the same numbers on every machine.
 * source  xoshiro256** 1.0 and splitmix64, Blackman and Vigna 2018, arXiv:1805.01407 */
#ifndef TRINE_BASE_RANDOM_H
#define TRINE_BASE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state[4];
};

/* Any seed, also 0. */
void random_init(struct random *random, uint64_t seed);

/* 64 uniform bits. */
uint64_t random_bits(struct random *random);

/* Uniform in [0, 1): a multiple of 2^-53. */
double random_unit(struct random *random);

/* Normal, mean 0, deviation 1 (Box and Muller). */
double random_normal(struct random *random);

#endif
