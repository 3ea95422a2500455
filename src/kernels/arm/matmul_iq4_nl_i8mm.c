#define CODE_BITS 4
#define OFFSET    0
#define HAS_MIN   0
#define IS_IQ4    1
#include "kernels/arm/matmul_block_32.h"

void matmul_iq4_nl_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
