#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/quantize_body.h"

void peak_neon(const union job *job, int begin, int end)
{
    peak_body(&job->peak, begin, end);
}
