/* matmul and pack. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "check.h"
#include "tensor/ternary.h"

struct matmul_case {
    struct weights w;
    const float *added; /* ADD: what out held */
};

/* A number in double precision and how far a float may be from it. */
struct near {
    double value, bound;
};

static int32_t group_sum(const struct weights *w, const int8_t *q, int64_t row, int64_t begin,
                         int64_t end)
{
    int64_t sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += weights_value(w, row, i) * q[i] *
               (w->subscales ? w->subscales[(row * w->n_cols + i) / w->sub_inputs] : 1);
    return (int32_t)sum;
}

/* What the minimums take away. */
static int32_t min_sum(const struct weights *w, const int8_t *q, int64_t row, int64_t begin,
                       int64_t end)
{
    int32_t sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += q[i] * w->submins[(row * w->n_cols + i) / w->sub_inputs];
    return sum;
}

/* One row times one token: |y - y64| <= (n + 2) 2^-23 sum |terms|, n the links of the chain. */
static struct near row_times(const struct weights *w, const struct matmul_job *job, int64_t row,
                             int64_t token)
{
    const struct activations *a = &job->a;
    double y = 0, terms = 0;
    int64_t links = w->floats ? w->n_cols : (w->submins || w->mins ? 2 : 1) * w->n_groups;
    for (int64_t i = 0; w->floats && i < w->n_cols; i++) {
        double term = (double)w->floats[row * w->n_cols + i] * a->x[token * a->stride + i];
        y += term;
        terms += fabs(term);
    }
    int64_t group = w->group ? w->group : w->n_cols;
    for (int64_t g = 0; !w->floats && g < w->n_groups; g++) {
        const int8_t *q = a->q + token * a->stride;
        double act_scale = a->scale[token * a->n_scales + (a->group ? g : 0)];
        double term = group_sum(w, q, row, g * group, (g + 1) * group) * act_scale *
                      w->scales[row * w->n_groups + g];
        double low = 0;
        if (w->submins)
            low = min_sum(w, q, row, g * group, (g + 1) * group) * act_scale *
                  w->min_scales[row * w->n_groups + g];
        for (int64_t i = g * group; w->mins && i < (g + 1) * group; i++)
            low -= q[i] * act_scale * w->mins[row * w->n_groups + g];
        y += term - low;
        terms += fabs(term) + fabs(low);
    }
    double bound = (double)(links + 2) * 0x1p-23 * terms + 1e-44;
    if (job->row_scale) {
        y *= job->row_scale[row];
        bound = bound * fabs(job->row_scale[row]) + fabs(y) * 0x1p-23;
    }
    float own_scale = job->scale[row % 2];
    if (own_scale != 1.0f) {
        y *= own_scale;
        bound = bound * fabs(own_scale) + fabs(y) * 0x1p-23;
    }
    if (job->token_scale) {
        y *= job->token_scale[token];
        bound = bound * fabs(job->token_scale[token]) + fabs(y) * 0x1p-23;
    }
    if (job->bias) {
        y += job->bias[row];
        bound += 0x1p-23 * (fabs(y) + bound);
    }
    return (struct near){y, bound};
}

/* Gate and up. */
static struct near gated(const struct near *y, bool is_silu)
{
    double g = y[0].value, positive = g > 0 ? g : 0;
    double factor = is_silu ? g / (1 + exp(-g)) : positive * positive;
    double slope = is_silu ? 1.1 : 2 * positive + y[0].bound;
    double factor_bound = slope * y[0].bound + fabs(factor) * 0x1p-20 + 1e-38;
    double result = factor * y[1].value;
    return (struct near){result, factor_bound * (fabs(y[1].value) + y[1].bound) +
                                     fabs(factor) * y[1].bound + fabs(result) * 0x1p-22};
}

static struct near turned(const struct matmul_job *job, const struct near *pair, int64_t row,
                          int64_t token)
{
    int64_t at = token * (job->head_dim / 2) + row % job->head_dim / 2;
    double c = job->cosines[at], s = job->sines[at];
    double value =
        row % 2 ? pair[0].value * s + pair[1].value * c : pair[0].value * c - pair[1].value * s;
    return (struct near){value, pair[0].bound + pair[1].bound +
                                    0x1p-22 * (fabs(pair[0].value) + fabs(pair[1].value))};
}

static void check_half(struct check *c, const struct matmul_job *job, int64_t row, int64_t token,
                       struct near y)
{
    const uint16_t *out = job->out_f16[token] + row / job->head_dim * job->f16_head_stride;
    float got = f16_to_f32(out[row % job->head_dim]);
    if (fabs(y.value) > 65000) /* may be infinite */
        check_near(c, "sign of out", row, got > 0, y.value > 0, 0);
    else
        check_near(c, "out_f16", row, got, y.value, y.bound + fabs(y.value) * 0x1p-11 + 0x1p-25);
}

/* Rows row and row + 1 (which may lie beyond the matrix) of one token. */
static void verify_pair(struct check *c, const struct matmul_case *m, int64_t row, int64_t token)
{
    const struct matmul_job *job = &c->job.matmul;
    bool has_second = row + 1 < m->w.n_rows;
    struct near y[2] = {row_times(&m->w, job, row, token)};
    if (has_second)
        y[1] = row_times(&m->w, job, row + 1, token);
    enum epilogue e = job->epilogue;
    if (e == EPILOGUE_SILU_MUL || e == EPILOGUE_RELU2_MUL) {
        struct near z = gated(y, e == EPILOGUE_SILU_MUL);
        check_near(c, "out", row / 2, job->out[token * job->out_stride + row / 2], z.value,
                   z.bound);
        return;
    }
    for (int k = 0; k < 1 + has_second; k++) {
        int64_t at = token * job->out_stride + row + k;
        bool is_turned = e == EPILOGUE_ROPE || e == EPILOGUE_ROPE_F16;
        struct near z = is_turned ? turned(job, y, row + k, token) : y[k];
        if (e == EPILOGUE_ADD) {
            z.value += m->added[at];
            z.bound += fabs(z.value) * 0x1p-23;
        }
        if (e == EPILOGUE_PARTIAL)
            check_near(c, "out_int", at, job->out_int[at],
                       group_sum(&m->w, job->a.q + token * job->a.stride, row + k, 0, m->w.n_cols),
                       0);
        else if (e == EPILOGUE_F16 || e == EPILOGUE_ROPE_F16)
            check_half(c, job, row + k, token, z);
        else
            check_near(c, "out", at, job->out[at], z.value, z.bound);
    }
}

static void verify_matmul(struct check *c, const void *context)
{
    const struct matmul_case *m = context;
    for (int token = 0; token < c->job.matmul.n_tokens; token++)
        for (int64_t row = 0; row < m->w.n_rows && !c->failed; row += 2)
            verify_pair(c, m, row, token);
}

#define HEAD_DIM 8 /* a tile holds two heads */

static void set_angles(struct check *c, struct matmul_job *job, int n_tokens)
{
    size_t n = (size_t)n_tokens * HEAD_DIM / 2;
    float *cosines = check_block(c, "cosines", n * sizeof *cosines, ROLE_INPUT);
    float *sines = check_block(c, "sines", n * sizeof *sines, ROLE_INPUT);
    for (size_t i = 0; i < n; i++) {
        float angle = check_float(c, FILL_RANDOM);
        cosines[i] = cosf(angle);
        sines[i] = sinf(angle);
    }
    job->cosines = cosines;
    job->sines = sines;
}

/* The caches of tokens: heads 24 halves apart. */
static void set_halves(struct check *c, struct matmul_job *job, int64_t n_rows, int n_tokens)
{
    enum { HEAD_STRIDE = 24 };
    int64_t n_heads = (n_rows + HEAD_DIM - 1) / HEAD_DIM;
    size_t head_bytes = HEAD_STRIDE * sizeof(uint16_t);
    uint8_t *cache =
        check_rows(c, "out_f16", n_tokens * n_heads, head_bytes, HEAD_DIM * sizeof(uint16_t));
    uint16_t **places = check_block(c, "places", (size_t)n_tokens * sizeof *places, ROLE_INPUT);
    for (int token = 0; token < n_tokens; token++)
        places[token] = (uint16_t *)(cache + (size_t)(token * n_heads) * head_bytes);
    job->out_f16 = places;
    job->f16_head_stride = HEAD_STRIDE;
}

static void set_output(struct check *c, struct matmul_case *m, int64_t n_rows, int n_tokens)
{
    struct matmul_job *job = &c->job.matmul;
    enum epilogue e = job->epilogue;
    job->head_dim = HEAD_DIM;
    if (e == EPILOGUE_ROPE || e == EPILOGUE_ROPE_F16)
        set_angles(c, job, n_tokens);
    if (e == EPILOGUE_F16 || e == EPILOGUE_ROPE_F16) {
        set_halves(c, job, n_rows, n_tokens);
        return;
    }
    int64_t n_out = e == EPILOGUE_SILU_MUL || e == EPILOGUE_RELU2_MUL ? n_rows / 2 : n_rows;
    job->out_stride = n_out + check_below(c, 2) * 5;
    float *out = check_rows(c, "out", n_tokens, (size_t)job->out_stride * sizeof *out,
                            (size_t)n_out * sizeof *out);
    job->out = out;
    job->out_int = (int32_t *)out;
    if (e == EPILOGUE_ADD) {
        size_t n = (size_t)(n_tokens * job->out_stride);
        float *added = check_memory(c, n, sizeof *added);
        for (size_t i = 0; i < n; i++)
            added[i] = out[i] = check_float(c, FILL_RANDOM);
        m->added = added;
    }
}

struct matmul_shape {
    int group, n_tokens;
    int64_t n_rows, n_cols;
    enum epilogue epilogue;
    enum fill fill;
};

static void matmul_once(struct check *c, const struct matmul_shape *s)
{
    if (check_passes_over(c))
        return;
    static const char *const names[] = {"store", "add",      "silu_mul", "relu2_mul",
                                        "rope",  "rope_f16", "f16",      "partial"};
    enum packing packing = c->row->packing;
    check_begin(c, "%d tokens, %lld rows, %lld cols, group %d, %s, fill %s", s->n_tokens,
                (long long)s->n_rows, (long long)s->n_cols, s->group, names[s->epilogue],
                fill_names[s->fill]);
    struct matmul_case m = {.w =
                                check_weights(c, packing, s->group, s->n_rows, s->n_cols, s->fill)};
    struct matmul_job *job = &c->job.matmul;
    job->w = check_packed(c, &m.w);
    job->a = check_activations(c, packing, s->group, s->n_cols, s->n_tokens, s->fill);
    job->n_tokens = s->n_tokens;
    job->epilogue = s->epilogue;
    for (int i = 0; i < 2; i++)
        job->scale[i] =
            s->epilogue == EPILOGUE_PARTIAL || check_below(c, 2) ? 1.0f : 0.37f + 0.4f * (float)i;
    int64_t n_padded = (s->n_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    if (s->epilogue != EPILOGUE_PARTIAL && check_below(c, 2))
        job->row_scale = check_floats(c, "row_scale", 1, n_padded, n_padded, FILL_RANDOM);
    if (s->epilogue != EPILOGUE_PARTIAL && check_below(c, 2))
        job->token_scale = check_floats(c, "token_scale", 1, s->n_tokens, s->n_tokens, FILL_RANDOM);
    if (s->epilogue != EPILOGUE_PARTIAL && check_below(c, 2))
        job->bias = check_floats(c, "bias", 1, s->n_rows, s->n_rows, FILL_RANDOM);
    set_output(c, &m, s->n_rows, s->n_tokens);
    job->scratch = check_block(c, "scratch", MATMUL_SCRATCH_BYTES, ROLE_SCRATCH);
    check_run(c, (int)s->n_rows, verify_matmul, &m);
}

/* Input counts at the edges of steps, groups and units. */
static int edge_cols(int group, int64_t cols[16])
{
    static const int free_of_groups[] = {1,  2,  4,  15, 16,  17,  20,  21,
                                         63, 64, 65, 96, 127, 128, 300, 644};
    static const int groups[] = {1, 2, 3, 4, 5, 7, 9, 10, 11, 19, 20, 21, 41};
    int n = 0;
    if (!group)
        for (; n < 16; n++)
            cols[n] = free_of_groups[n];
    int most = group == 256 ? 11 : 41;
    for (size_t i = 0; group && i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i] <= most)
            cols[n++] = groups[i] * group;
    return n;
}

static int edge_tokens(struct check *c)
{
    static const int tokens[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 24, 31, 33};
    return tokens[check_below(c, sizeof tokens / sizeof tokens[0])];
}

/* A row count that the epilogue allows: pairs, or whole heads. */
static int64_t edge_rows(struct check *c, enum epilogue epilogue)
{
    static const int rows[] = {1, 2, 7, 15, 16, 17, 18, 31, 32, 33, 46, 48, 49, 80};
    int n = rows[check_below(c, sizeof rows / sizeof rows[0])];
    if (epilogue == EPILOGUE_ROPE || epilogue == EPILOGUE_ROPE_F16 || epilogue == EPILOGUE_F16)
        return (n + HEAD_DIM - 1) / HEAD_DIM * HEAD_DIM;
    bool is_pair = epilogue == EPILOGUE_SILU_MUL || epilogue == EPILOGUE_RELU2_MUL;
    return is_pair ? (n + 1) / 2 * 2 : n;
}

static bool is_trits(enum packing packing)
{
    return packing == PACKING_trits4 || packing == PACKING_trits5;
}

/* Rows so long that sums kept shifted must be flushed, many tokens at once, both (several panels of inputs,
 * and more tiles than one panel has), and more rows than the state of 512 tokens leaves room for: 31 tiles,
 * where 64 bytes a token and tile in MATMUL_SCRATCH_BYTES are 32 tiles without the panel. */
static void check_long(struct check *c, int group)
{
    static const int64_t cols[] = {4096, 65536 + 32, 131072 + 260};
    for (int i = 0; is_trits(c->row->packing) && i < (group ? 1 : 3); i++)
        for (int fill = FILL_MIN; fill < N_FILLS && !c->failed; fill++)
            matmul_once(c, &(struct matmul_shape){group, 1 + fill % 2 * 4, 17 - i, cols[i],
                                                  EPILOGUE_STORE, fill});
    static const int tokens[] = {64, 100, 256, 511, 512};
    for (int i = 0; i < 5 && !c->failed; i++)
        matmul_once(c,
                    &(struct matmul_shape){group, tokens[i], 16 * (1 + i % 3) + i % 2,
                                           group ? 3 * group : 100, EPILOGUE_STORE, FILL_RANDOM});
    if (packing_needs(c->row->packing, group).is_float)
        return;
    static const int rows[] = {33, 210};
    int64_t n_cols = group ? 8448 : 8300;
    for (int i = 0; i < 2 && !c->failed; i++)
        matmul_once(c, &(struct matmul_shape){group, 17 + 16 * i, rows[i], n_cols, EPILOGUE_ADD,
                                              i ? FILL_RANDOM : FILL_MAX});
    if (c->row->isa != ISA_scalar && !c->failed)
        matmul_once(c, &(struct matmul_shape){group, 512, 30 * TILE_ROWS + 1, group ? group : 20,
                                              EPILOGUE_STORE, FILL_RANDOM});
}

void check_matmul(struct check *c)
{
    int groups[4], n_groups = check_groups(c->row->packing, groups);
    for (int g = 0; g < n_groups && !c->failed; g++) {
        int64_t cols[16];
        int n = edge_cols(groups[g], cols);
        bool has_partial = is_trits(c->row->packing) && !groups[g];
        int n_epilogues = has_partial ? EPILOGUE_PARTIAL + 1 : EPILOGUE_PARTIAL;
        int next = 0;
        for (int i = 0; i < n; i++)
            for (int fill = 0; fill < N_FILLS; fill++)
                for (int repeat = 0; repeat < (fill == FILL_RANDOM ? 4 : 1); repeat++) {
                    enum epilogue epilogue = repeat ? next++ % n_epilogues : EPILOGUE_STORE;
                    struct matmul_shape s = {groups[g], edge_tokens(c), edge_rows(c, epilogue),
                                             cols[i],   epilogue,       fill};
                    if (c->failed)
                        return;
                    matmul_once(c, &s);
                }
        check_long(c, groups[g]);
    }
}

/* Weights of 64 tiles at most, repeated as often as needed. */
static struct packed large_weights(struct check *c, const struct large *large)
{
    enum packing packing = c->row->packing;
    struct packed p = {packing, large->group, large->n_rows, large->n_cols, NULL};
    int64_t tile = (int64_t)packed_tile_bytes(packing, large->group, large->n_cols);
    if (!p.n_rows)
        p.n_rows = (large->bytes + tile - 1) / tile * TILE_ROWS;
    int64_t n_tiles = (p.n_rows + TILE_ROWS - 1) / TILE_ROWS, n_own = n_tiles < 8 ? n_tiles : 8;
    p.data = check_block(c, "weights", (size_t)(n_tiles * tile), ROLE_INPUT);
    struct weights w =
        check_weights(c, packing, large->group, n_own * TILE_ROWS, large->n_cols, FILL_RANDOM);
    weights_pack(&w, p.data);
    for (int64_t i = n_own; i < n_tiles; i++)
        memcpy(p.data + i * tile, p.data + i % n_own * tile, (size_t)tile);
    return p;
}

bool large_matmul(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int groups[4], n_groups = check_groups(c->row->packing, groups);
    struct large own = *large;
    bool has_group = false;
    for (int i = 0; i < n_groups; i++)
        has_group |= groups[i] == own.group;
    if (!has_group)
        own.group = groups[0];
    struct matmul_job *job = &c->job.matmul;
    job->w = large_weights(c, &own);
    job->n_tokens = own.n_tokens;
    job->a =
        check_activations(c, c->row->packing, own.group, own.n_cols, own.n_tokens, FILL_RANDOM);
    job->scale[0] = job->scale[1] = 1.0f;
    job->out_stride = job->w.n_rows;
    size_t n_out = (size_t)(own.n_tokens * job->out_stride);
    job->out = check_block(c, "out", n_out * sizeof *job->out, ROLE_OUTPUT);
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = (int)job->w.n_rows;
    uint64_t bytes = packed_bytes(c->row->packing, own.group, job->w.n_rows, own.n_cols);
    int64_t n_weights = job->w.n_rows * own.n_cols;
    c->work = (struct workload){(int64_t)bytes, n_weights, n_weights * own.n_tokens};
    return true;
}
