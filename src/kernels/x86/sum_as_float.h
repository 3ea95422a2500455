/* Integer sums that turn into floats without a conversion, which would share the ports of the multiplier. */
#ifndef TRINE_KERNELS_X86_SUM_AS_FLOAT_H
#define TRINE_KERNELS_X86_SUM_AS_FLOAT_H

/* What such a sum begins with: the bits of 1.5 * 2^23, a float whose last bit counts 1. An exact sum s
 * below 2^22 then ends as the bits of 1.5 * 2^23 + s: a subtraction, or a multiply-add, makes a float of it. */
#define SUM_START       0x4b400000
#define SUM_START_FLOAT 0x1.8p23f

#endif
