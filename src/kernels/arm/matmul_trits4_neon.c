#include "kernels/arm/matmul_trits4.h"

void matmul_trits4_neon(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
