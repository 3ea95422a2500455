#include "kernels/arm/matmul_q8_0.h"

void matmul_q8_0_neon(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
