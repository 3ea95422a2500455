/* What `trine quantize` does to each tensor, decided before anything is written: its type, whether
 * that is the wanted one, what it costs if not, and whether the values can be kept. */
#ifndef TRINE_CLI_QUANTIZE_PLAN_H
#define TRINE_CLI_QUANTIZE_PLAN_H

#include <stdio.h>

#include "cli/quantize_rules.h"
#include "gguf/gguf_read.h"

/* Widest row that is converted: far above any model. */
#define QUANTIZE_MAX_WIDTH (1 << 24)

/* The wish of the user. */
struct quantize_wish {
    const char *path;                           /* of the input, for messages */
    enum format_id type;                        /* of the projections */
    enum format_id embedding_type, output_type; /* N_FORMATS: as they are */
    struct quantize_rules rules;                /* before all of these */
};

/* KEEP: the same bytes. CODES: ternary to ternary, every value stays. VALUES: decoded and encoded,
 * with whatever error the type has. */
enum quantize_how { QUANTIZE_KEEP, QUANTIZE_CODES, QUANTIZE_VALUES };

struct tensor_plan {
    enum format_id wanted, target; /* target is another one where the shape does not fit */
    enum quantize_how how;
    int group;      /* CODES: weights per scale in the source */
    uint64_t bytes; /* of target */
};

struct quantize_plan {
    struct tensor_plan *tensors; /* owned: per tensor of the file */
    size_t n_changed, n_misfits; /* misfits: cannot take the wanted type */
    uint64_t bytes_before, bytes_after, misfit_cost;
};

/* errors  FORMAT: scales that are not finite, LIMIT, MEMORY; UNSUPPORTED: rotated weights, values that
 *         are not ternary for a ternary type, no projection at all */
enum status quantize_plan_make(struct quantize_plan *plan, const struct quantize_wish *wish,
                               const struct gguf_file *file, struct error *err);
void quantize_plan_done(struct quantize_plan *plan);

/* The tensors that cannot take the wanted type, what they take instead and what that costs; nothing
 * if there are none. */
void quantize_print_misfits(const struct quantize_plan *plan, const struct gguf_file *file,
                            FILE *out);

/* One line for each kind of tensor and change, and the sums. */
void quantize_print_plan(const struct quantize_plan *plan, const struct gguf_file *file, FILE *out);

/* "blk.3.attn_q.weight" is an "attn_q": what all layers have in common. */
struct text quantize_class(struct text name);

#endif
