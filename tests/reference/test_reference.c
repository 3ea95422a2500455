/* The reference on models written on the spot: no file from elsewhere is needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../fixture.h"
#include "../support.h"
#include "base/memory.h"
#include "model/model_load.h"
#include "reference/reference.h"

#define N_TOKENS 20

static struct model model;

static void tokens_of(int32_t tokens[N_TOKENS])
{
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 53 + 11) % model.config.n_vocab;
}

/* Logits of all positions when the tokens come in pieces of `cut`. */
static float *logits_in_pieces(int cut, bool kv_f16)
{
    struct reference_options options = {.n_ctx = N_TOKENS, .max_batch = cut, .kv_f16 = kv_f16};
    struct reference *ref;
    size_t n_vocab = (size_t)model.config.n_vocab;
    float *logits = malloc(N_TOKENS * n_vocab * sizeof *logits);
    int32_t tokens[N_TOKENS];
    tokens_of(tokens);
    assert_int_equal(reference_open(&ref, &model, &options, NULL), STATUS_OK);
    for (int at = 0; at < N_TOKENS; at += cut) {
        int n = N_TOKENS - at < cut ? N_TOKENS - at : cut;
        reference_forward(ref, tokens + at, n, logits + (size_t)at * n_vocab, n);
    }
    assert_int_equal(reference_position(ref), N_TOKENS);
    reference_close(ref);
    return logits;
}

static void test_cut_changes_nothing(void **state)
{
    (void)state;
    float *whole = logits_in_pieces(N_TOKENS, false);
    size_t bytes = N_TOKENS * (size_t)model.config.n_vocab * sizeof *whole;
    for (int cut = 1; cut < N_TOKENS; cut += 3) {
        float *pieces = logits_in_pieces(cut, false);
        assert_memory_equal(whole, pieces, bytes);
        free(pieces);
    }
    free(whole);
}

static void test_rewind(void **state)
{
    (void)state;
    struct reference_options options = {.n_ctx = N_TOKENS, .max_batch = N_TOKENS};
    struct reference *ref;
    int32_t tokens[N_TOKENS];
    size_t n_vocab = (size_t)model.config.n_vocab;
    float *first = malloc(n_vocab * sizeof *first), *again = malloc(n_vocab * sizeof *again);
    tokens_of(tokens);
    assert_int_equal(reference_open(&ref, &model, &options, NULL), STATUS_OK);
    reference_forward(ref, tokens, 10, first, 1);
    reference_forward(ref, tokens + 10, 5, NULL, 0);
    reference_rewind(ref, 9);
    reference_forward(ref, tokens + 9, 1, again, 1);
    assert_memory_equal(first, again, n_vocab * sizeof *first);
    reference_close(ref);
    free(first);
    free(again);
}

/* A half-precision cache rounds, a little. */
static void test_cache_f16(void **state)
{
    (void)state;
    float *f32 = logits_in_pieces(N_TOKENS, false), *f16 = logits_in_pieces(N_TOKENS, true);
    double worst = 0;
    for (size_t i = 0; i < N_TOKENS * (size_t)model.config.n_vocab; i++)
        worst = fmax(worst, fabs((double)f32[i] - f16[i]));
    assert_true(worst > 0);
    assert_true(worst < 0.05 * 256); /* logits of this model reach 256 */
    free(f32);
    free(f16);
}

/* The whole pass once more in double, written out for one token at position 0: there attention
 * returns v itself, and RoPE turns nothing. */
static void multiply(const struct weight *w, const double *x, double *out)
{
    float *row = malloc((size_t)w->tensor.n_cols * sizeof *row);
    for (int64_t r = 0; r < w->tensor.n_rows; r++) {
        tensor_decode(&w->tensor, r, r + 1, row);
        out[r] = 0;
        for (int64_t i = 0; i < w->tensor.n_cols; i++)
            out[r] += row[i] * x[i];
    }
    free(row);
}

static void norm(const double *x, const float *gain, int n, double *out)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        out[i] = x[i] / sqrt(sum / n + model.config.norm_epsilon) * gain[i];
}

static void test_first_token_by_hand(void **state)
{
    (void)state;
    double x[256], a[256], v[128], heads[256], o[256], gate[512], up[512], logits[320];
    float row[256], expected[320];
    int32_t token = 77;
    tensor_decode(&model.weights.token_embd.tensor, token, token + 1, row);
    for (int i = 0; i < 256; i++)
        x[i] = row[i];
    for (int l = 0; l < model.config.n_layer; l++) {
        const struct layer_weights *w = &model.weights.layers[l];
        norm(x, w->attn_norm, 256, a);
        multiply(&w->attn_v, a, v);
        for (int h = 0; h < 4; h++)
            memcpy(heads + 64 * h, v + 64 * (h / 2), 64 * sizeof *v);
        multiply(&w->attn_output, heads, o);
        for (int i = 0; i < 256; i++)
            x[i] += o[i];
        norm(x, w->ffn_norm, 256, a);
        multiply(&w->ffn_gate, a, gate);
        multiply(&w->ffn_up, a, up);
        for (int i = 0; i < 512; i++)
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        multiply(&w->ffn_down, gate, o);
        for (int i = 0; i < 256; i++)
            x[i] += o[i];
    }
    norm(x, model.weights.output_norm, 256, a);
    multiply(&model.weights.output, a, logits);

    struct reference_options options = {.n_ctx = 1, .max_batch = 1};
    struct reference *ref;
    assert_int_equal(reference_open(&ref, &model, &options, NULL), STATUS_OK);
    reference_forward(ref, &token, 1, expected, 1);
    for (int i = 0; i < model.config.n_vocab; i++)
        if (!(fabs(expected[i] - logits[i]) < 1e-4 * (1 + fabs(logits[i]))))
            fail_msg("logit %d is %g, by hand %g", i, expected[i], logits[i]);
    reference_close(ref);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct reference_options options = {.n_ctx = 8, .max_batch = 1};
    struct reference *ref;
    struct error err;
    for (long n = 0; n < 2; n++) {
        memory_fail_after(n);
        enum status status = reference_open(&ref, &model, &options, &err);
        memory_fail_after(-1);
        assert_int_equal(status, STATUS_MEMORY);
    }
    assert_true(reference_bytes(&model.config, &options) > 2 * 2 * 8 * 128 * sizeof(float));
}

static int open_model(void **state)
{
    (void)state;
    static const char *const chain[] = {"one", " two", " three"};
    const char *path = scratch_path("reference.gguf");
    fixture_write(path, &(struct fixture){.chain = chain, .n_chain = 3, .real_output = true});
    return model_open(&model, path, NULL) != STATUS_OK;
}

static int close_model(void **state)
{
    (void)state;
    model_close(&model);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_changes_nothing), cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_cache_f16),           cmocka_unit_test(test_first_token_by_hand),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
