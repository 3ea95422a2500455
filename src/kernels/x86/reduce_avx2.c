#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/reduce_body.h"

void reduce_avx2(const union job *job, int begin, int end)
{
    reduce_body(&job->reduce, begin, end);
}
