#define HAS_FIFTH 1
#include "kernels/arm/matmul_q45_k.h"

void matmul_q5_k_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
