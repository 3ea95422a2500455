#define HAS_FIFTH 0
#include "kernels/arm/matmul_q45_k.h"

void matmul_q4_k_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
