#include "measure/perplexity.h"

#include <math.h>

double log_sum_exp(const float *logits, int n)
{
    float largest = logits[0];
    for (int i = 1; i < n; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

double perplexity_of(const struct mean *nll)
{
    return exp(nll->value);
}

double perplexity_error(const struct mean *nll)
{
    return exp(nll->value) * mean_error(nll);
}
