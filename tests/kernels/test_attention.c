/* The KV cache and attention over it: against double precision, every instruction set against the
 * scalar kernels to the last bit, and the same bits for one query and many, in chunks and at once.
 */
#include "op_fixture.h"

#include <math.h>

#include "base/float16.h"

/* Heads, the positions of the tokens of a batch, and which sequence each is in. */
struct scene_shape {
    int n_heads, n_heads_kv, head_dim, n_tokens;
    int position[12], sequence[12];
};

enum { MAX_TOKENS = 12, N_SEQUENCES = 2, N_PAGES = 3, N_POSITIONS = 720 };

struct scene {
    const struct scene_shape *shape;
    enum kv_format format;
    struct kv_page_layout layout;
    uint8_t *page[N_SEQUENCES][N_PAGES];
    uint8_t *const *pages[MAX_TOKENS];
    float *q;
    int64_t q_stride, out_stride;
    float *partial, *out;
    size_t partial_bytes, out_bytes;
};

/* Stores keys and values of all positions; pages begin as zeros. */
static void fill_pages(struct scene *s, int sequence, kernel *store)
{
    const struct scene_shape *shape = s->shape;
    int width = shape->n_heads_kv * shape->head_dim;
    int32_t position[N_POSITIONS];
    uint8_t *const *pages[N_POSITIONS];
    for (int p = 0; p < N_POSITIONS; p++) {
        position[p] = p;
        pages[p] = s->page[sequence];
    }
    float *k = floats(N_POSITIONS * width), *v = floats(N_POSITIONS * width);
    struct kv_store_job j = {s->format, shape->n_heads_kv, shape->head_dim, k, v, width, position,
                             pages};
    store(&(union job){.kv_store = j}, 0, N_POSITIONS);
    free(v);
    free(k);
}

static void open_scene(struct scene *s, const struct scene_shape *shape, enum kv_format format)
{
    *s = (struct scene){.shape = shape, .format = format};
    s->layout = kv_page_layout(format, shape->n_heads_kv, shape->head_dim);
    for (int k = 0; k < N_SEQUENCES; k++) {
        for (int p = 0; p < N_PAGES; p++)
            s->page[k][p] = bytes_of((size_t)s->layout.bytes, 0);
        fill_pages(s, k, scalar_of(OP_kv_store));
    }
    for (int t = 0; t < shape->n_tokens; t++)
        s->pages[t] = s->page[shape->sequence[t]];
    int64_t width = shape->n_heads * shape->head_dim;
    s->q_stride = width + 9;
    s->out_stride = width + 4;
    s->q = floats((shape->n_tokens - 1) * s->q_stride + width);
    s->partial_bytes = (size_t)(shape->n_tokens * shape->n_heads * N_PAGES) *
                       (size_t)(2 + shape->head_dim) * sizeof(float);
    s->out_bytes = (size_t)((shape->n_tokens - 1) * s->out_stride + width) * sizeof(float);
    s->partial = bytes_of(s->partial_bytes, 0x55);
    s->out = bytes_of(s->out_bytes, 0x55);
}

static void close_scene(struct scene *s)
{
    for (int k = 0; k < N_SEQUENCES; k++)
        for (int p = 0; p < N_PAGES; p++)
            free(s->page[k][p]);
    free(s->q);
    free(s->partial);
    free(s->out);
}

/* Tokens [first, first + n) as a job of their own. */
static struct attention_job attention_of(const struct scene *s, int first, int n, float *partial,
                                         float *out)
{
    const struct scene_shape *shape = s->shape;
    return (struct attention_job){
        .format = s->format,
        .n_heads = shape->n_heads,
        .n_heads_kv = shape->n_heads_kv,
        .head_dim = shape->head_dim,
        .group = shape->n_heads / shape->n_heads_kv,
        .n_page_heads = shape->n_heads_kv,
        .chunk_step = 1,
        .n_tokens = n,
        .n_chunks = N_PAGES,
        .scale = 1 / sqrtf((float)shape->head_dim),
        .q = s->q + first * s->q_stride,
        .q_stride = s->q_stride,
        .position = shape->position + first,
        .pages = s->pages + first,
        .partial = partial,
        .out = out,
        .out_stride = s->out_stride,
    };
}

static void run_attention(const struct attention_job *j, kernel *attention, kernel *fold)
{
    attention(&(union job){.attention = *j}, 0, j->n_heads_kv * j->n_chunks);
    struct attention_fold_job f = {j->n_heads,  j->head_dim, j->n_chunks,  j->partial,
                                   j->position, j->out,      j->out_stride};
    fold(&(union job){.attention_fold = f}, 0, j->n_tokens * j->n_heads);
}

/* Element i of a row of a page, by the words of kernels.h. */
static double stored(const struct scene *s, const uint8_t *page, bool is_value, int head, int row,
                     int i)
{
    const struct kv_page_layout *at = &s->layout;
    int64_t element = ((int64_t)head * KV_PAGE + row) * at->head_pad + i;
    const uint8_t *data = page + (is_value ? at->value_at : at->key_at);
    if (s->format == KV_FORMAT_F16)
        return (double)f16_to_f32(((const uint16_t *)data)[element]);
    const uint8_t *scales = page + (is_value ? at->value_scale_at : at->key_scale_at);
    return (double)f16_to_f32(((const uint16_t *)scales)[element / 32]) *
           ((const int8_t *)data)[element];
}

/* Softmax over all positions at once. */
static void attend_as_double(const struct scene *s, int t, int head, double *out)
{
    const struct scene_shape *shape = s->shape;
    int n = shape->position[t] + 1, kv_head = head / (shape->n_heads / shape->n_heads_kv);
    int64_t head_at = (int64_t)head * shape->head_dim;
    double weight[N_POSITIONS], highest = -INFINITY, sum = 0;
    for (int p = 0; p < n; p++) {
        double dot = 0;
        for (int i = 0; i < shape->head_dim; i++)
            dot += s->q[t * s->q_stride + head_at + i] *
                   stored(s, s->pages[t][p / KV_PAGE], false, kv_head, p % KV_PAGE, i);
        weight[p] = dot / sqrt(shape->head_dim);
        highest = fmax(highest, weight[p]);
    }
    for (int p = 0; p < n; p++)
        sum += weight[p] = exp(weight[p] - highest);
    for (int i = 0; i < shape->head_dim; i++) {
        out[i] = 0;
        for (int p = 0; p < n; p++)
            out[i] += weight[p] / sum *
                      stored(s, s->pages[t][p / KV_PAGE], true, kv_head, p % KV_PAGE, i);
    }
}

/* Values are about 4 at most, scores have relative errors of some 2^-24 times their terms. */
static void check_against_double(const struct scene *s)
{
    const struct scene_shape *shape = s->shape;
    double expected[ATTENTION_MAX_HEAD_DIM];
    for (int t = 0; t < shape->n_tokens; t++)
        for (int h = 0; h < shape->n_heads; h++) {
            attend_as_double(s, t, h, expected);
            const float *out = s->out + t * s->out_stride + (int64_t)h * shape->head_dim;
            for (int i = 0; i < shape->head_dim; i++)
                CHECK(fabs(out[i] - expected[i]) < 5e-6, "token %d head %d: out[%d] = %g, not %g",
                      t, h, i, out[i], expected[i]);
        }
}

static void same_out(const struct scene *s, const float *out, const char *kernel_name,
                     const char *how)
{
    CHECK(!memcmp(out, s->out, s->out_bytes), "%s: head_dim %d, %s", kernel_name,
          s->shape->head_dim, how);
}

static void check_whole_batch(const struct scene *s, const struct kernel_row *row, kernel *fold)
{
    float *partial = bytes_of(s->partial_bytes, 0x55), *out = bytes_of(s->out_bytes, 0x55);
    struct attention_job j = attention_of(s, 0, s->shape->n_tokens, partial, out);
    run_attention(&j, row->run, fold);
    CHECK(!memcmp(partial, s->partial, s->partial_bytes), "%s: partials, head_dim %d", row->name,
          s->shape->head_dim);
    same_out(s, out, row->name, "in chunks");
    free(out);
    free(partial);
}

static void check_one_by_one(const struct scene *s, const struct kernel_row *row, kernel *fold)
{
    float *partial = bytes_of(s->partial_bytes, 0x55), *out = bytes_of(s->out_bytes, 0x55);
    for (int t = 0; t < s->shape->n_tokens; t++) {
        struct attention_job j = attention_of(s, t, 1, partial, out + t * s->out_stride);
        run_attention(&j, row->run, fold);
    }
    same_out(s, out, row->name, "token by token");
    free(out);
    free(partial);
}

static void check_token_blocks(const struct scene *s, const struct kernel_row *row, int token_block)
{
    float *out = bytes_of(s->out_bytes, 0x55);
    struct attention_job j = attention_of(s, 0, s->shape->n_tokens, NULL, out);
    j.token_block = token_block;
    int n_blocks = (j.n_tokens + token_block - 1) / token_block;
    row->run(&(union job){.attention = j}, 0, j.n_heads_kv * n_blocks);
    same_out(s, out, row->name, "folded at once");
    free(out);
}

static void check_scene(const struct scene_shape *shape, enum kv_format format)
{
    struct scene s;
    open_scene(&s, shape, format);
    struct attention_job j = attention_of(&s, 0, shape->n_tokens, s.partial, s.out);
    run_attention(&j, scalar_of(OP_attention), scalar_of(OP_attention_fold));
    check_against_double(&s);
    int n = 0;
    for (const struct kernel_row *row; (row = next_row(OP_attention, &n));) {
        kernel *fold = kernel_select(OP_attention_fold, PACKING_none, row->isa)->run;
        check_whole_batch(&s, row, fold);
        check_one_by_one(&s, row, fold);
        static const int blocks[] = {1, 3, 32};
        EACH(token_block, blocks)
        check_token_blocks(&s, row, *token_block);
    }
    close_scene(&s);
}

static const struct scene_shape shapes[] = {
    {4, 1, 128, 5, {0, 254, 255, 256, 699}, {0}},
    {8, 2, 64, 3, {254, 255, 256}, {0, 1, 1}},
    {5, 1, 80, 4, {511, 512, 513, 514}, {0}},
    {3, 3, 40, 7, {17, 18, 19, 20, 21, 22, 23}, {0, 0, 0, 0, 0, 0, 1}},
    {2, 1, 8, 3, {0, 255, 300}, {0}},
    {6, 2, 96, 2, {30, 31}, {0}},
    {1, 1, 100, 12, {0, 1, 2, 15, 16, 17, 254, 255, 256, 257, 258, 300}, {0}},
    {8, 1, 256, 2, {256, 600}, {0, 1}},
    {2, 2, 512, 2, {10, 270}, {0}},
};

static void test_f16(void **state)
{
    (void)state;
    EACH(shape, shapes)
    check_scene(shape, KV_FORMAT_F16);
}

static void test_q8_0(void **state)
{
    (void)state;
    EACH(shape, shapes)
    check_scene(shape, KV_FORMAT_Q8_0);
}

/* ---- kv_store ---- */

static void test_page_layout(void **state)
{
    (void)state;
    for (int format = 0; format < 2; format++)
        for (int head_dim = 8; head_dim <= 512; head_dim += 4) {
            struct kv_page_layout at = kv_page_layout((enum kv_format)format, 3, head_dim);
            assert_true(at.head_pad % 32 == 0 && at.head_pad >= head_dim);
            assert_true(at.head_pad - head_dim < 32 && at.key_at == 0);
            int64_t elements = 3 * KV_PAGE * at.head_pad;
            assert_int_equal(at.bytes,
                             format == KV_FORMAT_F16 ? 4 * elements : 2 * elements + elements / 8);
            assert_true(at.key_at % 64 == 0 && at.key_scale_at % 64 == 0);
            assert_true(at.value_at % 64 == 0 && at.value_scale_at % 64 == 0 && at.bytes % 64 == 0);
        }
}

/* One stored row against the floats it came from. */
static void check_stored_row(const struct scene *s, const uint8_t *page, bool is_value, int row,
                             const float *x)
{
    const struct scene_shape *shape = s->shape;
    for (int h = 0; h < shape->n_heads_kv; h++)
        for (int i = 0; i < s->layout.head_pad; i++) {
            double is = stored(s, page, is_value, h, row, i);
            double was = i < shape->head_dim ? x[h * shape->head_dim + i] : 0;
            /* f16: half a step of 2^-11; q8_0: half of amax / 127, and the rounding of the scale */
            double bound = s->format == KV_FORMAT_F16 ? fabs(was) * 0x1p-11 : 6.0 / 127 * 0.6;
            CHECK(fabs(is - was) <= (i < shape->head_dim ? bound : 0), "head %d: %g was %g", h, is,
                  was);
        }
}

static void check_store(const struct scene_shape *shape, enum kv_format format)
{
    struct scene s = {.shape = shape, .format = format};
    s.layout = kv_page_layout(format, shape->n_heads_kv, shape->head_dim);
    size_t bytes = (size_t)s.layout.bytes;
    int32_t position[2] = {255, 256 + 7};
    int width = shape->n_heads_kv * shape->head_dim, n = 0;
    float *k = floats(2 * width + 1), *v = floats(2 * width + 1);
    memset(k, 0, (size_t)shape->head_dim * sizeof *k); /* a head of zeros */
    uint8_t *expected[2] = {0};
    for (const struct kernel_row *row; (row = next_row(OP_kv_store, &n));) {
        uint8_t *page[2] = {bytes_of(bytes, 0), bytes_of(bytes, 0)};
        uint8_t *const *pages[2] = {page, page};
        struct kv_store_job j = {format, shape->n_heads_kv, shape->head_dim, k,
                                 v,      width + 1,         position,        pages};
        row->run(&(union job){.kv_store = j}, 0, 2);
        for (int p = 0; p < 2; p++) {
            CHECK(!expected[p] || !memcmp(page[p], expected[p], bytes), "%s: head_dim %d",
                  row->name, shape->head_dim);
            check_stored_row(&s, page[p], false, position[p] % KV_PAGE, k + p * (width + 1));
            check_stored_row(&s, page[p], true, position[p] % KV_PAGE, v + p * (width + 1));
            free(expected[p]);
            expected[p] = page[p];
        }
    }
    free(expected[0]);
    free(expected[1]);
    free(v);
    free(k);
}

static void test_store(void **state)
{
    (void)state;
    EACH(shape, shapes)
    {
        check_store(shape, KV_FORMAT_F16);
        check_store(shape, KV_FORMAT_Q8_0);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    random_init(&source, 21);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_layout),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_q8_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
