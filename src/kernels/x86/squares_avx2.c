#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/squares_body.h"

void squares_avx2(const union job *job, int begin, int end)
{
    squares_body(&job->squares, begin, end);
}
