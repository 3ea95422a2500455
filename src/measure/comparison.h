/* A comparison of programs: what was run, in rounds, and what follows from it. How they are run is
 * not known here. */
#ifndef TRINE_MEASURE_COMPARISON_H
#define TRINE_MEASURE_COMPARISON_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>

#include "base/memory.h"
#include "measure/statistics.h"

#define COMPARISON_MOST       8    /* variants */
#define COMPARISON_ROUNDS     1000 /* of a kind */
#define COMPARISON_ATTEMPTS   100
#define COMPARISON_RUNS       20000
#define COMPARISON_NAME_BYTES 40
#define COMPARISON_TEXT_BYTES 65535 /* of a command, a pattern or a test */

/* Where a run's number comes from. */
enum comparison_value {
    COMPARISON_AUTO,    /* tokens a second in the JSON of llama-bench or trine bench */
    COMPARISON_PATTERN, /* what the group of a regular expression matches */
    COMPARISON_TIME,    /* seconds that the command took */
    N_COMPARISON_VALUES
};

/* One run of one variant. A round is repeated as a whole: then attempt is 2, 3, ... */
struct comparison_run {
    bool is_cold;       /* of a round before the steady ones, which are numbered by themselves */
    int round, attempt; /* from 1, at most COMPARISON_ROUNDS and COMPARISON_ATTEMPTS */
    int variant;
    bool is_disturbed; /* others used the machine more than the limit allowed */
    double value;      /* above 0 */
    double wall_s, cpu_s;
    double foreign_cpus, stolen_cpus; /* on average while it ran; NAN: not known */
    double read_gb_s; /* read bandwidth of the machine before the round; NAN: not measured */
    int64_t begun;    /* seconds since 1970 */
};

struct comparison {
    int n_variants;
    const char *names[COMPARISON_MOST], *commands[COMPARISON_MOST]; /* owned: arena */
    enum comparison_value value;
    const char *test;    /* owned: arena; which test of the JSON; NULL: the only one */
    const char *pattern; /* owned: arena; or NULL */
    bool is_lower_better;
    struct comparison_run *runs; /* owned: in the order in which they ran */
    size_t n_runs, n_room;
    json_t *sessions; /* owned: an array; an object with machine and files each time it was begun or
                         resumed; its content means nothing here */
    struct arena arena;
};

/* Empty, without variants. errors: MEMORY */
enum status comparison_init(struct comparison *c, struct error *err);
/* Accepts a zeroed object. */
void comparison_done(struct comparison *c);

/* May a command, a pattern or a test be this text? It must be possible to write it into a record
 * and to read it back.
 * errors  USAGE: blank, too long, or no UTF-8; the text follows on the name of what it is */
enum status comparison_check_text(const char *text, struct error *err);

/* Copies both texts. errors: LIMIT: too many; USAGE: a name that is empty, too long, not printable
 * or there already, a command that comparison_check_text refuses; MEMORY */
enum status comparison_add_variant(struct comparison *c, const char *name, const char *command,
                                   struct error *err);

/* errors  LIMIT: too many; MEMORY */
enum status comparison_add_run(struct comparison *c, const struct comparison_run *run,
                               struct error *err);

/* Index of a variant's name, or -1. */
int comparison_find(const struct comparison *c, const char *name);

/* How far a round is. */
struct comparison_round {
    int n_attempts, n_disturbed; /* attempts; those with a disturbed run */
    int counts;        /* the attempt that counts: the last in which every variant ran; 0: none */
    bool is_disturbed; /* that attempt has a disturbed run */
};
struct comparison_round comparison_round(const struct comparison *c, bool is_cold, int round);

/* The highest number of a round, finished or not; 0: none. */
int comparison_last_round(const struct comparison *c, bool is_cold);

/* The variant that runs at place 0, 1, ... of a round: each round begins with the next one. */
int comparison_order(const struct comparison *c, int round, int place);

/* How a variant stands to the base. */
enum comparison_verdict {
    VERDICT_BASE,
    VERDICT_TOO_FEW, /* less than 5 rounds show nothing */
    VERDICT_EQUAL,   /* no difference shown */
    VERDICT_BETTER,
    VERDICT_WORSE
};

struct comparison_summary {
    double median, min, max, mean, standard_error; /* over the rounds that count */
    double cold_median;                            /* NAN: none */
    double ratio; /* median over the rounds of value / value of the base in the same round */
    struct interval interval; /* 95 %, bootstrap */
    int n_below, n_above;     /* rounds whose ratio is below or above 1 */
    enum comparison_verdict verdict;
};

/* Of the steady rounds. Disturbed ones are left out if at least half of the rounds are clean,
 * otherwise all are used. */
struct comparison_analysis {
    int base;
    int n_rounds, n_clean, n_used, n_cold;
    int n_repeated; /* disturbed attempts that another one took the place of */
    bool uses_disturbed;
    double foreign_max, stolen_max;      /* of all runs; NAN: not known */
    double read_gb_s_min, read_gb_s_max; /* NAN: not measured */
    struct comparison_summary variants[COMPARISON_MOST];
};

/* A difference is called one if the interval excludes 1 and so few rounds lie on the other side
 * that fair coins would do the same in 1 of 16 comparisons at most: the interval alone is too narrow
 * for few rounds (statistics.h).
 * errors  LIMIT: no round is finished; MEMORY */
enum status comparison_analyse(const struct comparison *c, int base, struct comparison_analysis *a,
                               struct error *err);

/* The value of a run of a finished round, NAN where there is none. */
double comparison_value_of(const struct comparison *c, bool is_cold, int round, int attempt,
                           int variant);

/* Does the analysis use this run? */
bool comparison_uses(const struct comparison *c, const struct comparison_analysis *a,
                     const struct comparison_run *run);

#endif
