#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/reduce_body.h"

void reduce_neon(const union job *job, int begin, int end)
{
    reduce_body(&job->reduce, begin, end);
}
