/* What is timed: a kernel on a job, from memory or from cache, on some threads; and the rounds in
 * which subjects and limits take turns. */
#ifndef TRINE_BENCH_SUBJECT_H
#define TRINE_BENCH_SUBJECT_H

#include "../tests/kernels/check.h"

#define MAX_ROUNDS 101

/* A job, shared by the kernels that run it. */
struct data {
    struct check check;
    enum op op;
    enum packing packing;
    struct large large;
};

struct subject {
    const struct kernel_row *row; /* NULL: absent, passed over */
    struct data *data;
    int n_threads;
    bool is_cached;     /* the data fits the caches: repeated in one measurement */
    bool is_read_bound; /* compared with the read bandwidth */
    bool is_capped;     /* else with the peak of its instruction set, not of the machine's best */
    int repeats;
    bool is_slow;          /* measured once */
    double ns[MAX_ROUNDS]; /* of one pass, per round; 0: not measured */
    double best_ns;
    double limit
        [MAX_ROUNDS]; /* bytes or multiplications a second: the best look at it in that round */
};

/* The data of a job, made or found among n; NULL: there is none of that kind. */
struct data *data_of(struct data *all, int *n, const struct kernel_row *row,
                     const struct large *large);

/* Measures all subjects n_rounds times in rotating order, each between two looks at the limits, for
 * about `seconds` each in all. */
void subjects_measure(struct subject *subjects, int n, int n_rounds, double seconds);

/* Nanoseconds of a pass. */
double subject_median_ns(const struct subject *s);
/* Median over the rounds of the speed over the limit of the same round, which is of the read bandwidth or
 * of the fastest instruction set's integer peak. */
double subject_share(const struct subject *s);
/* Median over the rounds of the speed of a over that of b, per unit of their workloads. */
double subject_ratio(const struct subject *a, const struct subject *b, int n_rounds);

#endif
