#include "kernels/arm/matmul_iq4_xs.h"

void matmul_iq4_xs_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
