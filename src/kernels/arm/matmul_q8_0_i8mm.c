#include "kernels/arm/matmul_q8_0.h"

void matmul_q8_0_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
