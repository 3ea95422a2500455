#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/attention_body.h"

void attention_avx2(const union job *job, int begin, int end)
{
    attention_body(&job->attention, begin, end);
}
