#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/quantize_body.h"

void peak_avx2(const union job *job, int begin, int end)
{
    peak_body(&job->peak, begin, end);
}
