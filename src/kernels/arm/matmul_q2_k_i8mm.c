#include "kernels/arm/matmul_q2_k.h"

void matmul_q2_k_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
