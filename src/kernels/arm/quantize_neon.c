#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/quantize_body.h"

void quantize_neon(const union job *job, int begin, int end)
{
    quantize_body(&job->quantize, begin, end);
}
