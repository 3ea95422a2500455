/* IEEE half and bfloat16 to and from single, rounding to nearest, ties to even. */
#ifndef TRINE_BASE_FLOAT16_H
#define TRINE_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* a where the condition holds, else b. By bits, here and below: a choice between numbers would become a
 * branch, and loops over halves would not vectorise. */
static inline uint32_t choose_bits(int condition, uint32_t a, uint32_t b)
{
    uint32_t mask = -(uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half & 0x7c00;
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t normal = magnitude + (exponent == 0x7c00 ? 0x70000000 : 0x38000000);
    /* A denormal is the fraction of 2^-14: exact, and no denormal of f32 on the way. */
    float denormal = f32_from_bits(magnitude + 0x38800000) - 0x1p-14f;
    return f32_from_bits(sign | choose_bits(exponent == 0, bits_from_f32(denormal), normal));
}

static inline uint16_t f32_to_f16(float value)
{
    uint32_t bits = bits_from_f32(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
    /* Below 2^-14 the addition rounds to a multiple of 2^-24. */
    uint32_t denormal = bits_from_f32(f32_from_bits(magnitude) + 0.5f) - bits_from_f32(0.5f);
    uint32_t half = choose_bits(magnitude < 0x38800000, denormal, normal);
    half = choose_bits(magnitude >= 0x477ff000, 0x7c00, half); /* 65520 and above: infinity */
    half = choose_bits(magnitude > 0x7f800000, 0x7e00, half);  /* NaN stays NaN */
    return (uint16_t)((bits >> 16 & 0x8000) | half);
}

static inline float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t f32_to_bf16(float value)
{
    uint32_t bits = bits_from_f32(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40; /* NaN, instead of rounding it to infinity */
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

#endif
