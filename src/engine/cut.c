#include "engine/cut.h"

void cut_even(int64_t n, int64_t multiple, const int *weights, int n_nodes, int64_t *at)
{
    int64_t all = 0, sum = 0;
    for (int i = 0; i < n_nodes; i++)
        all += weights[i];
    at[0] = 0;
    for (int i = 0; i < n_nodes; i++) {
        sum += weights[i];
        /* the multiple next to n * sum / all */
        int64_t units = (2 * n * sum + all * multiple) / (2 * all * multiple);
        at[i + 1] = units * multiple < n ? units * multiple : n;
    }
    at[n_nodes] = n;
}

struct kv_range cut_kv_range(const struct cut *cut, int node, int n_head, int n_head_kv)
{
    int group = n_head / n_head_kv;
    int head0 = (int)cut->heads[node], head1 = (int)cut->heads[node + 1];
    if (head0 == head1)
        return (struct kv_range){0, 0, 0};
    return (struct kv_range){head0 / group, (head1 + group - 1) / group, head0 % group};
}

struct kv_range cut_kv_own(const struct cut *cut, int node, int n_head, int n_head_kv)
{
    struct kv_range kv = cut_kv_range(cut, node, n_head, n_head_kv);
    return (struct kv_range){kv.kv0 + (kv.first > 0), kv.kv1, 0};
}
