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

static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t mantissa = half & 0x3ff;
    if (exponent == 0x1f)
        return f32_from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* denormals are exact in f32 */
    return f32_from_bits(sign | bits_from_f32(magnitude));
}

static inline uint16_t f32_to_f16(float value)
{
    uint32_t bits = bits_from_f32(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN stays NaN */
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: the addition rounds to a multiple of 2^-24 */
        float shifted = f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_from_f32(shifted) - bits_from_f32(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static inline float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t f32_to_bf16(float value)
{
    uint32_t bits = bits_from_f32(value);
    if ((bits & 0x7fffffff) > 0x7f800000) /* keep NaN quiet instead of rounding it to infinity */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
