#include "kernels/x86/lanes_avx512.h"

#include "kernels/lanes/rms_norm_body.h"

void rms_norm_avx512(const union job *job, int begin, int end)
{
    rms_norm_body(&job->rms_norm, begin, end);
}
