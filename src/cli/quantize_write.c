#include "cli/quantize_write.h"

#include <string.h>

#include "base/memory.h"
#include "cli/quantize_chunk.h"
#include "cli/status_line.h"
#include "gguf/gguf_write.h"
#include "model/model_load.h"

/* Weights encoded before they are written, if a chunk has no more. Two such batches are in memory: one is
 * written while the next is encoded. */
#define BATCH_WEIGHTS ((int64_t)1 << 23)

/* Bytes of a tensor that is kept, compared by one thread at a time. */
#define KEPT_BYTES    ((uint64_t)1 << 20)

struct writing {
    const struct quantize_plan *plan;
    const struct gguf_file *in;
    const char *in_path, *out_path;
    enum format_id type;
    struct quantize_error *errors;
    struct chunk_team *team;
    struct gguf_writer out;
    int64_t batch_chunks;         /* most of a batch */
    struct chunk_memory *memory;  /* owned: per thread */
    struct chunk_result *results; /* owned: per chunk of a batch */
    uint8_t *bytes[2];            /* owned: encoded batches */
    uint64_t *hashes;             /* owned: per tensor, of the bytes that its encoder made */
    int turn;                     /* which of `bytes` is free */
    const uint8_t *pending; /* borrowed: what is to be written next, of `bytes` or of the source */
    size_t n_pending;
};

/* Chunks [first, first + n) of a tensor. */
struct batch {
    struct writing *w;
    struct chunk_source *source;
    const struct tensor *written; /* read back; NULL while writing */
    int64_t first, n;
    size_t chunk_bytes; /* encoded; of the tensor's last chunk fewer */
    uint8_t *out;
};

/* The number by which other programs name a file of this type; -1: it has none. Of the K types the
 * variant that has no other type among its projections ("Q4_K_S"). */
static int file_type(enum format_id type)
{
    switch (type) {
    case FORMAT_F32: return 0;
    case FORMAT_F16: return 1;
    case FORMAT_Q4_0: return 2;
    case FORMAT_Q4_1: return 3;
    case FORMAT_Q8_0: return 7;
    case FORMAT_Q5_0: return 8;
    case FORMAT_Q5_1: return 9;
    case FORMAT_Q2_K: return 10;
    case FORMAT_Q3_K: return 11;
    case FORMAT_Q4_K: return 14;
    case FORMAT_Q5_K: return 16;
    case FORMAT_Q6_K: return 18;
    case FORMAT_IQ4_NL: return 25;
    case FORMAT_IQ4_XS: return 30;
    case FORMAT_BF16: return 32;
    case FORMAT_TQ1_0: return 36;
    case FORMAT_TQ2_0: return 37;
    default: return -1;
    }
}

#define QUANTIZATION_VERSION 2 /* of all block types */

/* All pairs but those about splitting, because the parts become one file, and about types. */
static enum status put_pairs(struct writing *w, struct error *err)
{
    bool is_float = format_of(w->type)->block == 1;
    for (size_t i = 0; i < w->in->n_pairs; i++) {
        const struct gguf_pair *pair = &w->in->pairs[i];
        bool is_version = text_is(pair->key, "general.quantization_version") && !is_float;
        if (!text_starts(pair->key, "split.") && !text_is(pair->key, "general.file_type") &&
            !is_version)
            TRY(gguf_put_pair(&w->out, pair, err));
    }
    if (file_type(w->type) >= 0)
        TRY(gguf_put_u32(&w->out, "general.file_type", (uint32_t)file_type(w->type), err));
    if (!is_float)
        TRY(gguf_put_u32(&w->out, "general.quantization_version", QUANTIZATION_VERSION, err));
    return STATUS_OK;
}

static enum status put_tensors(struct writing *w, struct error *err)
{
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        const struct gguf_tensor *t = &w->in->tensors[i];
        const struct tensor_plan *plan = &w->plan->tensors[i];
        bool is_kept = plan->how == QUANTIZE_KEEP;
        TRY(gguf_put_tensor(&w->out, t->span.name, (int)t->n_dims, t->span.ne,
                            is_kept ? t->span.type_id : format_of(plan->target)->type_id,
                            plan->bytes, err));
    }
    return STATUS_OK;
}

static enum status write_pending(struct writing *w, struct error *err)
{
    size_t n = w->n_pending;
    w->n_pending = 0;
    return gguf_write_data(&w->out, w->pending, n, err);
}

/* What the errors of a tensor are is added in the order of its chunks. */
static void add_results(const struct batch *b, size_t i, uint64_t *hash)
{
    struct quantize_error *error = &b->w->errors[i];
    for (int64_t k = 0; k < b->n; k++) {
        const struct chunk_result *result = &b->w->results[k];
        error->difference2 += result->difference2;
        error->weight2 += result->weight2;
        *hash = number_hash(*hash ^ result->hash);
    }
}

static enum status gather_chunk(void *context, int64_t k, int thread, struct error *err)
{
    const struct batch *b = context;
    return chunk_gather(b->source, b->first + k, &b->w->memory[thread], &b->w->results[k], err);
}

/* Joins the scales of chunks; false if there are two. */
static bool join_scales(struct batch *b)
{
    struct ternary_scale *all = &b->source->scale;
    for (int64_t k = 0; k < b->n; k++) {
        const struct ternary_scale *own = &b->w->results[k].scale;
        if (own->is_found && all->is_found && own->scale != all->scale)
            return false;
        if ((own->is_found && !all->is_found) || b->first + k == 0)
            *all = *own;
    }
    return true;
}

/* The scale of a target that has one in all. */
static enum status find_scale(struct batch *b, struct error *err)
{
    int64_t n = chunk_count(b->source);
    struct error any;
    bool is_one = true;
    for (b->first = 0; is_one && b->first < n; b->first += b->n) {
        b->n = n - b->first < b->w->batch_chunks ? n - b->first : b->w->batch_chunks;
        is_one =
            chunk_team_run(b->w->team, b->n, gather_chunk, b, &any) == STATUS_OK && join_scales(b);
    }
    return is_one ? STATUS_OK : chunk_gather_all(b->source, &b->w->memory[0], err);
}

/* The first to come writes what is pending, the others encode. */
static enum status write_or_encode(void *context, int64_t k, int thread, struct error *err)
{
    const struct batch *b = context;
    if (k == 0)
        return write_pending(b->w, err);
    return chunk_encode(b->source, b->first + k - 1, &b->w->memory[thread],
                        b->out + (size_t)(k - 1) * b->chunk_bytes, &b->w->results[k - 1], err);
}

/* Encodes chunks from `first` on, and leaves them pending. */
static enum status encode_batch(struct batch *b, size_t i, struct error *err)
{
    struct writing *w = b->w;
    int64_t left = chunk_count(b->source) - b->first;
    enum format_id target = b->source->plan->target;
    b->n = left < w->batch_chunks ? left : w->batch_chunks;
    b->out = w->bytes[w->turn];
    memset(w->results, 0, (size_t)b->n * sizeof *w->results);
    TRY(chunk_team_run(w->team, b->n + 1, write_or_encode, b, err));
    add_results(b, i, &w->hashes[i]);
    struct chunk_rows last = chunk_rows_of(b->source, b->first + b->n - 1);
    w->pending = b->out;
    w->n_pending = (size_t)(last.end - b->first * b->source->n_rows) *
                   format_row_bytes(target, (uint64_t)b->source->source.n_cols);
    w->turn = !w->turn;
    if (b->n == left && format_of(target)->is_ternary) {
        ternary_encode_tail(target, &b->source->scale, b->out + w->n_pending);
        w->n_pending += (size_t)format_of(target)->tensor_tail;
    }
    return STATUS_OK;
}

static enum status write_changed(struct writing *w, size_t i, struct error *err)
{
    const struct tensor_plan *plan = &w->plan->tensors[i];
    struct chunk_source source = chunk_source_of(w->in_path, &w->in->tensors[i], plan);
    struct batch b = {.w = w, .source = &source};
    b.chunk_bytes =
        (size_t)source.n_rows * format_row_bytes(plan->target, (uint64_t)source.source.n_cols);
    if (plan->how == QUANTIZE_CODES && format_of(plan->target)->scale_group < 0)
        TRY(find_scale(&b, err));
    for (b.first = 0; b.first < chunk_count(&source); b.first += b.n)
        TRY(encode_batch(&b, i, err));
    return STATUS_OK;
}

static enum status write_tensors(struct writing *w, struct error *err)
{
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        const struct gguf_tensor *g = &w->in->tensors[i];
        if (w->plan->tensors[i].how == QUANTIZE_KEEP) {
            TRY(write_pending(w, err));
            w->pending = g->data;
            w->n_pending = g->span.bytes;
        } else {
            TRY(write_changed(w, i, err));
        }
        status_line_count("write", i + 1, w->in->n_tensors);
    }
    return write_pending(w, err);
}

static enum status compare_chunk(void *context, int64_t k, int thread, struct error *err)
{
    const struct batch *b = context;
    return chunk_compare(b->source, b->first + k, b->written, &b->w->memory[thread],
                         &b->w->results[k], err);
}

static enum status verify_changed(struct writing *w, size_t i, const struct tensor *written,
                                  uint64_t *hash, struct error *err)
{
    struct chunk_source source =
        chunk_source_of(w->in_path, &w->in->tensors[i], &w->plan->tensors[i]);
    struct batch b = {.w = w, .source = &source, .written = written};
    int64_t n = chunk_count(&source);
    for (b.first = 0; b.first < n; b.first += b.n) {
        b.n = n - b.first < w->batch_chunks ? n - b.first : w->batch_chunks;
        memset(w->results, 0, (size_t)b.n * sizeof *w->results);
        TRY(chunk_team_run(w->team, b.n, compare_chunk, &b, err));
        add_results(&b, i, hash);
    }
    return STATUS_OK;
}

/* A tensor that stays as it is, and what was read back. */
struct kept {
    const struct gguf_tensor *source, *written;
    _Atomic bool is_other;
};

static enum status compare_kept(void *context, int64_t chunk, int thread, struct error *err)
{
    struct kept *kept = context;
    uint64_t begin = (uint64_t)chunk * KEPT_BYTES, left = kept->source->span.bytes - begin;
    (void)thread, (void)err;
    if (memcmp(kept->source->data + begin, kept->written->data + begin,
               left < KEPT_BYTES ? left : KEPT_BYTES) != 0)
        kept->is_other = true;
    return STATUS_OK;
}

static bool is_kept_same(struct writing *w, const struct gguf_tensor *source,
                         const struct gguf_tensor *written)
{
    struct kept kept = {source, written, false};
    int64_t n = (int64_t)((source->span.bytes + KEPT_BYTES - 1) / KEPT_BYTES);
    return chunk_team_run(w->team, n, compare_kept, &kept, NULL) == STATUS_OK && !kept.is_other;
}

static enum status verify_tensor(struct writing *w, size_t i, const struct gguf_tensor *g,
                                 struct error *err)
{
    const struct tensor_plan *plan = &w->plan->tensors[i];
    struct tensor t = model_tensor(g);
    uint64_t hash = 0;
    if (t.format != plan->target) /* one id may stand for several layouts */
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s' would be read back as %s, not as %s; choose another type",
                    w->out_path, TEXT(g->span.name), format_of(t.format)->name,
                    format_of(plan->target)->name);
    bool is_same = g->span.bytes == plan->bytes;
    if (is_same && plan->how == QUANTIZE_KEEP)
        is_same = is_kept_same(w, &w->in->tensors[i], g);
    else if (is_same)
        TRY(verify_changed(w, i, &t, &hash, err));
    if (is_same && plan->how == QUANTIZE_VALUES)
        is_same = hash == w->hashes[i];
    if (is_same)
        return STATUS_OK;
    return fail(err, STATUS_IO,
                "%s: tensor '%.*s' reads back differently from what was written; the disk or "
                "the memory is not reliable",
                w->out_path, TEXT(g->span.name));
}

/* Reads the finished file back under its temporary name. */
static enum status verify(struct writing *w, struct error *err)
{
    struct gguf_file written;
    TRY(gguf_writer_flush(&w->out, err));
    TRY(gguf_open(&written, gguf_writer_name(&w->out), format_resolve, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < written.n_tensors; i++) {
        status = verify_tensor(w, i, &written.tensors[i], err);
        status_line_count("check", i + 1, written.n_tensors);
    }
    gguf_close(&written);
    return status;
}

/* Room for batches of the largest chunks. */
static enum status alloc_chunks(struct writing *w, struct error *err)
{
    int64_t most = CHUNK_WEIGHTS;
    int n_threads = chunk_team_size(w->team);
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        int64_t n_cols = (int64_t)w->in->tensors[i].span.ne[0];
        if (w->plan->tensors[i].how == QUANTIZE_KEEP)
            continue;
        int64_t n = chunk_weights(w->plan->tensors[i].target, n_cols);
        most = n > most ? n : most;
    }
    w->batch_chunks = BATCH_WEIGHTS / most > 0 ? BATCH_WEIGHTS / most : 1;
    size_t n_bytes = (size_t)(w->batch_chunks * most) * sizeof(float) + 64; /* F32, a tail */
    w->memory = memory_alloc((size_t)n_threads, sizeof *w->memory);
    w->results = memory_alloc((size_t)w->batch_chunks, sizeof *w->results);
    w->hashes = memory_alloc(w->in->n_tensors, sizeof *w->hashes);
    for (int k = 0; k < 2; k++)
        w->bytes[k] = memory_alloc(n_bytes, 1);
    if (!w->memory || !w->results || !w->hashes || !w->bytes[0] || !w->bytes[1])
        return fail_memory(err, w->in_path, 2 * n_bytes);
    for (int k = 0; k < n_threads; k++)
        TRY(chunk_memory_open(&w->memory[k], most, w->in_path, err));
    return STATUS_OK;
}

static enum status write_all(struct writing *w, struct error *err)
{
    TRY(alloc_chunks(w, err));
    TRY(gguf_writer_open(&w->out, w->out_path, err));
    TRY(put_pairs(w, err));
    TRY(put_tensors(w, err));
    TRY(gguf_write_header(&w->out, err));
    TRY(write_tensors(w, err));
    TRY(verify(w, err));
    return gguf_writer_commit(&w->out, err);
}

static void writing_done(struct writing *w)
{
    gguf_writer_close(&w->out);
    for (int k = 0; w->memory && k < chunk_team_size(w->team); k++)
        chunk_memory_close(&w->memory[k]);
    memory_free(w->memory);
    memory_free(w->results);
    memory_free(w->hashes);
    memory_free(w->bytes[0]);
    memory_free(w->bytes[1]);
}

enum status quantize_write(const struct quantize_plan *plan, const struct gguf_file *in,
                           const char *in_path, const char *out_path, enum format_id type,
                           struct chunk_team *team, struct quantize_error *errors,
                           struct error *err)
{
    struct writing w = {.plan = plan,
                        .in = in,
                        .in_path = in_path,
                        .out_path = out_path,
                        .type = type,
                        .errors = errors,
                        .team = team};
    enum status status = write_all(&w, err);
    writing_done(&w);
    return status;
}
