/* `trine convert`: folders that transformers saved, with its logits and its tokens; folders written
 * here, with every value; what is refused. */
#include <math.h>
#include <unistd.h>

#include "../convert/folder.h"
#include "gguf/gguf_metadata.h"
#include "model/model_load.h"
#include "reference/reference.h"
#include "tokenizer/tokenizer.h"

static const char *trine;

/* Converts a folder; what it said goes to *said, freed by the caller, unless that is NULL. */
static const char *convert(const char *dir, const char *options, char **said)
{
    const char *out = scratch_path("converted.gguf");
    struct outcome o = run_command("%s convert %s %s %s", trine, dir, out, options);
    if (o.status != 0)
        fail_msg("%s %s: %s", dir, options, o.err);
    assert_int_equal(o.out_bytes, 0);
    assert_non_null(strstr(o.err, "every value compared"));
    if (said) {
        *said = o.err;
        o.err = NULL;
    }
    outcome_done(&o);
    return out;
}

static json_t *load_expected(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/expected.json", dir);
    json_t *expected = json_load_file(path, 0, NULL);
    assert_non_null(expected);
    return expected;
}

/* Largest difference of the reference's logits to those of the JSON. */
static double compare_logits(const char *path, const json_t *expected)
{
    enum { MOST = 16 };
    struct model model;
    struct reference *ref;
    struct error err;
    const json_t *tokens = json_object_get(expected, "tokens");
    const json_t *rows = json_object_get(expected, "logits");
    int n = (int)json_array_size(tokens);
    int32_t ids[MOST];
    if (model_open(&model, path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_in_range(n, 1, MOST);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
    struct reference_options options = {.n_ctx = MOST, .max_batch = MOST};
    assert_int_equal(reference_open(&ref, &model, &options, NULL), STATUS_OK);
    int n_vocab = model.config.n_vocab;
    float *logits = malloc(sizeof *logits * (size_t)(n * n_vocab));
    reference_forward(ref, ids, n, logits, n);
    double largest = 0;
    for (int t = 0; t < n; t++)
        for (int i = 0; i < n_vocab; i++) {
            const json_t *row = json_array_get(rows, (size_t)t);
            assert_int_equal(json_array_size(row), n_vocab);
            double d =
                fabs(logits[t * n_vocab + i] - json_number_value(json_array_get(row, (size_t)i)));
            largest = d > largest ? d : largest;
        }
    free(logits);
    reference_close(ref);
    model_close(&model);
    return largest;
}

static void compare_tokens(const char *dir, const char *path, const json_t *expected)
{
    struct gguf_file file;
    struct tokenizer *tokenizer;
    const json_t *texts = json_object_get(expected, "texts");
    assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
    assert_int_equal(tokenizer_open(&tokenizer, &file, path, NULL, NULL), STATUS_OK);
    assert_true(json_array_size(texts) >= 4);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *item = json_array_get(texts, i), *ids = json_object_get(item, "ids");
        const char *text = json_string_value(json_object_get(item, "text"));
        struct token_list list = {0};
        assert_int_equal(tokenizer_encode(tokenizer, text_of(text), true, true, &list, NULL),
                         STATUS_OK);
        bool is_equal = list.n == json_array_size(ids);
        for (size_t k = 0; is_equal && k < list.n; k++)
            is_equal = list.ids[k] == json_integer_value(json_array_get(ids, k));
        if (!is_equal)
            fail_msg("%s: other tokens for '%s'", dir, text);
        token_list_done(&list);
    }
    tokenizer_close(tokenizer);
    gguf_close(&file);
}

/* The folders of scripts/make_convert_data.py. */
static const struct {
    const char *name, *options, *said[3];
} folders[] = {
    {"llama", "", {"16 ordinary matrices to BF16", "llama-bpe, 288 tokens, with chat"}},
    {"qwen2", "", {"15 ordinary matrices to F16", "2 rows of the embedding without one"}},
    {"qwen3",
     "",
     {"6 matrices that were ternary already to IQ2_BN",
      "1 matrices that were ternary already to BF16, because no ternary type", "qwen2, 288"}},
    {"llama-packed",
     "",
     {"bitlinear, which divides by weight_scale", "12 packed ternary matrices to IQ2_BN",
      "SentencePiece, 300 tokens"}},
    {"bitnet-packed",
     "",
     {"autobitlinear, which multiplies by weight_scale", "2 packed ternary matrices to I2_S"}},
    {"bitnet-online",
     "--make-ternary",
     {"rounds these weights when it runs", "7 matrices MADE ternary"}},
};
#define N_FOLDERS (sizeof folders / sizeof folders[0])

static void test_folders_of_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FOLDERS; i++) {
        char dir[128], *said;
        snprintf(dir, sizeof dir, "tests/convert/data/%s", folders[i].name);
        const char *path = convert(dir, folders[i].options, &said);
        for (int k = 0; k < 3 && folders[i].said[k]; k++)
            if (!strstr(said, folders[i].said[k]))
                fail_msg("%s: '%s' is not in: %s", dir, folders[i].said[k], said);
        json_t *expected = load_expected(dir);
        double largest = compare_logits(path, expected);
        print_message("%-14s logits within %.2g\n", folders[i].name, largest);
        if (!(largest < 1e-5))
            fail_msg("%s: logits differ by %g", dir, largest);
        compare_tokens(dir, path, expected);
        json_decref(expected);
        free(said);
    }
}

/* The same numbers in other types; what F16 rounds of BF16 numbers this small is little. */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type, *said;
        double bound;
    } cases[] = {
        {"llama", "F32", "16 ordinary matrices to F32", 1e-5},
        {"llama", "f16", "16 ordinary matrices to F16", 1e-3},
        {"qwen3", "keep", "7 matrices that were ternary already to BF16", 1e-5},
        {"qwen3", "BF16", "7 matrices that were ternary already to BF16", 1e-5},
        {"llama-packed", "keep", "12 packed ternary matrices to IQ2_BN", 1e-5},
        {"llama-packed", "F32", "14 packed ternary matrices to F32", 1e-5},
        {"bitnet-packed", "IQ2_BN", "14 packed ternary matrices to IQ2_BN", 1e-5},
        {"bitnet-packed", "IQ1_BN", "14 packed ternary matrices to IQ1_BN", 1e-5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char dir[128], options[64], *said;
        snprintf(dir, sizeof dir, "tests/convert/data/%s", cases[i].name);
        snprintf(options, sizeof options, "--type %s", cases[i].type);
        const char *path = convert(dir, options, &said);
        if (!strstr(said, cases[i].said))
            fail_msg("%s %s: %s", dir, options, said);
        json_t *expected = load_expected(dir);
        double largest = compare_logits(path, expected);
        if (!(largest < cases[i].bound))
            fail_msg("%s %s: logits differ by %g", dir, options, largest);
        json_decref(expected);
        free(said);
    }
}

static void test_metadata(void **state)
{
    (void)state;
    struct gguf_file file;
    struct text text;
    int64_t id = -1;
    const char *path = convert("tests/convert/data/llama", "", NULL);
    assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
    assert_int_equal(gguf_string(&file, "general.name", &text, NULL), STATUS_OK);
    assert_true(text_is(text, "llama"));
    assert_int_equal(gguf_string(&file, "tokenizer.chat_template", &text, NULL), STATUS_OK);
    assert_true(text_starts(text, "{% for m in messages %}"));
    assert_int_equal(gguf_integer(&file, "tokenizer.ggml.bos_token_id", 0, 999, &id, NULL), 0);
    assert_int_equal(id, 285);
    assert_int_equal(gguf_integer(&file, "tokenizer.ggml.eos_token_id", 0, 999, &id, NULL), 0);
    assert_int_equal(id, 286);
    assert_non_null(gguf_find_tensor(&file, "rope_freqs.weight"));
    gguf_close(&file);
}

/* A folder written here: one layer, heads of 64, width 256, feed-forward 512. */
enum { WIDTH = 256, N_FF = 512, N_VOCAB = 8 };

static const char config[] =
    "{\"architectures\":[\"%s\"],\"model_type\":\"llama\",\"hidden_size\":256,"
    "\"intermediate_size\":512,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":8,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true%s}";

static const char vocabulary[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":"
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]},\"added_tokens\":[]}";

static const struct {
    const char *name, *gguf;
    int rows, cols;
    bool is_turned;
} projections[] = {
    {"self_attn.q_proj", "attn_q", WIDTH, WIDTH, true},
    {"self_attn.k_proj", "attn_k", WIDTH, WIDTH, true},
    {"self_attn.v_proj", "attn_v", WIDTH, WIDTH, false},
    {"self_attn.o_proj", "attn_output", WIDTH, WIDTH, false},
    {"mlp.gate_proj", "ffn_gate", N_FF, WIDTH, false},
    {"mlp.up_proj", "ffn_up", N_FF, WIDTH, false},
    {"mlp.down_proj", "ffn_down", WIDTH, N_FF, false},
};
#define N_PROJECTIONS 7

/* The ternary weight of a matrix. */
static int ternary(int matrix, int row, int col)
{
    return (matrix * 7 + row * 5 + col * 11 + row * col % 13) % 3 - 1;
}

struct shape {
    bool is_packed, has_scale, has_extra, has_code_3;
    bool is_1bit; /* norms of class BitnetForCausalLM, and tables of angles */
    float copied; /* not 0: an output matrix beside the embedding, whose unit is 0.25 */
    float scale;  /* weight_scale; of floats: the magnitude */
    float noise;  /* added to one float weight of each matrix */
};

static void add_floats(struct tensor_file *f, const char *name, int rows, int cols, float value)
{
    float *values = malloc(sizeof *values * (size_t)rows * (size_t)(cols ? cols : 1));
    for (int i = 0; i < rows * (cols ? cols : 1); i++)
        values[i] = value * (float)(cols ? 1 + i % 5 : 1);
    add_tensor(f, name, "F32", (uint64_t)rows, (uint64_t)cols, values,
               sizeof *values * (size_t)rows * (size_t)(cols ? cols : 1));
    free(values);
}

/* byte (k, col) holds rows k, k + R, k + 2R, k + 3R in bits 1:0, 3:2, 5:4, 7:6 */
static void add_packed(struct tensor_file *f, const char *name, int matrix, bool has_code_3)
{
    int quarter = projections[matrix].rows / 4, cols = projections[matrix].cols;
    uint8_t *bytes = calloc(1, (size_t)quarter * (size_t)cols);
    for (int r = 0; r < projections[matrix].rows; r++)
        for (int c = 0; c < cols; c++)
            bytes[r % quarter * cols + c] |=
                (uint8_t)((ternary(matrix, r, c) + 1) << r / quarter * 2);
    if (has_code_3)
        bytes[5] |= 3 << 2;
    add_tensor(f, name, "U8", (uint64_t)quarter, (uint64_t)cols, bytes,
               (size_t)quarter * (size_t)cols);
    free(bytes);
}

static void add_projection(struct tensor_file *f, int matrix, const struct shape *s)
{
    int rows = projections[matrix].rows, cols = projections[matrix].cols;
    char name[96];
    snprintf(name, sizeof name, "model.layers.0.%s.weight", projections[matrix].name);
    if (s->is_packed) {
        add_packed(f, name, matrix, s->has_code_3);
        snprintf(name, sizeof name, "model.layers.0.%s.weight_scale", projections[matrix].name);
        if (s->has_scale)
            add_tensor(f, name, "F32", 1, 0, &s->scale, sizeof s->scale);
        return;
    }
    float *values = malloc(sizeof *values * (size_t)rows * (size_t)cols);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            values[r * cols + c] = (float)ternary(matrix, r, c) * s->scale;
    values[3 * cols + 7] += s->noise;
    add_tensor(f, name, "F32", (uint64_t)rows, (uint64_t)cols, values,
               sizeof *values * (size_t)rows * (size_t)cols);
    free(values);
}

/* Writes the folder; more: members of config.json. */
static const char *write_folder(const char *more, const struct shape *s)
{
    static struct tensor_file f;
    char text[2048];
    add_floats(&f, "model.embed_tokens.weight", N_VOCAB, WIDTH, 0.25f);
    add_floats(&f, "model.norm.weight", WIDTH, 0, 1);
    add_floats(&f, "model.layers.0.input_layernorm.weight", WIDTH, 0, 1);
    add_floats(&f, "model.layers.0.post_attention_layernorm.weight", WIDTH, 0, 1);
    for (int i = 0; i < N_PROJECTIONS; i++)
        add_projection(&f, i, s);
    if (s->is_1bit) {
        add_floats(&f, "model.layers.0.self_attn.inner_attn_ln.weight", WIDTH, 0, 2);
        add_floats(&f, "model.layers.0.mlp.ffn_layernorm.weight", N_FF, 0, 3);
        add_floats(&f, "model.layers.0.self_attn.rotary_emb.inv_freq", 32, 0, 1);
    }
    if (s->copied != 0)
        add_floats(&f, "lm_head.weight", N_VOCAB, WIDTH, s->copied);
    if (s->has_extra)
        add_floats(&f, "model.layers.0.self_attn.q_proj.lora", 4, 0, 1);
    write_tensors(&f, in_folder("made", "model.safetensors"));
    snprintf(text, sizeof text, config, s->is_1bit ? "BitnetForCausalLM" : "LlamaForCausalLM",
             more);
    write_text(in_folder("made", "config.json"), text);
    write_text(in_folder("made", "tokenizer.json"), vocabulary);
    return scratch_path("made");
}

/* All projections of the file are the ternary weights times a factor, in the order of GGUF: of heads
 * of 64 rows, row i of a pair and row i + 32 stand side by side where `llama` turns them. */
static void expect_values(const char *path, float factor, enum format_id format)
{
    struct gguf_file file;
    static float row[N_FF];
    assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
    for (int m = 0; m < N_PROJECTIONS; m++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.%s.weight", projections[m].gguf);
        const struct gguf_tensor *g = gguf_find_tensor(&file, name);
        assert_non_null(g);
        struct tensor t = model_tensor(g);
        assert_int_equal(t.format, format);
        assert_int_equal(t.n_rows, projections[m].rows);
        for (int r = 0; r < t.n_rows; r++) {
            int pair = r % 64 / 2, half = r % 2;
            int from = projections[m].is_turned ? r / 64 * 64 + half * 32 + pair : r;
            tensor_decode(&t, r, r + 1, row);
            for (int c = 0; c < t.n_cols; c++)
                if (row[c] != (float)ternary(m, from, c) * factor)
                    fail_msg("%s: row %d, column %d is %g", name, r, c, (double)row[c]);
        }
    }
    gguf_close(&file);
}

#define MULTIPLIES                                                                                 \
    ",\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\"}"
#define DIVIDES ",\"quantization_config\":{\"quant_method\":\"bitnet\"}"
#define ONLINE                                                                                     \
    ",\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\","    \
    "\"quantization_mode\":\"online\"}"

/* One packed folder, two configurations: the scale multiplies or divides. 1/3 is no f16 number. */
static void test_packed_values(void **state)
{
    (void)state;
    const struct shape powers = {.is_packed = true, .has_scale = true, .scale = 4};
    const struct shape thirds = {.is_packed = true, .has_scale = true, .scale = 3};
    expect_values(convert(write_folder(MULTIPLIES, &powers), "", NULL), 4, FORMAT_TQ2_0);
    expect_values(convert(write_folder(DIVIDES, &powers), "", NULL), 0.25f, FORMAT_TQ2_0);
    expect_values(convert(write_folder(MULTIPLIES, &thirds), "", NULL), 3, FORMAT_TQ2_0);
    expect_values(convert(write_folder(DIVIDES, &thirds), "", NULL), 1 / 3.0f, FORMAT_I2_S);
    expect_values(convert(write_folder(DIVIDES, &thirds), "-t IQ2_BN", NULL), 1 / 3.0f,
                  FORMAT_IQ2_BN);
    expect_values(convert(write_folder(DIVIDES, &thirds), "-t F32", NULL), 1 / 3.0f, FORMAT_F32);
}

/* Floats that are ternary stay so; those that are nearly so stay floats unless the caller asks. */
static void test_float_values(void **state)
{
    (void)state;
    char *said;
    const struct shape exact = {.scale = 0.5f}, rough = {.scale = 0.1f};
    expect_values(convert(write_folder("", &exact), "", NULL), 0.5f, FORMAT_TQ2_0);
    expect_values(convert(write_folder("", &exact), "--make-ternary", &said), 0.5f, FORMAT_TQ2_0);
    assert_null(strstr(said, "MADE"));
    free(said);
    expect_values(convert(write_folder("", &rough), "", NULL), 0.1f, FORMAT_I2_S);
    expect_values(convert(write_folder("", &exact), "-t keep", NULL), 0.5f, FORMAT_F32);
    expect_values(convert(write_folder(ONLINE, &exact), "", NULL), 0.5f, FORMAT_TQ2_0);
    const struct shape noisy = {.scale = 0.5f, .noise = 0.01f};
    const char *path = convert(write_folder("", &noisy), "", &said);
    assert_non_null(strstr(said, "ordinary matrices to F32"));
    assert_null(strstr(said, "ternary"));
    free(said);
    free(read_whole(path, NULL));
}

/* g = mean |W| by hand: -0.61, 0.19, 0.6, 0.19 in turn have 0.3975, so 0.6 and 0.61 become 1 (1.51
 * and 1.53, rounded to 2 and clamped) and 0.19 becomes 0 (0.478), times g. */
static void test_made_by_the_mean(void **state)
{
    (void)state;
    struct gguf_file file;
    char *said;
    float row[WIDTH];
    static struct tensor_file f;
    const struct shape noisy = {.scale = 0.5f, .noise = 0.01f};
    write_folder("", &noisy);
    static float values[N_FF * WIDTH];
    for (int i = 0; i < N_FF * WIDTH; i++)
        values[i] = i % 2 ? 0.19f : i % 4 ? 0.6f : -0.61f;
    add_floats(&f, "model.embed_tokens.weight", N_VOCAB, WIDTH, 0.25f);
    add_floats(&f, "model.norm.weight", WIDTH, 0, 1);
    add_floats(&f, "model.layers.0.input_layernorm.weight", WIDTH, 0, 1);
    add_floats(&f, "model.layers.0.post_attention_layernorm.weight", WIDTH, 0, 1);
    for (int i = 0; i < N_PROJECTIONS; i++) {
        char name[96];
        size_t n = (size_t)projections[i].rows * (size_t)projections[i].cols * sizeof(float);
        snprintf(name, sizeof name, "model.layers.0.%s.weight", projections[i].name);
        add_tensor(&f, name, "F32", (uint64_t)projections[i].rows, (uint64_t)projections[i].cols,
                   values, n);
    }
    write_tensors(&f, in_folder("made", "model.safetensors"));
    const char *path = convert(scratch_path("made"), "--make-ternary", &said);
    assert_non_null(strstr(said, "7 matrices MADE ternary"));
    assert_non_null(strstr(said, "blk.*.ffn_down"));
    free(said);
    assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
    struct tensor t = model_tensor(gguf_find_tensor(&file, "blk.0.attn_v.weight"));
    tensor_decode(&t, 17, 18, row);
    for (int i = 0; i < WIDTH; i++) {
        double expected = (i % 2 ? 0 : i % 4 ? 1 : -1) * (0.19 * 2 + 0.6 + 0.61) / 4;
        assert_true(fabs(row[i] - expected) < 1e-6);
    }
    gguf_close(&file);
}

static float first_value(const struct gguf_file *file, const char *name)
{
    const struct gguf_tensor *g = gguf_find_tensor(file, name);
    assert_non_null(g);
    assert_int_equal(g->span.format, FORMAT_F32);
    float value;
    memcpy(&value, g->data, sizeof value);
    return value;
}

/* 1bitLLM's class: its names of norms, no turned rows, tables of angles and a copy of the embedding
 * left out. */
static void test_1bit_class(void **state)
{
    (void)state;
    struct gguf_file file;
    char *said;
    const struct shape shape = {.scale = 0.5f, .is_1bit = true, .copied = 0.25f};
    const char *dir = write_folder(",\"weight_bits\":1", &shape);
    const char *path = convert(dir, "", &said);
    assert_non_null(strstr(said, "rounds these weights when it runs"));
    assert_non_null(strstr(said, "rotary_emb.inv_freq"));
    assert_non_null(strstr(said, "7 matrices that were ternary already to TQ2_0"));
    free(said);
    assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
    assert_true(first_value(&file, "blk.0.attn_sub_norm.weight") == 2);
    assert_true(first_value(&file, "blk.0.ffn_sub_norm.weight") == 3);
    assert_null(gguf_find_tensor(&file, "output.weight"));
    float row[WIDTH];
    struct tensor t = model_tensor(gguf_find_tensor(&file, "blk.0.attn_q.weight"));
    tensor_decode(&t, 1, 2, row);
    for (int c = 0; c < WIDTH; c++)
        assert_true(row[c] == (float)ternary(0, 1, c) * 0.5f);
    gguf_close(&file);
}

static void expect_refused(const char *dir, const char *options, int status, const char *word)
{
    const char *out = scratch_path("refused.gguf");
    struct outcome o = run_command("%s convert %s %s %s", trine, dir, out, options);
    const char *end = strchr(o.err, '\n');
    if (o.status != status || !strstr(o.err, word) || !end || end[1])
        fail_msg("%s %s: expected '%s', status %d: %s", dir, options, word, o.status, o.err);
    outcome_done(&o);
    assert_int_not_equal(access(out, F_OK), 0);
    o = run_command("ls %s | grep part ; true", scratch_path(""));
    assert_string_equal(o.out, "");
    outcome_done(&o);
}

static void test_weights_are_refused(void **state)
{
    (void)state;
    const struct shape packed = {.is_packed = true, .has_scale = true, .scale = 3};
    const struct shape unscaled = {.is_packed = true};
    const struct shape zero = {.is_packed = true, .has_scale = true, .scale = 0};
    const struct shape damaged = {
        .is_packed = true, .has_scale = true, .scale = 4, .has_code_3 = true};
    const struct shape noisy = {.scale = 0.5f, .noise = 0.01f};
    const struct shape endless = {.scale = 0.5f, .noise = INFINITY};
    const struct shape extra = {.scale = 0.5f, .has_extra = true};
    expect_refused(write_folder("", &packed), "", 1, "multiplies or divides is not known");
    expect_refused(write_folder(ONLINE, &packed), "", 1, "multiplies or divides is not known");
    expect_refused(write_folder(DIVIDES, &unscaled), "", 1, "cannot be guessed");
    expect_refused(write_folder(DIVIDES, &zero), "", 1, "expected a scale above 0");
    expect_refused(write_folder(DIVIDES, &damaged), "", 1, "code 3");
    expect_refused(write_folder(DIVIDES, &packed), "-t TQ2_0", 1, "0.333333343");
    expect_refused(write_folder(DIVIDES, &noisy), "", 1, "expected packed codes");
    expect_refused(write_folder(ONLINE, &noisy), "", 1, "give --make-ternary");
    expect_refused(write_folder("", &noisy), "-t TQ2_0", 1, "is ternary");
    expect_refused(write_folder("", &endless), "", 1, "row 3, column 7");
    const struct shape untied = {.scale = 0.5f, .copied = 0.5f};
    expect_refused(write_folder("", &untied), "", 1, "'lm_head.weight' is another one");
    expect_refused(write_folder("", &extra), "", 1, "self_attn.q_proj.lora");
    expect_refused(write_folder(",\"attention_bias\":true", &noisy), "", 1, "q_proj.bias");
    expect_refused(write_folder(",\"num_key_value_heads\":2", &noisy), "", 1, "k_proj.weight");
}

static void test_folders_are_refused(void **state)
{
    (void)state;
    const struct shape exact = {.scale = 0.5f};
    const char *dir = write_folder("", &exact);
    const char *json = in_folder("made", "tokenizer.json");
    expect_refused(scratch_path("nowhere"), "", 1, "config.json");
    expect_refused(in_folder("made", "config.json"), "", 1, "config.json");
    write_text(json, "{\"pre_tokenizer\":null,\"model\":{\"type\":\"BPE\"}}");
    expect_refused(dir, "", 1, "needs tokenizer.model");
    write_text(json, "{");
    expect_refused(dir, "", 1, "tokenizer.json: line 1");
    remove(json);
    expect_refused(dir, "", 1, "neither tokenizer.json nor tokenizer.model");
    write_text(json, vocabulary);
    write_text(in_folder("made", "tokenizer_config.json"), "{\"eos_token\":\"<none>\"}");
    expect_refused(dir, "", 1, "'<none>'");
    remove(in_folder("made", "tokenizer_config.json"));
    expect_refused(dir, "--type Q4_0", 2, "--type");
    expect_refused(dir, "--type PQ2_0", 2,
                   "keep, F32, F16, BF16, TQ1_0, TQ2_0, I2_S, Q2_0, IQ1_BN, IQ2_BN, IQ2_BN_R4");
    expect_refused(dir, "--pre-tokenizer none", 2, "--pre-tokenizer");
    expect_refused("", "", 2, "give DIR and OUT");
    expect_refused("tests/convert/data/llama-packed", "--pre-tokenizer gpt-2", 1, "SentencePiece");
}

/* An output that is one of the files that are read: all that a folder may have. */
static void test_own_files_are_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json",           "generation_config.json",
                                        "model.safetensors",     "tokenizer.json",
                                        "tokenizer.model",       "model.safetensors.index.json",
                                        "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json",     "chat_template.jinja"};
    const struct shape exact = {.scale = 0.5f};
    const char *dir = write_folder("", &exact);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = in_folder("made", names[i]);
        bool is_new = access(path, F_OK) != 0;
        if (is_new)
            write_text(path, "{}");
        size_t before, after;
        free(read_whole(path, &before));
        struct outcome o = run_command("%s convert %s %s", trine, dir, path);
        if (o.status != 2 || !strstr(o.err, "give another output"))
            fail_msg("%s: status %d: %s", names[i], o.status, o.err);
        outcome_done(&o);
        free(read_whole(path, &after));
        assert_int_equal(before, after);
        if (is_new)
            remove(path);
    }
}

/* Named templates stand under keys of their own, and a list has their names. */
static void test_chat_templates(void **state)
{
    (void)state;
    struct gguf_file file;
    struct text text;
    char *said;
    const struct shape exact = {.scale = 0.5f};
    const char *dir = write_folder("", &exact), *config_path;
    config_path = in_folder("made", "tokenizer_config.json");
    write_text(config_path, "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},"
                            "{\"name\":\"default\",\"template\":\"D\"}]}");
    const char *path = convert(dir, "", &said);
    assert_non_null(strstr(said, "with chat templates tool_use, default\n"));
    free(said);
    assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
    assert_int_equal(gguf_string(&file, "tokenizer.chat_template", &text, NULL), STATUS_OK);
    assert_true(text_is(text, "D"));
    assert_int_equal(gguf_string(&file, "tokenizer.chat_template.tool_use", &text, NULL),
                     STATUS_OK);
    assert_true(text_is(text, "T"));
    const struct gguf_pair *names = gguf_find(&file, "tokenizer.chat_templates");
    uint64_t at = 0;
    assert_non_null(names);
    assert_int_equal(names->count, 1);
    assert_true(text_is(gguf_next_string(names, &at), "tool_use"));
    gguf_close(&file);
    write_text(config_path, "{\"chat_template\":[{\"name\":\"a\"}]}");
    expect_refused(dir, "", 1, "tokenizer_config.json: entry 0");
    remove(config_path);
}

static int find_trine(void **state)
{
    (void)state;
    trine = build_path("trine");
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders_of_transformers),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_packed_values),
        cmocka_unit_test(test_float_values),
        cmocka_unit_test(test_made_by_the_mean),
        cmocka_unit_test(test_1bit_class),
        cmocka_unit_test(test_weights_are_refused),
        cmocka_unit_test(test_folders_are_refused),
        cmocka_unit_test(test_own_files_are_kept),
        cmocka_unit_test(test_chat_templates),
    };
    return cmocka_run_group_tests(tests, find_trine, NULL);
}
