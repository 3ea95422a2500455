/* kv_store, attention and attention_fold. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/float16.h"
#include "check.h"

/* Pages of some sequences. What no token may see is NaN. */
struct cache {
    enum kv_format format;
    struct kv_page_layout layout;
    int n_heads, head_dim, n_pages; /* pages per sequence */
    uint8_t *bytes;
    uint8_t **pages; /* (sequences, n_pages) */
};

static struct cache make_cache(struct check *c, enum kv_format format, int n_heads, int head_dim,
                               int n_pages, int n_sequences, enum role role)
{
    struct cache k = {
        format, kv_page_layout(format, n_heads, head_dim), n_heads, head_dim, n_pages, NULL, NULL};
    size_t n = (size_t)(n_pages * n_sequences);
    k.bytes = check_block(c, "pages", n * (size_t)k.layout.bytes, role);
    k.pages = check_block(c, "page list", n * sizeof *k.pages, ROLE_INPUT);
    for (size_t i = 0; i < n; i++) /* in another order than their addresses */
        k.pages[i] = k.bytes + (n - 1 - i) * (size_t)k.layout.bytes;
    return k;
}

/* Where an element of the keys or values is. */
struct element {
    uint8_t *at;     /* f16 or int8 */
    uint16_t *scale; /* q8_0 */
};

static struct element element_at(const struct cache *k, int sequence, int position, int head, int i,
                                 bool is_value)
{
    uint8_t *page = k->pages[sequence * k->n_pages + position / KV_PAGE];
    int64_t row = (int64_t)head * KV_PAGE + position % KV_PAGE;
    int64_t begin = is_value ? k->layout.value_at : k->layout.key_at;
    int64_t scales = is_value ? k->layout.value_scale_at : k->layout.key_scale_at;
    int64_t size = k->format == KV_FORMAT_F16 ? 2 : 1;
    return (struct element){page + begin + (row * k->layout.head_pad + i) * size,
                            (uint16_t *)(page + scales) + row * (k->layout.head_pad / 32) + i / 32};
}

static float cached(const struct cache *k, int sequence, int position, int head, int i,
                    bool is_value)
{
    struct element e = element_at(k, sequence, position, head, i, is_value);
    if (k->format == KV_FORMAT_F16)
        return f16_to_f32(*(uint16_t *)e.at);
    return (float)*(int8_t *)e.at * f16_to_f32(*e.scale);
}

static void put_cached(struct check *c, const struct cache *k, int sequence, int position, int head,
                       int i, enum fill fill)
{
    for (int is_value = 0; is_value < 2; is_value++) {
        struct element e = element_at(k, sequence, position, head, i, is_value);
        bool is_padding = i >= k->head_dim;
        if (k->format == KV_FORMAT_F16) {
            float value = check_float(c, fill) * (is_value || fill < FILL_ONES ? 1.0f : 2.0f);
            if (fill == FILL_MIN || fill == FILL_MAX)
                value = value > 0 ? 100.0f : -100.0f;
            *(uint16_t *)e.at = is_padding ? 0 : f32_to_f16(value);
        } else {
            *(int8_t *)e.at = is_padding ? 0 : check_int8(c, fill);
            if (i % 32 == 0)
                *e.scale = f32_to_f16(0.001f + fabsf(check_float(c, FILL_RANDOM)) * 0.02f);
        }
    }
}

/* Positions [0, n_seen) get numbers; the rest of the pages is NaN (q8_0: scales of NaN). */
static void fill_cache(struct check *c, const struct cache *k, int sequence, int n_seen,
                       enum fill fill)
{
    for (int page = 0; page < k->n_pages; page++)
        memset(k->pages[sequence * k->n_pages + page], 0xff, (size_t)k->layout.bytes);
    for (int position = 0; position < n_seen; position++)
        for (int head = 0; head < k->n_heads; head++)
            for (int i = 0; i < k->layout.head_pad; i++)
                put_cached(c, k, sequence, position, head, i, fill);
}

struct store_case {
    struct cache cache;
    int n_tokens;
    const int *sequence;
};

static void verify_kv_store(struct check *c, const void *context)
{
    const struct store_case *s = context;
    const struct kv_store_job *job = &c->job.kv_store;
    for (int token = 0; token < s->n_tokens; token++)
        for (int i = 0; i < 2 * job->n_heads * job->head_dim && !c->failed; i++) {
            bool is_value = i % 2;
            int head = i / 2 / job->head_dim, at = i / 2 % job->head_dim;
            const float *x = (is_value ? job->v : job->k) + token * job->stride + i / 2;
            float got =
                cached(&s->cache, s->sequence[token], job->position[token], head, at, is_value);
            double bound = 0;
            if (job->format == KV_FORMAT_Q8_0) {
                double largest = 0; /* of the group of 32 */
                for (int j = at / 32 * 32; j < at / 32 * 32 + 32 && j < job->head_dim; j++)
                    largest = fmax(largest, fabs(x[j - at]));
                bound = largest * (0.5 / 127 + 0x1p-10) + 1e-6;
            }
            double want = job->format == KV_FORMAT_F16 ? f16_to_f32(f32_to_f16(*x)) : *x;
            check_near(c, is_value ? "value" : "key", i / 2, got, want, bound);
        }
}

static void kv_store_once(struct check *c, enum kv_format format, int head_dim, enum fill fill)
{
    if (check_passes_over(c))
        return;
    int n_heads = 1 + check_below(c, 3), n_tokens = 1 + check_below(c, 6);
    check_begin(c, "%s, %d tokens, %d heads of %d, fill %s", format ? "q8_0" : "f16", n_tokens,
                n_heads, head_dim, fill_names[fill]);
    struct store_case s = {.n_tokens = n_tokens};
    s.cache = make_cache(c, format, n_heads, head_dim, 2, 2, ROLE_OUTPUT);
    for (int sequence = 0; sequence < 2; sequence++)
        fill_cache(c, &s.cache, sequence, 2 * KV_PAGE, FILL_RANDOM);
    struct kv_store_job *job = &c->job.kv_store;
    job->format = format;
    job->n_heads = n_heads;
    job->head_dim = head_dim;
    job->stride = n_heads * head_dim + check_below(c, 3) * 5;
    job->k = check_floats(c, "k", n_tokens, n_heads * head_dim, job->stride, fill);
    job->v = check_floats(c, "v", n_tokens, n_heads * head_dim, job->stride, fill);
    int32_t *position = check_block(c, "position", (size_t)n_tokens * sizeof *position, ROLE_INPUT);
    int *sequence = check_memory(c, (size_t)n_tokens, sizeof *sequence);
    uint8_t ***pages = check_block(c, "token pages", (size_t)n_tokens * sizeof *pages, ROLE_INPUT);
    int first = KV_PAGE - check_below(c, n_tokens + 1);
    for (int token = 0; token < n_tokens; token++) {
        sequence[token] = check_below(c, 2);
        position[token] = first + token;
        pages[token] = s.cache.pages + sequence[token] * s.cache.n_pages;
    }
    s.sequence = sequence;
    job->position = position;
    job->pages = (uint8_t *const *const *)pages;
    check_run(c, n_tokens, verify_kv_store, &s);
}

static const int head_dims[] = {8, 16, 31, 32, 64, 80, 96, 128, 512};

void check_kv_store(struct check *c)
{
    for (int i = 0; i < 9 * N_FILLS && !c->failed; i++)
        kv_store_once(c, i % 2, head_dims[i / N_FILLS], i % N_FILLS);
}

bool large_kv_store(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    enum { N_HEADS = 8, DIM = 128 };
    struct kv_store_job *job = &c->job.kv_store;
    struct kv_page_layout layout = kv_page_layout(KV_FORMAT_F16, N_HEADS, DIM);
    int n_pages = (int)(large->bytes / layout.bytes) + 1, n_tokens = n_pages * KV_PAGE;
    struct cache k = make_cache(c, KV_FORMAT_F16, N_HEADS, DIM, n_pages, 1, ROLE_OUTPUT);
    size_t n = (size_t)n_tokens * N_HEADS * DIM;
    float *floats = check_block(c, "k", n * sizeof *floats, ROLE_INPUT);
    for (size_t i = 0; i < n; i++)
        floats[i] = i < 65536 ? check_float(c, FILL_RANDOM) : floats[i - 65536];
    int32_t *position = check_block(c, "position", (size_t)n_tokens * sizeof *position, ROLE_INPUT);
    uint8_t ***pages = check_block(c, "token pages", (size_t)n_tokens * sizeof *pages, ROLE_INPUT);
    for (int token = 0; token < n_tokens; token++) {
        position[token] = token;
        pages[token] = k.pages;
    }
    *job = (struct kv_store_job){
        KV_FORMAT_F16, N_HEADS,       DIM,      floats,
        floats,        N_HEADS * DIM, position, (uint8_t *const *const *)pages};
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = n_tokens;
    c->work = (struct workload){(int64_t)(n * sizeof *floats), 2 * (int64_t)n, 0};
    return true;
}

struct attention_case {
    struct cache cache;
    const int *sequence; /* of tokens */
};

/* The head of a page that a query head reads. */
static int kv_head_of(const struct attention_job *job, int head)
{
    return job->kv_head0 + (head + job->head_offset) / job->group;
}

/* Scores of a chunk in double precision; the bound of their error goes to *bound. */
static int double_scores(const struct attention_case *a, const struct attention_job *job, int token,
                         int head, int chunk, double scores[KV_PAGE], double *bound)
{
    int kv_head = kv_head_of(job, head), begin = chunk * KV_PAGE;
    int end =
        job->position[token] + 1 < begin + KV_PAGE ? job->position[token] + 1 : begin + KV_PAGE;
    const float *q = job->q + token * job->q_stride + head * job->head_dim;
    *bound = 0;
    for (int p = begin; p < end; p++) {
        double sum = 0, terms = 0;
        for (int i = 0; i < job->head_dim; i++) {
            double term =
                (double)q[i] * cached(&a->cache, a->sequence[token], p, kv_head, i, false);
            sum += term;
            terms += fabs(term);
        }
        scores[p - begin] = sum * job->scale;
        double links = job->head_dim / 16 + 8;
        *bound = fmax(*bound, links * 0x1p-24 * terms * fabs(job->scale));
    }
    return end - begin;
}

/* Partial result of one token, query head and chunk. */
static void verify_chunk(struct check *c, const struct attention_case *a, int token, int head,
                         int chunk)
{
    const struct attention_job *job = &c->job.attention;
    const float *partial =
        job->partial +
        (int64_t)((token * job->n_heads + head) * job->n_chunks + chunk) * (2 + job->head_dim);
    double scores[KV_PAGE], bound, largest = -INFINITY, sum = 0;
    int n = double_scores(a, job, token, head, chunk, scores, &bound);
    for (int p = 0; p < n; p++)
        largest = fmax(largest, scores[p]);
    check_near(c, "m", chunk, partial[0], largest, bound);
    /* e[p] is exp of a difference of two scores: its relative error is that of the scores. */
    double relative = 2 * bound + 16 * 0x1p-24;
    for (int p = 0; p < n; p++) {
        scores[p] = exp(scores[p] - largest);
        sum += scores[p];
    }
    check_near(c, "l", chunk, partial[1], sum, sum * (relative + 24 * 0x1p-24) + 1e-30);
    for (int i = 0; i < job->head_dim && !c->failed; i++) {
        double out = 0, terms = 0;
        for (int p = 0; p < n; p++) {
            double v = cached(&a->cache, a->sequence[token], chunk * KV_PAGE + p,
                              kv_head_of(job, head), i, true);
            out += scores[p] * v;
            terms += scores[p] * fabs(v);
        }
        check_near(c, "o", i, partial[2 + i], out, terms * (relative + n * 0x1p-24) + 1e-30);
    }
}

/* token_block: the bits that the other way and attention_fold give. */
static void verify_blocks(struct check *c)
{
    const struct kernel_row *fold = kernel_select(OP_attention_fold, PACKING_none, ISA_scalar);
    union job job = c->job, folding = {0};
    struct attention_job *a = &job.attention;
    int64_t n_partial = (int64_t)a->n_tokens * a->n_heads * a->n_chunks * (2 + a->head_dim);
    a->partial = check_memory(c, (size_t)n_partial, sizeof *a->partial);
    a->token_block = 0;
    a->chunk0 = 0;
    a->chunk_step = 1;
    a->out = NULL;
    int64_t used = (int64_t)a->n_heads * a->head_dim;
    float *want = check_memory(c, (size_t)(a->n_tokens * used), sizeof *want);
    folding.attention_fold = (struct attention_fold_job){
        a->n_heads, a->head_dim, a->n_chunks, a->partial, a->position, want, used};
    if (!fold || !check_call(c, c->row, &job, 0, a->n_heads_kv * a->n_chunks) ||
        !check_call(c, fold, &folding, 0, a->n_tokens * a->n_heads))
        return;
    const struct attention_job *own = &c->job.attention;
    for (int64_t token = 0; token < a->n_tokens && !c->failed; token++)
        for (int64_t i = 0; i < used && !c->failed; i++)
            check_near(c, "out by blocks", i, own->out[token * own->out_stride + i],
                       want[token * used + i], 0);
}

static void verify_attention(struct check *c, const void *context)
{
    const struct attention_case *a = context;
    const struct attention_job *job = &c->job.attention;
    if (job->token_block) {
        verify_blocks(c);
        return;
    }
    for (int token = 0; token < job->n_tokens; token++)
        for (int head = 0; head < job->n_heads; head++)
            for (int chunk = job->chunk0; chunk <= job->position[token] / KV_PAGE && !c->failed;
                 chunk += job->chunk_step)
                verify_chunk(c, a, token, head, chunk);
}

struct attention_shape {
    enum kv_format format;
    int head_dim, n_heads_kv, per_kv, n_tokens;
    enum fill fill;
};

/* One of the two ways; returns the number of units. */
static int set_attention_output(struct check *c, struct attention_job *job, int n_tokens)
{
    int n_heads = job->n_heads, head_dim = job->head_dim;
    if (check_below(c, 3)) {
        size_t n_partials = (size_t)(n_tokens * n_heads * job->n_chunks);
        job->partial = check_block(
            c, "partial", n_partials * (size_t)(2 + head_dim) * sizeof(float), ROLE_OUTPUT);
        int step = job->chunk_step;
        return job->n_heads_kv * ((job->n_chunks - job->chunk0 + step - 1) / step);
    }
    job->token_block = 1 + check_below(c, n_tokens + 1);
    job->out_stride = n_heads * head_dim + check_below(c, 2) * 7;
    job->out = check_rows(c, "out", n_tokens, (size_t)job->out_stride * sizeof(float),
                          (size_t)(n_heads * head_dim) * sizeof(float));
    size_t title = strlen(c->title);
    snprintf(c->title + title, sizeof c->title - title, ", blocks of %d", job->token_block);
    return job->n_heads_kv * ((n_tokens + job->token_block - 1) / job->token_block);
}

static void attention_once(struct check *c, const struct attention_shape *s)
{
    if (check_passes_over(c))
        return;
    static const int lengths[] = {1, 2, 7, 15, 16, 17, 33, 64, 255, 256, 257, 300, 511, 513};
    struct attention_case a;
    struct attention_job *job = &c->job.attention;
    int length = lengths[check_below(c, 14)], n_chunks = 3;
    if (length < s->n_tokens)
        length = s->n_tokens;
    check_begin(c, "%s, %d tokens to position %d, %d x %d heads of %d, fill %s",
                s->format ? "q8_0" : "f16", s->n_tokens, length - 1, s->n_heads_kv, s->per_kv,
                s->head_dim, fill_names[s->fill]);
    /* Now and then a job begins or ends within a group, or sees some heads of the pages only. */
    job->group = s->per_kv;
    job->head_offset = check_below(c, 3) ? 0 : check_below(c, s->per_kv);
    job->kv_head0 = check_below(c, 3) ? 0 : 1;
    job->n_page_heads = s->n_heads_kv + job->kv_head0 + check_below(c, 2);
    int n_heads = s->n_heads_kv * s->per_kv - job->head_offset;
    int n_last = s->n_heads_kv == 1 ? n_heads : s->per_kv; /* query heads of the last group */
    n_heads -= check_below(c, 3) ? 0 : check_below(c, n_last);
    int used = n_heads * s->head_dim;
    a.cache = make_cache(c, s->format, job->n_page_heads, s->head_dim, n_chunks, 2, ROLE_INPUT);
    job->format = s->format;
    job->n_heads = n_heads;
    job->n_heads_kv = s->n_heads_kv;
    job->head_dim = s->head_dim;
    job->n_tokens = s->n_tokens;
    job->n_chunks = (length + KV_PAGE - 1) / KV_PAGE + check_below(c, 2);
    if (job->n_chunks > n_chunks)
        job->n_chunks = n_chunks;
    job->chunk_step = 1 + check_below(c, 2);
    job->chunk0 = check_below(c, job->chunk_step);
    job->chunk0 = job->chunk0 < job->n_chunks ? job->chunk0 : 0;
    job->scale = 1.0f / sqrtf((float)s->head_dim);
    job->q_stride = used + check_below(c, 3) * 7;
    enum fill fill = s->fill == FILL_MIN || s->fill == FILL_MAX ? FILL_ONES : s->fill;
    job->q = check_floats(c, "q", s->n_tokens, used, job->q_stride, fill);
    size_t n = (size_t)s->n_tokens;
    int32_t *position = check_block(c, "position", n * sizeof *position, ROLE_INPUT);
    int *sequence = check_memory(c, n, sizeof *sequence);
    uint8_t ***pages = check_block(c, "token pages", n * sizeof *pages, ROLE_INPUT);
    /* A prompt, or the last tokens of two sequences. */
    bool is_prompt = check_below(c, 2);
    for (int token = 0; token < s->n_tokens; token++) {
        sequence[token] = is_prompt ? 0 : token % 2;
        position[token] = is_prompt ? length - s->n_tokens + token : check_below(c, length);
        pages[token] = a.cache.pages + sequence[token] * n_chunks;
    }
    for (int k = 0; k < 2; k++) {
        int n_seen = 0;
        for (int token = 0; token < s->n_tokens; token++)
            if (sequence[token] == k && position[token] >= n_seen)
                n_seen = position[token] + 1;
        fill_cache(c, &a.cache, k, n_seen, s->fill);
    }
    a.sequence = sequence;
    job->position = position;
    job->pages = (uint8_t *const *const *)pages;
    int n_units = set_attention_output(c, job, s->n_tokens);
    check_run(c, n_units, verify_attention, &a);
}

void check_attention(struct check *c)
{
    static const int tokens[] = {1, 1, 2, 3, 5, 8, 17};
    for (int i = 0; i < 9 * 14 && !c->failed; i++) {
        struct attention_shape s = {.format = i % 2, .head_dim = head_dims[i / 14]};
        s.n_heads_kv = 1 + check_below(c, 2);
        s.per_kv = 1 + check_below(c, 8);
        s.n_tokens = tokens[check_below(c, 7)];
        s.fill = check_below(c, 2) ? FILL_RANDOM : i / 2 % N_FILLS;
        attention_once(c, &s);
    }
}

/* Layers of 8 KV heads with 4 query heads each at 4096 positions: f16. */
bool large_attention(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    enum { N_KV = 8, PER_KV = 4, DIM = 128, N_CHUNKS = 16 };
    struct kv_page_layout layout = kv_page_layout(KV_FORMAT_F16, N_KV, DIM);
    int n_tokens = large->n_tokens < 17 ? large->n_tokens : 16;
    int n_layers = (int)((large->bytes + N_CHUNKS * layout.bytes - 1) / (N_CHUNKS * layout.bytes));
    struct cache k = make_cache(c, KV_FORMAT_F16, N_KV, DIM, N_CHUNKS, n_layers, ROLE_INPUT);
    fill_cache(c, &(struct cache){KV_FORMAT_F16, layout, N_KV, DIM, 1, k.bytes, k.pages}, 0,
               KV_PAGE, FILL_RANDOM);
    for (int i = 1; i < n_layers * N_CHUNKS; i++)
        memcpy(k.pages[i], k.pages[0], (size_t)layout.bytes);
    float *q = check_block(c, "q", (size_t)n_tokens * N_KV * PER_KV * DIM * sizeof *q, ROLE_INPUT);
    for (int i = 0; i < n_tokens * N_KV * PER_KV * DIM; i++)
        q[i] = check_float(c, FILL_RANDOM);
    size_t n_partial = (size_t)n_tokens * N_KV * PER_KV * N_CHUNKS * (2 + DIM);
    float *partial = check_block(c, "partial", n_partial * sizeof *partial, ROLE_OUTPUT);
    int32_t *position = check_block(c, "position", (size_t)n_tokens * sizeof *position, ROLE_INPUT);
    size_t n_pages = (size_t)(n_layers * n_tokens);
    uint8_t ***pages = check_block(c, "token pages", n_pages * sizeof *pages, ROLE_INPUT);
    c->jobs = check_memory(c, (size_t)n_layers, sizeof *c->jobs);
    for (int token = 0; token < n_tokens; token++)
        position[token] = N_CHUNKS * KV_PAGE - n_tokens + token;
    for (int layer = 0; layer < n_layers; layer++) {
        for (int token = 0; token < n_tokens; token++)
            pages[layer * n_tokens + token] = k.pages + layer * N_CHUNKS;
        c->jobs[layer].attention =
            (struct attention_job){.format = KV_FORMAT_F16,
                                   .n_heads = N_KV * PER_KV,
                                   .n_heads_kv = N_KV,
                                   .head_dim = DIM,
                                   .group = PER_KV,
                                   .n_page_heads = N_KV,
                                   .chunk_step = 1,
                                   .n_tokens = n_tokens,
                                   .n_chunks = N_CHUNKS,
                                   .scale = 0.088f,
                                   .q = q,
                                   .q_stride = N_KV * PER_KV * DIM,
                                   .position = position,
                                   .pages = (uint8_t *const *const *)(pages + layer * n_tokens),
                                   .partial = partial};
    }
    c->n_jobs = n_layers;
    c->n_units = N_KV * N_CHUNKS;
    int64_t bytes = (int64_t)n_layers * N_CHUNKS * layout.bytes;
    c->work = (struct workload){bytes, bytes / 2, 0};
    return true;
}

static void verify_fold(struct check *c, const void *context)
{
    int n_tokens = *(const int *)context;
    const struct attention_fold_job *job = &c->job.attention_fold;
    int64_t size = 2 + job->head_dim;
    for (int unit = 0; unit < n_tokens * job->n_heads && !c->failed; unit++) {
        int token = unit / job->n_heads, n = job->position[token] / KV_PAGE + 1;
        const float *partial = job->partial + (int64_t)unit * job->n_chunks * size;
        const float *out = job->out + token * job->out_stride + unit % job->n_heads * job->head_dim;
        double largest = -INFINITY, sum = 0;
        for (int k = 0; k < n; k++)
            largest = fmax(largest, partial[k * size]);
        for (int k = 0; k < n; k++)
            sum += partial[k * size + 1] * exp(partial[k * size] - largest);
        for (int i = 0; i < job->head_dim && !c->failed; i++) {
            double want = 0, terms = 0;
            for (int k = 0; k < n; k++) {
                double term = partial[k * size + 2 + i] * exp(partial[k * size] - largest) / sum;
                want += term;
                terms += fabs(term);
            }
            check_near(c, "out", i, out[i], want, terms * (n + 4) * 16 * 0x1p-24 + 1e-40);
        }
    }
}

void check_attention_fold(struct check *c)
{
    for (int i = 0; i < 9 * 20 && !c->failed; i++) {
        struct attention_fold_job *job = &c->job.attention_fold;
        enum fill fill = i % N_FILLS;
        int head_dim = head_dims[i / 20], n_heads = 1 + check_below(c, 6);
        int n_tokens = 1 + check_below(c, 4), n_chunks = 1 + check_below(c, 9);
        check_begin(c, "%d tokens, %d heads of %d, %d chunks, fill %s", n_tokens, n_heads, head_dim,
                    n_chunks, fill_names[fill]);
        size_t size = (size_t)(2 + head_dim);
        int n_parts = n_tokens * n_heads * n_chunks;
        float *partial = check_floats(c, "partial", n_parts, (int64_t)size, (int64_t)size, fill);
        int32_t *position =
            check_block(c, "position", (size_t)n_tokens * sizeof *position, ROLE_INPUT);
        for (int token = 0; token < n_tokens; token++)
            position[token] = check_below(c, n_chunks * KV_PAGE);
        for (int part = 0; part < n_parts; part++) {
            float *at = partial + (size_t)part * size;
            bool is_seen = part % n_chunks <= position[part / n_chunks / n_heads] / KV_PAGE;
            at[0] = check_float(c, FILL_RANDOM) * (fill == FILL_ONES ? 60.0f : 4.0f);
            at[1] = 1.0f + fabsf(check_float(c, FILL_RANDOM)) * 100.0f;
            for (size_t k = 0; k < size && !is_seen; k++)
                at[k] = NAN; /* nobody wrote it */
        }
        *job = (struct attention_fold_job){n_heads,
                                           head_dim,
                                           n_chunks,
                                           partial,
                                           position,
                                           NULL,
                                           n_heads * head_dim + check_below(c, 3) * 7};
        job->out = check_rows(c, "out", n_tokens, (size_t)job->out_stride * sizeof(float),
                              (size_t)(n_heads * head_dim) * sizeof(float));
        check_run(c, n_tokens * n_heads, verify_fold, &n_tokens);
    }
}

bool large_attention_fold(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    enum { N_HEADS = 32, DIM = 128, N_CHUNKS = 16 };
    int64_t token_bytes = (int64_t)N_HEADS * N_CHUNKS * (2 + DIM) * (int64_t)sizeof(float);
    int n_tokens = (int)(large->bytes / token_bytes) + 1;
    size_t n = (size_t)(n_tokens * token_bytes) / sizeof(float);
    float *partial = check_block(c, "partial", n * sizeof *partial, ROLE_INPUT);
    for (size_t i = 0; i < n; i++)
        partial[i] = i < 65536 ? 1.0f + check_float(c, FILL_ONES) * 0.5f : partial[i - 65536];
    int32_t *position = check_block(c, "position", (size_t)n_tokens * sizeof *position, ROLE_INPUT);
    for (int token = 0; token < n_tokens; token++)
        position[token] = N_CHUNKS * KV_PAGE - 1;
    float *out = check_block(c, "out", (size_t)n_tokens * N_HEADS * DIM * sizeof *out, ROLE_OUTPUT);
    c->job.attention_fold =
        (struct attention_fold_job){N_HEADS, DIM, N_CHUNKS, partial, position, out, N_HEADS * DIM};
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = n_tokens * N_HEADS;
    c->work = (struct workload){n_tokens * token_bytes, (int64_t)n, 0};
    return true;
}
