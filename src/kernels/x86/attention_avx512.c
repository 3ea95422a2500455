#include "kernels/x86/lanes_avx512.h"

#include "kernels/lanes/attention_body.h"

void attention_avx512(const union job *job, int begin, int end)
{
    attention_body(&job->attention, begin, end);
}
