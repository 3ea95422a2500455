#include "kernels/arm/matmul_trits4.h"

void matmul_trits4_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
