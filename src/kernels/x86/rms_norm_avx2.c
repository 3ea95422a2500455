#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/rms_norm_body.h"

void rms_norm_avx2(const union job *job, int begin, int end)
{
    rms_norm_body(&job->rms_norm, begin, end);
}
