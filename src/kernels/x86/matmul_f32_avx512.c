#include "kernels/x86/matmul_float_avx512.h"

FLOAT_MATMUL(matmul_f32_avx512, PACKING_f32)
