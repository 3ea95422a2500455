/* `trine compare`: programs in turn, in rounds, and what may be said of them afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/output_file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/compare_facts.h"
#include "cli/compare_options.h"
#include "cli/compare_print.h"
#include "cli/compare_run.h"
#include "cli/compare_value.h"
#include "cli/json_out.h"
#include "machine/bandwidth.h"
#include "measure/comparison_json.h"
#include "measure/comparison_plot.h"

#define BANDWIDTH_S    0.3

#define COMPARE(field) offsetof(struct compare_options, field)
static const struct option options[] = {
    {NULL, NULL, NULL, "Programs", OPT_FLAG, 0, 0, 0},
    {"--a", "COMMAND", NULL, "a command line for /bin/sh", OPT_TEXT, COMPARE(commands[0]), 0, 0},
    {"--b", "COMMAND", NULL, "another one", OPT_TEXT, COMPARE(commands[1]), 0, 0},
    {"--c", "COMMAND", NULL, "a third", OPT_TEXT, COMPARE(commands[2]), 0, 0},
    {"--d", "COMMAND", NULL, "a fourth", OPT_TEXT, COMPARE(commands[3]), 0, 0},
    {"--e", "COMMAND", NULL, "a fifth", OPT_TEXT, COMPARE(commands[4]), 0, 0},
    {"--f", "COMMAND", NULL, "a sixth", OPT_TEXT, COMPARE(commands[5]), 0, 0},
    {"--g", "COMMAND", NULL, "a seventh", OPT_TEXT, COMPARE(commands[6]), 0, 0},
    {"--h", "COMMAND", NULL, "an eighth", OPT_TEXT, COMPARE(commands[7]), 0, 0},
    {"--names", "A,B,...", NULL, "what they are called; otherwise a, b, ...", OPT_TEXT,
     COMPARE(names), 0, 0},
    {"--base", "NAME", NULL, "the one that the others are divided by; otherwise the first",
     OPT_TEXT, COMPARE(base), 0, 0},
    {NULL, NULL, NULL, "Their number", OPT_FLAG, 0, 0, 0},
    {"--test", "NAME", NULL,
     "which test of the JSON of llama-bench or trine bench: tg128, 'pp512 @ d1024'", OPT_TEXT,
     COMPARE(test), 0, 0},
    {"--pattern", "REGEX", NULL,
     "instead: what the one group of this expression matches in standard output", OPT_TEXT,
     COMPARE(pattern), 0, 0},
    {"--lower", NULL, NULL, "a lower number of the pattern is the better one", OPT_FLAG,
     COMPARE(is_lower), 0, 0},
    {"--time", NULL, NULL, "instead: the seconds that the command takes", OPT_FLAG,
     COMPARE(is_time), 0, 0},
    {NULL, NULL, NULL, "Rounds", OPT_FLAG, 0, 0, 0},
    {"--rounds", "N", "5", "that every program runs once in", OPT_INT, COMPARE(n_rounds), 1,
     COMPARISON_ROUNDS},
    {"--cold", "N", "1", "rounds before them, shown apart", OPT_INT, COMPARE(n_cold), 0, 100},
    {"--max-foreign", "CPUS", "0.25",
     "more CPUs than these busy with other programs disturb a round; 0: nothing does", OPT_NUMBER,
     COMPARE(max_foreign), 0, 100000},
    {"--retries", "N", "3", "how often a disturbed round is repeated", OPT_INT, COMPARE(n_retries),
     0, COMPARISON_ATTEMPTS / 2},
    {"--timeout", "SECONDS", "3600", "a command that takes longer is killed", OPT_NUMBER,
     COMPARE(timeout_s), 0.01, 1e6},
    {"--bandwidth", NULL, NULL, "measure the machine's read bandwidth before every round", OPT_FLAG,
     COMPARE(is_bandwidth), 0, 0},
    {NULL, NULL, NULL, "Results", OPT_FLAG, 0, 0, 0},
    {"--record", "FILE", NULL,
     "JSON with every run, written after each; one that exists is continued, or shown when no "
     "command is given",
     OPT_TEXT, COMPARE(record), 0, 0},
    {"--plot", "FILE", NULL, "SVG with every run as a mark", OPT_TEXT, COMPARE(plot), 0, 0},
    {"--json", NULL, NULL, "the analysis as JSON instead of a table", OPT_FLAG, COMPARE(is_json), 0,
     0},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

struct compare {
    const struct compare_options *o;
    struct comparison c;
    struct value_rule rule;
    double read_gb_s;                 /* before the round that runs; NAN: not measured */
    bool has_warned[COMPARISON_MOST]; /* about processes that are left behind */
    bool has_warned_load;
};

static bool has_commands(const struct compare_options *o)
{
    for (int i = 0; i < COMPARISON_MOST; i++)
        if (o->commands[i])
            return true;
    return false;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0)
        return strcmp(a, b) == 0;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static size_t value_bytes(enum option_type type)
{
    return type == OPT_FLAG     ? sizeof(bool)
           : type == OPT_INT    ? sizeof(int64_t)
           : type == OPT_NUMBER ? sizeof(double)
                                : sizeof(const char *);
}

static bool is_for_showing(const struct option *row)
{
    return row->offset == COMPARE(base) || row->offset == COMPARE(record) ||
           row->offset == COMPARE(plot) || row->offset == COMPARE(is_json);
}

/* Without commands nothing runs: an option that says what or how would be passed over. One that is
 * given with its default cannot be told from one that is not, and means the same. */
static enum status refuse_unused(const struct compare_options *o, struct error *err)
{
    struct compare_options initial = {0};
    bool wants_help;
    TRY(options_parse(&command_compare, 0, NULL, &initial, &wants_help, err));
    for (const struct option *row = options; row->names || row->help; row++) {
        if (!row->names || is_for_showing(row))
            continue;
        const char *given = (const char *)o + row->offset;
        if (memcmp(given, (const char *)&initial + row->offset, value_bytes(row->type)) != 0)
            return fail(err, STATUS_USAGE,
                        "%s is of no use without commands: the record is only shown; give the "
                        "commands to continue it",
                        row->names);
    }
    return STATUS_OK;
}

/* From the record, from the options, or from both, which must then agree. */
static enum status open_comparison(struct compare *k, struct error *err)
{
    const struct compare_options *o = k->o;
    if (o->record && o->plot && is_same_file(o->record, o->plot))
        return fail(err, STATUS_USAGE, "--plot and --record name the same file");
    if (!has_commands(o) && !o->record)
        return fail(err, STATUS_USAGE, "give two commands or more, or a --record to show");
    if (!has_commands(o)) {
        TRY(refuse_unused(o, err));
        return comparison_read(&k->c, o->record, err);
    }
    TRY(compare_options_apply(o, &k->c, err));
    if (!o->record || access(o->record, F_OK) != 0)
        return STATUS_OK;
    struct comparison record = {0};
    enum status status = comparison_read(&record, o->record, err);
    if (status == STATUS_OK)
        status = compare_options_match(&k->c, &record, o->record, err);
    struct comparison unused = status == STATUS_OK ? k->c : record;
    if (status == STATUS_OK)
        k->c = record;
    comparison_done(&unused);
    return status;
}

static enum status find_base(const struct compare *k, int *base, struct error *err)
{
    *base = k->o->base ? comparison_find(&k->c, k->o->base) : 0;
    if (*base >= 0)
        return STATUS_OK;
    return fail(err, STATUS_USAGE, "--base: no command is called '%s'", k->o->base);
}

static enum status save(const struct compare *k, struct error *err)
{
    return k->o->record ? comparison_write(&k->c, k->o->record, err) : STATUS_OK;
}

/* The team's threads must not be there while a command runs. */
static enum status measure_bandwidth(struct compare *k, struct error *err)
{
    struct topology topology = {0};
    struct team_layout layout = {0};
    struct thread_team *team = NULL;
    struct bandwidth bandwidth = {0};
    enum status status = topology_read(&topology, NULL, err);
    if (status == STATUS_OK)
        status = team_layout_make(&layout, &topology, &(struct team_request){0}, err);
    if (status == STATUS_OK)
        status = team_open(&team, &layout, true, err);
    if (status == STATUS_OK)
        status = bandwidth_measure(&bandwidth, team, &topology, BANDWIDTH_S, false, err);
    k->read_gb_s = bandwidth.machine_bytes_s / 1e9;
    bandwidth_done(&bandwidth);
    team_close(team);
    team_layout_done(&layout);
    topology_done(&topology);
    return status;
}

static void warn(struct compare *k, int variant, const struct shell_run *run)
{
    if (run->n_left && !k->has_warned[variant])
        fprintf(stderr, "note: %s leaves %d process%s behind, which %s killed\n",
                k->c.names[variant], run->n_left, run->n_left == 1 ? "" : "es",
                run->n_left == 1 ? "is" : "are");
    k->has_warned[variant] |= run->n_left > 0;
    if (isnan(run->load.cpus) && k->o->max_foreign > 0 && !k->has_warned_load)
        fprintf(stderr,
                "ATTENTION: %s ran for %.3f s; foreign CPUs are known from 0.1 s on, and where "
                "/proc/stat counts\n",
                k->c.names[variant], run->wall_s);
    k->has_warned_load |= isnan(run->load.cpus);
}

/* One command, its number, and both in the record. place: what is filled in beforehand. */
static enum status run_variant(struct compare *k, struct comparison_run *place, int n_rounds,
                               struct error *err)
{
    struct shell_run run;
    struct error why;
    place->begun = time(NULL);
    enum status status = shell_run(&run, k->c.commands[place->variant], k->o->timeout_s, &why);
    if (status == STATUS_OK)
        status = value_find(&k->rule, &run, &place->value, &why);
    if (status == STATUS_OK)
        warn(k, place->variant, &run);
    place->wall_s = run.wall_s;
    place->cpu_s = run.cpu_s;
    place->foreign_cpus = run.load.cpus;
    place->stolen_cpus = run.load.stolen;
    place->is_disturbed = foreign_load_disturbs(&run.load, run.load_s, k->o->max_foreign);
    shell_run_done(&run);
    if (status != STATUS_OK)
        return fail(err, status, "%s failed in %sround %d: %s", k->c.names[place->variant],
                    place->is_cold ? "cold " : "", place->round, why.text);
    TRY(comparison_add_run(&k->c, place, err));
    compare_print_run(&k->c, n_rounds);
    return save(k, err);
}

/* Every variant once. A disturbed round that will be repeated is not finished first. */
static enum status run_attempt(struct compare *k, bool is_cold, int round, int n_rounds,
                               const struct comparison_round *before, struct error *err)
{
    bool is_last = is_cold || before->n_disturbed >= k->o->n_retries;
    k->read_gb_s = NAN;
    if (before->n_attempts == COMPARISON_ATTEMPTS)
        return fail(err, STATUS_LIMIT, "round %d was begun %d times; give another --record", round,
                    COMPARISON_ATTEMPTS);
    if (k->o->is_bandwidth)
        TRY(measure_bandwidth(k, err));
    for (int i = 0; i < k->c.n_variants; i++) {
        struct comparison_run run = {.is_cold = is_cold,
                                     .round = round,
                                     .attempt = before->n_attempts + 1,
                                     .variant = comparison_order(&k->c, round, i),
                                     .read_gb_s = k->read_gb_s};
        TRY(run_variant(k, &run, n_rounds, err));
        if (run.is_disturbed && !is_last)
            break;
    }
    return STATUS_OK;
}

/* Is there nothing left to do for a round? */
static bool is_finished(const struct compare *k, const struct comparison_round *r)
{
    return r->counts && (!r->is_disturbed || r->n_disturbed > k->o->n_retries);
}

static int count_unfinished(const struct compare *k)
{
    int n = 0;
    for (int round = 1; round <= k->o->n_rounds; round++) {
        struct comparison_round r = comparison_round(&k->c, false, round);
        n += !is_finished(k, &r);
    }
    return n;
}

static enum status run_steady_rounds(struct compare *k, struct error *err)
{
    for (int round = 1; round <= k->o->n_rounds; round++) {
        struct comparison_round r = comparison_round(&k->c, false, round);
        while (!is_finished(k, &r)) {
            TRY(run_attempt(k, false, round, (int)k->o->n_rounds, &r, err));
            r = comparison_round(&k->c, false, round);
        }
    }
    return STATUS_OK;
}

/* Whatever was warm when the record was begun is not so any more when it is continued, so these are
 * run each time, with numbers of their own. */
static enum status run_cold_rounds(struct compare *k, struct error *err)
{
    int begin = comparison_last_round(&k->c, true), end = begin + (int)k->o->n_cold;
    if (end > COMPARISON_ROUNDS)
        return fail(err, STATUS_LIMIT, "more than %d cold rounds; give --cold 0",
                    COMPARISON_ROUNDS);
    for (int round = begin + 1; round <= end; round++)
        TRY(run_attempt(k, true, round, end, &(struct comparison_round){0}, err));
    return STATUS_OK;
}

static enum status run_rounds(struct compare *k, struct error *err)
{
    if (!has_commands(k->o) || count_unfinished(k) == 0)
        return STATUS_OK;
    TRY(value_rule_make(&k->rule, &k->c, err));
    json_t *facts = compare_facts(&k->c, k->o->max_foreign);
    if (!facts)
        return fail_memory(err, "facts", 0);
    enum status status = compare_facts_check(&k->c, facts, err);
    if (status == STATUS_OK)
        json_array_append(k->c.sessions, facts);
    json_decref(facts);
    TRY(status);
    TRY(save(k, err)); /* a record that cannot be written is found out before anything runs */
    TRY(run_cold_rounds(k, err));
    return run_steady_rounds(k, err);
}

/* Whether it can be written is found out before anything runs. It is not kept open meanwhile: only
 * one unfinished file is removed by a signal, and each run writes the record. A pipe is left alone,
 * because it would end for its reader. */
static enum status try_plot(const struct compare *k, struct error *err)
{
    struct output_file file;
    struct stat info;
    const char *path = k->o->plot;
    if (!path || (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
        return STATUS_OK;
    TRY(output_file_open(&file, path, err));
    output_file_close(&file);
    return STATUS_OK;
}

static enum status write_plot(const struct compare *k, const struct comparison_analysis *a,
                              struct error *err)
{
    struct output_file file;
    if (!k->o->plot)
        return STATUS_OK;
    TRY(output_file_open(&file, k->o->plot, err));
    comparison_plot(file.stream, &k->c, a);
    enum status status = output_file_commit(&file, err);
    output_file_close(&file);
    return status;
}

static enum status report(const struct compare *k, int base, struct error *err)
{
    struct comparison_analysis a;
    TRY(comparison_analyse(&k->c, base, &a, err));
    compare_facts_report(&k->c);
    if (k->o->is_json)
        TRY(json_out(stdout, comparison_analysis_json(&k->c, &a), JSON_REAL_PRECISION(15), err));
    else
        compare_print(&k->c, &a);
    return write_plot(k, &a, err);
}

static enum status compare(struct compare *k, struct error *err)
{
    int base;
    TRY(open_comparison(k, err));
    TRY(find_base(k, &base, err));
    TRY(try_plot(k, err));
    TRY(run_rounds(k, err));
    return report(k, base, err);
}

static int run_command(const void *values)
{
    struct compare k = {.o = values};
    struct error err;
    enum status status = compare(&k, &err);
    value_rule_done(&k.rule);
    comparison_done(&k.c);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("compare", &err);
}

const struct command command_compare = {
    "compare",
    "compare the speed of programs that run in turn",
    "Every round runs each command once, in rotating order. A ratio is the median over the rounds "
    "of\n"
    "what two commands reached in the same round, with a 95 % bootstrap interval. While a command\n"
    "runs, the CPUs that other programs keep busy are counted; a round with too many is repeated, "
    "and\n"
    "marked and left out if that does not help.",
    options,
    sizeof(struct compare_options),
    run_command};
