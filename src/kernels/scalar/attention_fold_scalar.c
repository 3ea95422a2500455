#include "kernels/scalar/attention_fold_scalar.h"

#include "kernels/attention_walk.h"

void attention_fold_scalar(const union job *job, int begin, int end)
{
    static const struct attention_steps steps = {.fold = fold_output, .divide = divide_output};
    attention_fold_walk(&job->attention_fold, &steps, begin, end);
}
