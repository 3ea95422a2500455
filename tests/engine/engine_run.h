/* What the tests of the engine share: models, engines and runs of tokens whose logits are all kept,
 * and measures of how far two sets of logits are apart. Every failure names `what` was run. */
#ifndef TRINE_TESTS_ENGINE_RUN_H
#define TRINE_TESTS_ENGINE_RUN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "base/random.h"
#include "engine/engine.h"
#include "reference/reference.h"

static inline void *test_alloc(size_t n, size_t size)
{
    void *block = calloc(n, size);
    assert_non_null(block);
    return block;
}

static inline void open_model(struct model *model, const char *path)
{
    struct error err;
    if (model_open(model, path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* A model that `trine synth` writes. */
static inline void open_synth(struct model *model, const char *name, const char *options)
{
    char file[80];
    snprintf(file, sizeof file, "%s.gguf", name);
    const char *path = scratch_path(file);
    struct outcome o = run_command("%s synth %s -o %s", build_path("trine"), options, path);
    if (o.status != 0)
        fail_msg("synth %s: %s", options, o.err);
    outcome_done(&o);
    open_model(model, path);
}

/* Shape tiny, projections, embedding and output of one type. */
static inline void open_tiny_arch(struct model *model, const char *arch, const char *type)
{
    char name[64], options[96];
    snprintf(name, sizeof name, "tiny-%s-%s", arch, type);
    snprintf(options, sizeof options, "--shape tiny --arch %s --type %s --biases", arch, type);
    open_synth(model, name, options);
}

static inline void open_tiny(struct model *model, const char *type)
{
    open_tiny_arch(model, "llama", type);
}

static inline struct engine *open_engine(const struct model *model,
                                         const struct engine_options *options)
{
    struct engine *engine;
    struct error err;
    if (engine_open(&engine, model, options, NULL, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return engine;
}

static inline struct session *open_session(struct engine *engine)
{
    struct session *session;
    struct error err;
    if (session_open(&session, engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return session;
}

/* Ids that are not special, the same for a seed. */
static inline void fill_tokens(int32_t *tokens, int n, int n_vocab, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    for (int i = 0; i < n; i++)
        tokens[i] = 3 + (int32_t)((random_bits(&random) >> 33) % (uint64_t)(n_vocab - 3));
}

/* Runs tokens in pieces of `cut`, at most 512, all of whose logits are wanted, into logits:
 * (n, n_vocab). */
static inline void run_pieces(struct engine *engine, struct session *session, int n_vocab,
                              const int32_t *tokens, int n, int cut, float *logits)
{
    struct engine_column columns[ENGINE_MAX_BATCH];
    for (int at = 0, piece; at < n; at += piece) {
        piece = n - at < cut ? n - at : cut;
        for (int i = 0; i < piece; i++)
            columns[i] = (struct engine_column){session, tokens[at + i], true};
        const float *out = engine_forward(engine, columns, piece);
        memcpy(logits + (size_t)at * (size_t)n_vocab, out,
               (size_t)piece * (size_t)n_vocab * sizeof *out);
    }
}

/* Logits of all tokens in pieces of `cut` by an engine of its own: (n, n_vocab), to be freed.
 * options: n_batch, n_logits and n_ctx are set here where they are 0. */
static inline float *run_engine(const struct model *model, struct engine_options options,
                                const int32_t *tokens, int n, int cut)
{
    int n_vocab = model->config.n_vocab;
    options.n_ctx = options.n_ctx ? options.n_ctx : n;
    options.n_batch = options.n_batch ? options.n_batch : cut;
    options.n_logits = options.n_logits ? options.n_logits : cut;
    struct engine *engine = open_engine(model, &options);
    struct session *session = open_session(engine);
    float *logits = test_alloc((size_t)n * (size_t)n_vocab, sizeof *logits);
    run_pieces(engine, session, n_vocab, tokens, n, cut, logits);
    assert_int_equal(session_position(session), n);
    session_close(session);
    engine_close(engine);
    return logits;
}

/* The same by the plain forward pass, whose cache is rounded as the engine's. */
static inline float *run_reference(const struct model *model, bool kv_f16, const int32_t *tokens,
                                   int n)
{
    struct reference_options options = {.n_ctx = n, .max_batch = n, .kv_f16 = kv_f16};
    struct reference *reference;
    struct error err;
    if (reference_open(&reference, model, &options, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    float *logits = test_alloc((size_t)n * (size_t)model->config.n_vocab, sizeof *logits);
    reference_forward(reference, tokens, n, logits, n);
    reference_close(reference);
    return logits;
}

static inline int best_of(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Bit for bit, so that two NaN of different signs or two zeros would show; NaN itself fails. */
static inline void expect_same_bits(const float *a, const float *b, int n_rows, int n_vocab,
                                    const char *what)
{
    for (int row = 0; row < n_rows; row++)
        for (int i = 0; i < n_vocab; i++) {
            size_t at = (size_t)row * (size_t)n_vocab + (size_t)i;
            if (memcmp(a + at, b + at, sizeof *a) != 0 || !isfinite(a[at]))
                fail_msg("%s: row %d, logit %d is %.9g, expected %.9g", what, row, i, a[at], b[at]);
        }
}

static inline double worst_difference(const float *a, const float *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        worst = d <= worst ? worst : d; /* NaN is worst */
    }
    return worst;
}

static inline double log_sum_exp(const float *logits, int n)
{
    double highest = logits[best_of(logits, n)], sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(logits[i] - highest);
    return highest + log(sum);
}

/* How far logits are from those expected. */
struct distance {
    double deviation; /* of the expected logits about the mean of their row */
    double max, rms;  /* of the differences */
    double kl;        /* mean over rows of KL(logits || expected), nats */
    int n_best;       /* rows whose best token is the same */
};

static inline struct distance distance_of(const float *logits, const float *expected, int n_rows,
                                          int n_vocab)
{
    struct distance d = {0};
    int n_all = n_rows * n_vocab;
    d.max = worst_difference(logits, expected, n_all);
    for (int row = 0; row < n_rows; row++, logits += n_vocab, expected += n_vocab) {
        double a = log_sum_exp(logits, n_vocab), b = log_sum_exp(expected, n_vocab), sum = 0;
        for (int i = 0; i < n_vocab; i++)
            sum += expected[i];
        for (int i = 0; i < n_vocab; i++) {
            double log_p = logits[i] - a, log_q = expected[i] - b;
            d.kl += exp(log_p) * (log_p - log_q) / n_rows;
            d.rms += pow((double)logits[i] - expected[i], 2) / n_all;
            d.deviation += pow(expected[i] - sum / n_vocab, 2) / n_all;
        }
        d.n_best += best_of(logits, n_vocab) == best_of(expected, n_vocab);
    }
    d.rms = sqrt(d.rms);
    d.deviation = sqrt(d.deviation);
    return d;
}

#endif
