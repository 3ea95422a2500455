#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/rms_norm_body.h"

void rms_norm_neon(const union job *job, int begin, int end)
{
    rms_norm_body(&job->rms_norm, begin, end);
}
