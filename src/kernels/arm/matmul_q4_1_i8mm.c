#define CODE_BITS 4
#define OFFSET    0
#define HAS_MIN   1
#define IS_IQ4    0
#include "kernels/arm/matmul_block_32.h"

void matmul_q4_1_i8mm(const union job *job, int begin, int end)
{
    matmul_tiles(&job->matmul, begin, end);
}
