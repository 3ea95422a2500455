#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/attention_body.h"

void attention_neon(const union job *job, int begin, int end)
{
    attention_body(&job->attention, begin, end);
}
