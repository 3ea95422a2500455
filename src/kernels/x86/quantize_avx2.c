#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/quantize_body.h"

void quantize_avx2(const union job *job, int begin, int end)
{
    quantize_body(&job->quantize, begin, end);
}
