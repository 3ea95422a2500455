#include "kernels/x86/lanes_avx2.h"

#include "kernels/attention_walk.h"
#include "kernels/lanes/attention_fold_body.h"

void attention_fold_avx2(const union job *job, int begin, int end)
{
    static const struct attention_steps steps = {.fold = fold_output, .divide = divide_output};
    attention_fold_walk(&job->attention_fold, &steps, begin, end);
}
