/* The best k of a row so far, best first. */
#ifndef TRINE_KERNELS_TOP_K_LIST_H
#define TRINE_KERNELS_TOP_K_LIST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct top_k_list {
    int n, k; /* held, wanted */
    int32_t *ids;
    float *values;
};

/* a before b: larger, or a number and b is none. Equal ones keep the order in which they came. */
static inline bool is_better(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Offers x[id]; ids must come in ascending order. */
static inline void top_k_offer(struct top_k_list *list, float value, int32_t id)
{
    if (list->n == list->k && !is_better(value, list->values[list->k - 1]))
        return;
    int at = list->n < list->k ? list->n++ : list->k - 1;
    for (; at > 0 && is_better(value, list->values[at - 1]); at--) {
        list->values[at] = list->values[at - 1];
        list->ids[at] = list->ids[at - 1];
    }
    list->values[at] = value;
    list->ids[at] = id;
}

#endif
