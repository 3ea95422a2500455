#include "kernels/arm/lanes_neon.h"

#include "kernels/attention_walk.h"
#include "kernels/lanes/attention_fold_body.h"

void attention_fold_neon(const union job *job, int begin, int end)
{
    static const struct attention_steps steps = {.fold = fold_output, .divide = divide_output};
    attention_fold_walk(&job->attention_fold, &steps, begin, end);
}
