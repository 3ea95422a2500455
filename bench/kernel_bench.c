/* Times every kernel of the list on the jobs of its check at a large size, against what this
 * machine can do: see usage below. Exit 1 if a kernel read faster than the probe: then the probe is
 * wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_team.h"
#include "limits.h"
#include "machine/cpu_features.h"
#include "subject.h"

static const char usage[] =
    "usage: kernel_bench [--table] [--json] [--op OP] [--packing P] [--isa ISA] [--tokens N]\n"
    "                    [--group N] [--threads N] [--seconds S] [--rounds N] [--bytes N[K|M|G]]\n"
    "  every row of the kernel list, from memory and from cache; --table: the measures with a bar\n"
    "  --isa      only rows of that instruction set\n"
    "  --tokens   columns of a matmul (1); more than 16: 2048 rows, not from memory\n"
    "  --group    weights per scale of trits (0: one scale per row)\n"
    "  --threads  pinned to one CPU each (all allowed)\n"
    "  --seconds  per row and source, over all rounds (2);  --rounds (9)\n"
    "  --bytes    distinct data per pass (512M); less is not memory and proves nothing\n";

#define MEMORY_BYTES     ((int64_t)512 << 20)
#define CACHED_BYTES     ((int64_t)512 << 10) /* per thread */
#define N_COLS           4096
#define MANY_TOKENS_ROWS 2048

static struct {
    bool is_table, is_json;
    const char *op, *packing, *isa;
    int tokens, group, threads, rounds;
    double seconds;
    int64_t bytes;
} options = {.tokens = 1, .rounds = 9, .seconds = 2, .bytes = MEMORY_BYTES};

static int64_t parse_bytes(const char *text)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
    return (int64_t)n << shift;
}

static void refuse(const char *argument)
{
    fprintf(stderr, "kernel_bench: %s?\n%s", argument, usage);
    exit(2);
}

/* A name that is no instruction set would silently match no row. */
static const char *parse_isa(const char *name)
{
    struct error err;
    enum isa isa;
    if (isa_parse(name, &isa, &err) != STATUS_OK)
        refuse(err.text);
    return name;
}

static bool parse_valued(const char *name, const char *value)
{
    if (strcmp(name, "--op") == 0)
        options.op = value;
    else if (strcmp(name, "--packing") == 0)
        options.packing = value;
    else if (strcmp(name, "--isa") == 0)
        options.isa = parse_isa(value);
    else if (strcmp(name, "--tokens") == 0)
        options.tokens = atoi(value);
    else if (strcmp(name, "--group") == 0)
        options.group = atoi(value);
    else if (strcmp(name, "--threads") == 0)
        options.threads = atoi(value);
    else if (strcmp(name, "--rounds") == 0)
        options.rounds = atoi(value);
    else if (strcmp(name, "--seconds") == 0)
        options.seconds = atof(value);
    else if (strcmp(name, "--bytes") == 0)
        options.bytes = parse_bytes(value);
    else
        return false;
    return true;
}

static void parse_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (strcmp(argv[i], "--table") == 0)
            options.is_table = true;
        else if (strcmp(argv[i], "--json") == 0)
            options.is_json = true;
        else if (i + 1 < argc && parse_valued(argv[i], argv[i + 1]))
            i++;
        else
            refuse(argv[i]);
    }
    if (options.threads < 1)
        options.threads = bench_team_cores();
    if (options.tokens < 1 || options.tokens > 512 || options.rounds < 1 ||
        options.rounds > MAX_ROUNDS || options.bytes < 1)
        refuse("a number out of range");
}

static bool is_integer(const struct kernel_row *row)
{
    return row->packing != PACKING_none && !packing_needs(row->packing, 0).is_float;
}

/* Speeds of a pass. */
static double per_second(double amount, double ns)
{
    return ns > 0 ? amount * 1e9 / ns : 0;
}

static double read_share(const struct subject *s)
{
    double best = limits_best_read(s->n_threads, NULL);
    return per_second((double)s->data->check.work.bytes_read, s->best_ns) / best;
}

/* isa: whose peak. */
static double peak_share(const struct subject *s, enum isa isa)
{
    double peak = limits_best_peak(isa, s->n_threads);
    bool has_peak = s->row->op == OP_matmul && is_integer(s->row) && peak > 0;
    return has_peak ? per_second((double)s->data->check.work.macs, s->best_ns) / peak : 0;
}

/* Kernels cannot read faster than memory: only the probe can be too slow. */
static int judge_probe(const struct subject *subjects, int n)
{
    int n_invalid = 0;
    for (int i = 0; i < n && options.bytes >= MEMORY_BYTES; i++)
        if (subjects[i].row && subjects[i].is_read_bound && read_share(&subjects[i]) > 1) {
            printf("INVALID: a kernel beats the probe: %s, %.1f %% of its bandwidth\n",
                   subjects[i].row->name, 100 * read_share(&subjects[i]));
            n_invalid++;
        }
    return n_invalid > 0;
}

static void print_subject(const struct subject *s)
{
    const struct workload *work = &s->data->check.work;
    double ns = subject_median_ns(s);
    const char *from = s->is_cached ? "cache" : "memory";
    const struct large *large = &s->data->large;
    if (options.is_json) {
        printf("{\"kernel\":\"%s\",\"op\":\"%s\",\"packing\":\"%s\",\"isa\":\"%s\",\"group\":%d,"
               "\"tokens\":%d,\"threads\":%d,\"from\":\"%s\",\"bytes\":%lld,\"ns\":%.0f,"
               "\"best_ns\":%.0f,\"units_per_s\":%.4g,\"gb_per_s\":%.4g,\"best_gb_per_s\":%.4g,"
               "\"read_share\":%.4f,\"peak_share\":%.4f,\"cpu\":\"%s\"}\n",
               s->row->name, op_name(s->row->op), packing_name(s->row->packing),
               isa_name(s->row->isa), large->group, large->n_tokens, s->n_threads, from,
               (long long)work->bytes_read, ns, s->best_ns, per_second((double)work->units, ns),
               per_second((double)work->bytes_read, ns) / 1e9,
               per_second((double)work->bytes_read, s->best_ns) / 1e9,
               s->is_read_bound ? read_share(s) : 0, peak_share(s, s->row->isa), cpu_name());
        return;
    }
    printf("%-28s %5d %6d  %-6s %12.0f %9.3f %8.2f %8.2f", s->row->name, large->group,
           large->n_tokens, from, ns, per_second((double)work->units, ns) / 1e9,
           per_second((double)work->bytes_read, ns) / 1e9,
           per_second((double)work->bytes_read, s->best_ns) / 1e9);
    if (s->is_read_bound)
        printf(" %6.1f %%", 100 * read_share(s));
    else
        printf(" %8s", "");
    if (peak_share(s, s->row->isa) > 0)
        printf(" %6.1f %%", 100 * peak_share(s, s->row->isa));
    printf("\n");
    fflush(stdout);
}

#define MAX_SUBJECTS 64

static bool is_wanted(const struct kernel_row *row)
{
    return cpu_has_isa(row->isa) && (!options.op || strcmp(options.op, op_name(row->op)) == 0) &&
           (!options.packing || strcmp(options.packing, packing_name(row->packing)) == 0) &&
           (!options.isa || strcmp(options.isa, isa_name(row->isa)) == 0);
}

static void add_subject(struct subject *subjects, int *n, struct data *all, int *n_data,
                        const struct kernel_row *row, bool is_cached)
{
    bool is_many = row->op == OP_matmul && options.tokens > 16;
    struct large large = {is_cached ? CACHED_BYTES * options.threads : options.bytes, N_COLS,
                          options.group, options.tokens, is_many ? MANY_TOKENS_ROWS : 0};
    struct data *data = data_of(all, n_data, row, &large);
    if (!data || *n == MAX_SUBJECTS)
        return;
    subjects[(*n)++] = (struct subject){.row = row,
                                        .data = data,
                                        .n_threads = options.threads,
                                        .is_cached = is_cached || is_many,
                                        .is_read_bound = !is_cached && !is_many};
}

/* The wanted rows of one op and packing: they share their data and take turns. */
static int list_rows(enum op op, enum packing packing)
{
    static struct subject subjects[MAX_SUBJECTS];
    static struct data data[4];
    int n = 0, n_data = 0;
    for (int i = 0; i < n_kernel_rows; i++) {
        const struct kernel_row *row = &kernel_rows[i];
        if (row->op != op || row->packing != packing || !is_wanted(row))
            continue;
        if (op != OP_matmul || options.tokens <= 16)
            add_subject(subjects, &n, data, &n_data, row, false);
        add_subject(subjects, &n, data, &n_data, row, true);
    }
    subjects_measure(subjects, n, options.rounds, options.seconds);
    for (int i = 0; i < n; i++)
        print_subject(&subjects[i]);
    int is_invalid = judge_probe(subjects, n);
    for (int i = 0; i < n_data; i++)
        check_done(&data[i].check);
    return is_invalid;
}

static void print_limits(void)
{
    const char *loop;
    double read = limits_best_read(options.threads, &loop);
    printf("%s, %d threads; reads at most %.2f GB/s (%s)", cpu_name(), options.threads, read / 1e9,
           loop);
    for (enum isa isa = ISA_scalar; isa < N_ISAS; isa++)
        if (limits_has_peak(isa))
            printf("; int8 at most %.0f G/s a core (%s)", limits_best_peak(isa, 1) / 1e9,
                   isa_name(isa));
    printf("\n%lld MB a pass, %d rounds\n", (long long)(options.bytes >> 20), options.rounds);
    if (options.bytes < MEMORY_BYTES)
        printf("small: not from memory, the shares mean nothing\n");
}

static int list_all(void)
{
    int is_invalid = 0;
    if (!options.is_json)
        printf("%-28s %5s %6s  %-6s %12s %9s %8s %8s %8s %8s\n", "kernel", "group", "tokens",
               "from", "ns", "G units/s", "GB/s", "best", "of read", "of peak");
    for (enum op op = 0; op < N_OPS; op++)
        for (enum packing packing = 0; packing < N_PACKINGS; packing++)
            is_invalid |= list_rows(op, packing);
    if (!options.is_json)
        print_limits();
    return is_invalid;
}

/* Packings of the table, each with one token from memory and with 256 and 512 on one core: name, text,
 * scales, packing, group, and the bars of read bandwidth and of the int8 peak. */
#define TABLE_PACKINGS(X)                                                                          \
    X(T4, "trits4", ", one scale per row", trits4, 0, 0.94, 0.88)                                  \
    X(T5, "trits5", ", one scale per row", trits5, 0, 0.94, 0.88)                                  \
    X(Q4_0, "Q4_0", "", q4_0, 32, 0.94, 0.68)                                                      \
    X(Q8_0, "Q8_0", "", q8_0, 32, 0.94, 0.68)                                                      \
    X(Q6_K, "Q6_K", "", q6_k, 256, 0.94, 0.68)                                                     \
    X(Q4_K, "Q4_K", "", q4_k, 256, 0.94, 0.60)                                                     \
    X(Q5_K, "Q5_K", "", q5_k, 256, 0.94, 0.60)                                                     \
    X(Q4_1, "Q4_1", "", q4_1, 32, 0.94, 0.60)                                                      \
    X(Q5_0, "Q5_0", "", q5_0, 32, 0.94, 0.60)                                                      \
    X(Q5_1, "Q5_1", "", q5_1, 32, 0.94, 0.60)                                                      \
    X(IQ4_NL, "IQ4_NL", "", iq4_nl, 32, 0.94, 0.60)                                                \
    X(Q2_K, "Q2_K", "", q2_k, 256, 0.94, 0.60)                                                     \
    X(Q3_K, "Q3_K", "", q3_k, 256, 0.94, 0.60)                                                     \
    X(IQ4_XS, "IQ4_XS", "", iq4_xs, 256, 0.94, 0.60)

/* What is timed. one_core: many tokens, else all cores and from memory. */
enum {
#define ONE(name, text, scales, packing, group, read, peak)  name,
#define MANY(name, text, scales, packing, group, read, peak) name##_256, name##_512,
    TABLE_PACKINGS(ONE) T4_128,
    T5_128,
    T4_2,
    T4_4,
    T4_AVX2,
    T4_VNNI,
    ATTENTION,
    TABLE_PACKINGS(MANY) T4_VNNI_256,
    N_WANTED
#undef ONE
#undef MANY
};

static const struct {
    enum op op;
    enum packing packing;
    int group, tokens;
    enum isa cap;
    bool is_one_core;
} wanted[N_WANTED] = {
#define ONE(name, text, scales, packing, group, read, peak)                                        \
    [name] = {OP_matmul, PACKING_##packing, group, 1, N_ISAS, false},
#define MANY(name, text, scales, packing, group, read, peak)                                       \
    [name##_256] = {OP_matmul, PACKING_##packing, group, 256, N_ISAS, true},                       \
    [name##_512] = {OP_matmul, PACKING_##packing, group, 512, N_ISAS, true},
    TABLE_PACKINGS(ONE) TABLE_PACKINGS(MANY)
#undef ONE
#undef MANY
        [T4_128] = {OP_matmul, PACKING_trits4, 128, 1, N_ISAS, false},
    [T5_128] = {OP_matmul, PACKING_trits5, 128, 1, N_ISAS, false},
    [T4_2] = {OP_matmul, PACKING_trits4, 0, 2, N_ISAS, false},
    [T4_4] = {OP_matmul, PACKING_trits4, 0, 4, N_ISAS, false},
    [T4_AVX2] = {OP_matmul, PACKING_trits4, 0, 1, ISA_avx2, false},
    [T4_VNNI] = {OP_matmul, PACKING_trits4, 0, 1, ISA_avxvnni, false},
    [ATTENTION] = {OP_attention, PACKING_none, 0, 1, N_ISAS, false},
    [T4_VNNI_256] = {OP_matmul, PACKING_trits4, 0, 256, ISA_avxvnni, true},
};

enum measure { OF_READ, OF_PEAK, OVER };

static const struct {
    const char *text;
    enum measure measure;
    int subject, other; /* OVER: weights per second of subject over those of other */
    double bar;
} lines[] = {
#define ONE(name, text, scales, packing, group, read, peak)                                        \
    {"matvec " text scales ": of read bandwidth", OF_READ, name, 0, read},
#define MANY(name, text, scales, packing, group, read, peak)                                       \
    {"matmul " text ", 256 tokens, one core: of int8 peak", OF_PEAK, name##_256, 0, peak},         \
        {"matmul " text ", 512 tokens, one core: of int8 peak", OF_PEAK, name##_512, 0, peak},
    TABLE_PACKINGS(ONE){"matvec trits4, per 128: of read bandwidth", OF_READ, T4_128, 0, 0.94},
    {"matvec trits5, per 128: of read bandwidth", OF_READ, T5_128, 0, 0.94},
    {"trits5 over trits4, weights/s, one scale per row", OVER, T5, T4, 1.18},
    {"trits5 over trits4, weights/s, per 128", OVER, T5_128, T4_128, 1.18},
    {"trits4, 2 tokens over 1, weights/s", OVER, T4_2, T4, 0.95},
    {"trits4, 4 tokens over 1, weights/s", OVER, T4_4, T4, 0.70},
    TABLE_PACKINGS(MANY)
#undef ONE
#undef MANY
        {"matvec trits4, AVX2: of read bandwidth", OF_READ, T4_AVX2, 0, 0.85},
    {"matvec trits4, AVX-VNNI: of read bandwidth", OF_READ, T4_VNNI, 0, 0.85},
    {"matmul trits4, AVX-VNNI, 256 tokens, one core: of int8 peak", OF_PEAK, T4_VNNI_256, 0, 0.80},
    {"attention, f16 KV, 4096 positions, 4 heads per KV head: of read", OF_READ, ATTENTION, 0,
     0.80},
};

static void print_line(int i, const struct subject *subjects)
{
    const struct subject *s = &subjects[lines[i].subject];
    if (!s->row || (lines[i].measure == OVER && !subjects[lines[i].other].row)) {
        if (!options.is_json)
            printf("%-64s %8s\n", lines[i].text, "absent");
        return;
    }
    double value = lines[i].measure == OVER
                       ? subject_ratio(s, &subjects[lines[i].other], options.rounds)
                       : subject_share(s);
    const char *verdict = value >= lines[i].bar ? "met" : "missed";
    if (options.is_json) {
        printf("{\"measure\":\"%s\",\"value\":%.4f,\"bar\":%.2f,\"verdict\":\"%s\","
               "\"kernel\":\"%s\",\"cpu\":\"%s\"}\n",
               lines[i].text, value, lines[i].bar, verdict, s->row->name, cpu_name());
        return;
    }
    bool is_ratio = lines[i].measure == OVER;
    printf(is_ratio ? "%-64s %8.3f   %6.2f   %-6s %s" : "%-64s %6.1f %%   %4.0f %%   %-6s %s",
           lines[i].text, is_ratio ? value : 100 * value,
           is_ratio ? lines[i].bar : 100 * lines[i].bar, verdict, s->row->name);
    if (lines[i].measure == OF_READ)
        printf(", median %.1f GB/s; best %.1f, %.1f %% of the best read",
               per_second((double)s->data->check.work.bytes_read, subject_median_ns(s)) / 1e9,
               per_second((double)s->data->check.work.bytes_read, s->best_ns) / 1e9,
               100 * read_share(s));
    printf("\n");
}

static int print_table(void)
{
    static struct subject subjects[N_WANTED];
    static struct data data[N_WANTED];
    int n_data = 0;
    for (int i = 0; i < N_WANTED; i++) {
        bool is_capped = wanted[i].cap < N_ISAS;
        const struct kernel_row *row =
            kernel_select(wanted[i].op, wanted[i].packing,
                          is_capped ? cpu_isa_within(wanted[i].cap) : cpu_best_isa());
        bool is_one_core = wanted[i].is_one_core;
        struct large large = {options.bytes, N_COLS, wanted[i].group, wanted[i].tokens,
                              is_one_core ? MANY_TOKENS_ROWS : 0};
        /* A scalar kernel would take minutes to say that it misses the bar. */
        bool is_absent = !row || (row->isa == ISA_scalar && cpu_best_isa() > ISA_scalar) ||
                         (is_capped && !cpu_has_isa(wanted[i].cap));
        struct data *own = is_absent ? NULL : data_of(data, &n_data, row, &large);
        if (!own)
            continue;
        subjects[i] = (struct subject){.row = row,
                                       .data = own,
                                       .n_threads = is_one_core ? 1 : options.threads,
                                       .is_capped = is_capped,
                                       .is_read_bound = !is_one_core};
    }
    subjects_measure(subjects, N_WANTED, options.rounds, options.seconds);
    if (!options.is_json) {
        print_limits();
        printf("%-64s %8s   %6s\n", "", "measured", "bar");
    }
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        print_line((int)i, subjects);
    int is_invalid = judge_probe(subjects, N_WANTED);
    for (int i = 0; i < n_data; i++)
        check_done(&data[i].check);
    return is_invalid;
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    bench_team_start(options.threads);
    limits_start(options.bytes);
    limits_read(options.threads, true);
    int status = options.is_table ? print_table() : list_all();
    limits_stop();
    bench_team_stop();
    return status;
}
