#include "kernels/x86/matmul_float_avx512.h"

FLOAT_MATMUL(matmul_bf16_avx512, PACKING_bf16)
