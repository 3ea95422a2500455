#include "kernels/pack_trits.h"

#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "kernels/pack_rows.h"
#include "tensor/ternary.h"

enum { READ_BEYOND = 128 };

void trits_expand_plain(const struct tensor *t, int64_t row, int64_t block0, int64_t n_blocks,
                        uint8_t *codes, uint8_t *scratch)
{
    struct ternary_rows rows = {scratch + (t->n_cols / 64 + 1) * 4, (float *)scratch, 0};
    int64_t block = format_of(t->format)->block;
    ternary_extract(t, row, row + 1, &rows);
    memcpy(codes, rows.codes + block0 * block, (size_t)(n_blocks * block));
}

const uint8_t *pack_trits_blocks(const struct tensor *t, int64_t row)
{
    const struct format *f = format_of(t->format);
    int64_t first = row / f->row_group * f->row_group;
    return t->data + first * (int64_t)format_row_bytes(t->format, (uint64_t)t->n_cols) +
           f->row_prefix * f->row_group;
}

/* Scales [first, first + n) of a row; formats with one per row or tensor have only one. */
static void load_scales(const struct tensor *t, int64_t row, int64_t first, int64_t n,
                        float *scales)
{
    const struct format *f = format_of(t->format);
    const uint8_t *p = pack_trits_blocks(t, row);
    if (f->tensor_tail)
        p = t->data + t->n_rows * t->n_cols / 4;
    else if (f->row_prefix)
        p -= f->row_prefix * (f->row_group - row % f->row_group);
    else
        p += first * f->block_bytes + f->scale_at;
    for (int64_t i = 0; i < n; i++, p += f->block_bytes)
        scales[i] = f->is_scale_f32 ? load_f32(p) : f16_to_f32(load_u16(p));
}

/* Codes of one row with the scales of its groups; columns count from the first of the job. */
struct source_row {
    uint8_t *codes;
    const float *scales;
    int64_t group; /* inputs per scale */
    int64_t skip;  /* of the first group's inputs before the first column */
};

/* A walk over the source groups of some columns. */
struct group_walk {
    int64_t i;          /* source group */
    int64_t begin, end; /* its columns */
};

static struct group_walk walk_from(const struct source_row *s, int64_t begin, int64_t end)
{
    int64_t i = (begin + s->skip) / s->group, next = (i + 1) * s->group - s->skip;
    return (struct group_walk){i, begin, next < end ? next : end};
}

static void walk_on(const struct source_row *s, struct group_walk *at, int64_t end)
{
    at->i++;
    at->begin = at->end;
    at->end = at->begin + s->group < end ? at->begin + s->group : end;
}

static bool is_all_zero(const uint8_t *codes, int64_t n)
{
    int64_t i = 0;
    while (i < n && codes[i] == 1)
        i++;
    return i == n;
}

/* The scale of columns [begin, end) where not all scales agree: zeros have no say. */
static float scale_of_nonzeros(const struct source_row *s, int64_t begin, int64_t end)
{
    float first = 0;
    for (struct group_walk at = walk_from(s, begin, end); at.begin < end; walk_on(s, &at, end)) {
        float scale = s->scales[at.i];
        if (scale != 0 && !is_all_zero(s->codes + at.begin, at.end - at.begin))
            return scale;
        first = first == 0 ? scale : first;
    }
    return first;
}

/* The scale of columns [begin, end); codes of scale 0 become zeros. */
static float join_group(const struct source_row *s, int64_t begin, int64_t end)
{
    float joined = 0;
    bool is_joined = true;
    for (struct group_walk at = walk_from(s, begin, end); at.begin < end; walk_on(s, &at, end)) {
        float scale = s->scales[at.i];
        if (scale == 0)
            memset(s->codes + at.begin, 1, (size_t)(at.end - at.begin));
        else if (joined == 0)
            joined = scale;
        else if (scale != joined)
            is_joined = false;
    }
    return is_joined ? joined : scale_of_nonzeros(s, begin, end);
}

/* Writes the scales of row r of a tile. */
static void pack_scales(const struct packed *w, const struct source_row *s, int r, uint8_t *tile)
{
    if (w->group == 0) {
        store_f32(tile + 4 * r, join_group(s, 0, w->n_cols));
        return;
    }
    int unit = packed_unit_inputs(w->packing, w->group);
    uint64_t unit_bytes = packed_tile_bytes(w->packing, w->group, unit);
    for (int64_t first = 0; first < w->n_cols; first += unit, tile += unit_bytes) {
        int64_t unit_end = first + unit < w->n_cols ? first + unit : w->n_cols;
        uint8_t *half = tile + 2 * r;
        for (int64_t begin = first; begin < unit_end; begin += w->group, half += 2 * TILE_ROWS) {
            int64_t end = begin + w->group < unit_end ? begin + w->group : unit_end;
            store_u16(half, f32_to_f16(join_group(s, begin, end)));
        }
    }
}

/* A row of a ternary format. */
static struct source_row coded_row(const struct pack_job *job, struct pack_source from,
                                   trits_expand *expand, uint8_t *codes, uint8_t *scratch)
{
    const struct tensor *t = from.tensor;
    const struct format *f = format_of(t->format);
    int64_t end = job->col0 + job->w.n_cols;
    int64_t block0 = job->col0 / f->block, n_blocks = (end + f->block - 1) / f->block - block0;
    expand(t, from.row, block0, n_blocks, codes, scratch);
    struct source_row s = {.codes = codes + job->col0 % f->block, .scales = (float *)scratch};
    s.group = f->scale_group > 0 ? f->scale_group : t->n_cols;
    s.skip = job->col0 % s.group;
    load_scales(t, from.row, job->col0 / s.group, (s.skip + job->w.n_cols + s.group - 1) / s.group,
                (float *)scratch);
    return s;
}

/* A row of ternary values in another format. The whole row, because the inputs of this job may be
 * zeros, and every node must know the scale of a row. */
static struct source_row value_row(const struct pack_job *job, struct pack_source from,
                                   uint8_t *codes, uint8_t *scratch)
{
    int64_t n_cols = from.tensor->n_cols, group = job->w.group ? job->w.group : n_cols;
    float *scales = (float *)(scratch + (TERNARY_SCRATCH(n_cols) + 3) / 4 * 4);
    ternary_read(from.tensor, from.row, (int)group, scratch, codes, scales);
    return (struct source_row){codes + job->col0, scales + job->col0 / group, group,
                               job->col0 % group};
}

/* Extracts one row of a tile to codes from `to` on and writes its scales. */
static void pack_row(const struct pack_job *job, struct pack_source from, int r,
                     trits_expand *expand, uint8_t *to, int64_t skip, uint8_t *scratch,
                     uint8_t *tile)
{
    bool is_coded = format_of(from.tensor->format)->is_ternary;
    struct source_row s =
        is_coded ? coded_row(job, from, expand, to, scratch) : value_row(job, from, to, scratch);
    pack_scales(&job->w, &s, r, tile);
    if (s.codes != to + skip) /* two sources of different blocks */
        memmove(to + skip, s.codes, (size_t)job->w.n_cols);
}

/* Clears the scales of all units of a tile and makes its steps. */
static void fold_tile(const struct packed *w, const uint8_t *codes, int64_t stride,
                      trits_fold *fold, uint8_t *tile)
{
    int64_t unit = packed_unit_inputs(w->packing, w->group);
    int64_t header = packed_unit_header(w->packing, w->group);
    int64_t step = packed_step_inputs(w->packing);
    unit = unit > 0 ? unit : w->n_cols;
    for (int64_t begin = 0; begin < w->n_cols; begin += unit) {
        int64_t n = w->n_cols - begin < unit ? w->n_cols - begin : unit;
        int64_t n_steps = (n + step - 1) / step;
        fold(codes + begin, stride, n_steps, tile + header);
        tile += header + n_steps * STEP_BYTES;
    }
}

static void clear_headers(const struct packed *w, uint8_t *tile)
{
    int64_t unit = packed_unit_inputs(w->packing, w->group);
    size_t header = (size_t)packed_unit_header(w->packing, w->group);
    unit = unit > 0 ? unit : w->n_cols;
    for (int64_t begin = 0; begin < w->n_cols; begin += unit) {
        memset(tile, 0, header);
        tile += packed_tile_bytes(w->packing, w->group, unit);
    }
}

void pack_trits(const struct pack_job *job, int begin, int end, trits_expand *expand,
                trits_fold *fold)
{
    const struct packed *w = &job->w;
    const struct tensor *t = job->source[0];
    /* The same for all rows, and rows not a multiple of 4096 apart: they would share cache sets. */
    int64_t stride = (t->n_cols + READ_BEYOND + 127) / 128 * 128 + 64;
    uint8_t *codes = job->scratch, *spare = codes + TILE_ROWS * stride;
    int64_t skip =
        format_of(t->format)->is_ternary ? job->col0 % format_of(t->format)->block : job->col0;
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        uint8_t *tile = pack_tile(job, row);
        clear_headers(w, tile);
        for (int r = 0; r < TILE_ROWS; r++) {
            struct pack_source from = pack_source(job, row + r);
            uint8_t *to = codes + r * stride;
            if (from.tensor)
                pack_row(job, from, r, expand, to, skip, spare, tile);
            else
                memset(to + skip, 1, (size_t)w->n_cols);
            memset(to + skip + w->n_cols, 0, READ_BEYOND);
        }
        fold_tile(w, codes + skip, stride, fold, tile);
    }
}
