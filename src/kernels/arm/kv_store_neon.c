#include "kernels/arm/lanes_neon.h"

#include "kernels/lanes/kv_store_body.h"

void kv_store_neon(const union job *job, int begin, int end)
{
    kv_store_body(&job->kv_store, begin, end);
}
