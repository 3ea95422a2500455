#include "measure/logits_file.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/reader.h"
#include "measure/perplexity.h"

#define MAGIC          "_logits_"
#define HEADER_BYTES   20
#define N_STEPS        65535
#define MAX_VOCAB      (1 << 24)
#define MAX_CTX        (1 << 24)

/* The depth is the difference of two floats: at logits of 10,000 it is off by 6e-5 of itself. */
#define DEPTH_ROUNDING 1e-4

static size_t row_bytes(int n_vocab)
{
    return 8 + 2 * ((size_t)n_vocab + (size_t)n_vocab % 2);
}

static enum status write_tokens(struct logits_writer *writer, const int32_t *tokens, size_t n,
                                struct error *err)
{
    uint8_t bytes[4];
    for (size_t i = 0; i < n; i++) {
        store_u32(bytes, (uint32_t)tokens[i]);
        TRY(output_file_write(&writer->out, bytes, sizeof bytes, err));
    }
    return STATUS_OK;
}

enum status logits_writer_open(struct logits_writer *writer, const char *path,
                               const struct logits_shape *shape, const int32_t *tokens,
                               struct error *err)
{
    *writer = (struct logits_writer){.n_vocab = shape->n_vocab};
    writer->row = memory_alloc(row_bytes(shape->n_vocab), 1);
    if (!writer->row)
        return fail_memory(err, path, row_bytes(shape->n_vocab));
    TRY(output_file_open(&writer->out, path, err));
    uint8_t header[HEADER_BYTES] = MAGIC;
    store_u32(header + 8, (uint32_t)shape->n_ctx);
    store_u32(header + 12, (uint32_t)shape->n_vocab);
    store_u32(header + 16, (uint32_t)shape->n_chunk);
    TRY(output_file_write(&writer->out, header, sizeof header, err));
    return write_tokens(writer, tokens, (size_t)shape->n_ctx * (size_t)shape->n_chunk, err);
}

enum status logits_writer_add(struct logits_writer *writer, const float *logits, struct error *err)
{
    int n = writer->n_vocab;
    double largest = logits[0], smallest = logits[0];
    for (int i = 1; i < n; i++) {
        largest = fmax(largest, logits[i]);
        smallest = fmin(smallest, logits[i]);
    }
    smallest = fmax(smallest, largest - LOGITS_DEPTH);
    float step = (float)((largest - smallest) / N_STEPS);
    store_f32(writer->row, step);
    store_f32(writer->row + 4, (float)(smallest - log_sum_exp(logits, n)));
    for (int i = 0; i < n; i++) {
        double code = step > 0 ? floor((logits[i] - smallest) / step + 0.5) : 0;
        store_u16(writer->row + 8 + 2 * i, (uint16_t)fmin(fmax(code, 0), N_STEPS));
    }
    return output_file_write(&writer->out, writer->row, row_bytes(n), err);
}

enum status logits_writer_commit(struct logits_writer *writer, struct error *err)
{
    return output_file_commit(&writer->out, err);
}

void logits_writer_close(struct logits_writer *writer)
{
    output_file_close(&writer->out);
    memory_free(writer->row);
    writer->row = NULL;
}

static enum status fail_read(const struct logits_reader *r, struct error *err)
{
    if (ferror(r->stream))
        return fail(err, STATUS_IO, "%s: cannot read: %s", r->path, strerror(errno));
    return fail(err, STATUS_FORMAT, "%s: ends early; it was cut while it was read", r->path);
}

static enum status read_header(struct logits_reader *r, uint64_t size, struct error *err)
{
    uint8_t header[HEADER_BYTES];
    if (size < HEADER_BYTES || fread(header, HEADER_BYTES, 1, r->stream) != 1 ||
        memcmp(header, MAGIC, 8) != 0)
        return fail(err, STATUS_FORMAT,
                    "%s: does not begin with \"%s\" and a header of %d bytes: this is no file of "
                    "logits; write one with --kl-base",
                    r->path, MAGIC, HEADER_BYTES);
    uint32_t n_ctx = load_u32(header + 8), n_vocab = load_u32(header + 12);
    uint32_t n_chunk = load_u32(header + 16);
    if (n_ctx < MIN_CHUNK || n_ctx > MAX_CTX || n_vocab < 1 || n_vocab > MAX_VOCAB || n_chunk < 1 ||
        n_chunk > INT32_MAX)
        return fail(err, STATUS_FORMAT,
                    "%s: claims %u chunks of %u tokens and a vocabulary of %u; expected at least 1 "
                    "chunk of %d to %d tokens and a vocabulary of 1 to %d",
                    r->path, n_chunk, n_ctx, n_vocab, MIN_CHUNK, MAX_CTX, MAX_VOCAB);
    r->shape = (struct logits_shape){(int)n_ctx, (int)n_vocab, (int)n_chunk};
    return STATUS_OK;
}

/* The sizes that the header claims against the one that the file has. */
static enum status check_size(const struct logits_reader *r, uint64_t size, struct error *err)
{
    const struct logits_shape *s = &r->shape;
    uint64_t token_bytes = 4 * (uint64_t)s->n_ctx * (uint64_t)s->n_chunk;
    uint64_t n_rows = (uint64_t)chunk_scored(s->n_ctx) * (uint64_t)s->n_chunk;
    uint64_t bytes = row_bytes(s->n_vocab), left = size - HEADER_BYTES;
    if (left >= token_bytes && (left - token_bytes) % bytes == 0 &&
        (left - token_bytes) / bytes == n_rows)
        return STATUS_OK;
    return fail(err, STATUS_FORMAT,
                "%s: has %llu bytes, but %d chunks of %d tokens over a vocabulary of %d take "
                "%.0f; it is cut or damaged, write it again",
                r->path, (unsigned long long)size, s->n_chunk, s->n_ctx, s->n_vocab,
                HEADER_BYTES + (double)token_bytes + (double)n_rows * (double)bytes);
}

static enum status read_tokens(struct logits_reader *r, struct error *err)
{
    size_t n = (size_t)r->shape.n_ctx * (size_t)r->shape.n_chunk;
    r->tokens = memory_alloc(n, sizeof *r->tokens);
    if (!r->tokens)
        return fail_memory(err, r->path, n * sizeof *r->tokens);
    if (fread(r->tokens, sizeof *r->tokens, n, r->stream) != n)
        return fail_read(r, err);
    for (size_t i = 0; i < n; i++) {
        r->tokens[i] = (int32_t)load_u32((const uint8_t *)(r->tokens + i));
        if (r->tokens[i] < 0 || r->tokens[i] >= r->shape.n_vocab)
            return fail(err, STATUS_FORMAT, "%s: token %zu is %d; ids are 0 to %d", r->path, i,
                        r->tokens[i], r->shape.n_vocab - 1);
    }
    return STATUS_OK;
}

enum status logits_reader_open(struct logits_reader *r, const char *path, struct error *err)
{
    *r = (struct logits_reader){.path = path, .stream = fopen(path, "rb")};
    struct stat stat;
    if (!r->stream || fstat(fileno(r->stream), &stat) != 0)
        return fail(err, STATUS_IO, "%s: cannot open the logits: %s", path, strerror(errno));
    if (!S_ISREG(stat.st_mode))
        return fail(err, STATUS_IO, "%s: is no regular file; logits are read from one", path);
    TRY(read_header(r, (uint64_t)stat.st_size, err));
    TRY(check_size(r, (uint64_t)stat.st_size, err));
    TRY(read_tokens(r, err));
    size_t n = (size_t)r->shape.n_vocab;
    r->bytes = memory_alloc(row_bytes(r->shape.n_vocab), 1);
    r->log_p = memory_alloc(n, sizeof *r->log_p);
    return r->bytes && r->log_p ? STATUS_OK : fail_memory(err, path, n * sizeof *r->log_p);
}

/* What the entries of a row sum to: those that are kept, and the others at most. */
struct row_sum {
    double kept, tail_most;
};

static struct row_sum sum_row(const struct base_row *row, int n_vocab, double step)
{
    struct row_sum sum = {0};
    double n_tail = 0;
    for (int i = 0; i < n_vocab; i++) {
        if (row->log_p[i] > row->floor)
            sum.kept += exp(row->log_p[i]);
        else
            n_tail++;
    }
    sum.tail_most = n_tail > 0 ? n_tail * exp(row->floor + step / 2) : 0;
    return sum;
}

/* Can it be 1? Each log p is off by a step at most, and by 0.001 for what programs computed in
 * float; a file so coarse that 1 % is in doubt says nothing. */
static enum status check_sum(const struct logits_reader *r, const struct row_sum *sum, double step,
                             struct error *err)
{
    double most = fmin(step + 0.001, 0.01);
    if (sum->kept <= 1 + most && sum->kept + sum->tail_most >= 1 - most)
        return STATUS_OK;
    return fail(err, STATUS_FORMAT,
                "%s: the probabilities of row %lld sum to %g, not to 1: the file is damaged or too "
                "coarse, write it again",
                r->path, (long long)r->n_read, sum->kept + sum->tail_most);
}

/* The limits of what a row of the full depth does not keep: what is left of 1, give or take the
 * rounding of what is kept, and not more than if all of it lay at the floor. */
static void find_tail(struct base_row *row, const struct row_sum *sum, double step)
{
    double rounding = sum->kept * step / 2 + 1e-5; /* and of step and lowest to float */
    row->tail_most = fmax(0, fmin(1 - sum->kept + rounding, sum->tail_most));
    row->tail_least = fmin(fmax(0, 1 - sum->kept - rounding), row->tail_most);
}

enum status logits_reader_next(struct logits_reader *r, struct base_row *row, struct error *err)
{
    int n = r->shape.n_vocab;
    if (fread(r->bytes, row_bytes(n), 1, r->stream) != 1)
        return fail_read(r, err);
    double step = load_f32(r->bytes), lowest = load_f32(r->bytes + 4);
    double highest = lowest + step * N_STEPS;
    /* 0.001 is for rounding to float */
    if (!(step >= 0 && isfinite(lowest) && highest < 0.001 && highest > -log(n) - 0.001))
        return fail(err, STATUS_FORMAT,
                    "%s: row %lld reaches from %g to %g; the largest log p of %d tokens is between "
                    "%.3f and 0: the file is damaged",
                    r->path, (long long)r->n_read, lowest, highest, n, -log(n));
    for (int i = 0; i < n; i++)
        r->log_p[i] = lowest + step * load_u16(r->bytes + 8 + 2 * i);
    *row = (struct base_row){.log_p = r->log_p, .floor = -INFINITY};
    if (fabs(step * N_STEPS / LOGITS_DEPTH - 1) < DEPTH_ROUNDING)
        row->floor = lowest;
    struct row_sum sum = sum_row(row, n, step);
    TRY(check_sum(r, &sum, step, err));
    if (row->floor > -INFINITY)
        find_tail(row, &sum, step);
    r->n_read++;
    return STATUS_OK;
}

void logits_reader_close(struct logits_reader *r)
{
    if (r->stream)
        fclose(r->stream);
    memory_free(r->tokens);
    memory_free(r->bytes);
    memory_free(r->log_p);
    *r = (struct logits_reader){0};
}
