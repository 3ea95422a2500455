#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/kv_store_body.h"

void kv_store_avx2(const union job *job, int begin, int end)
{
    kv_store_body(&job->kv_store, begin, end);
}
