#include "kernels/arm/matmul_q3_k.h"

void matmul_q3_k_neon(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
