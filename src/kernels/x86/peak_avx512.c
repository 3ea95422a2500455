#include "kernels/x86/lanes_avx512.h"

#include "kernels/lanes/quantize_body.h"

void peak_avx512(const union job *job, int begin, int end)
{
    peak_body(&job->peak, begin, end);
}
