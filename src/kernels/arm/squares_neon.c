#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/squares_body.h"

void squares_neon(const union job *job, int begin, int end)
{
    squares_body(&job->squares, begin, end);
}
