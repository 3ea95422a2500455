/* Which tensor of a Hugging Face folder becomes which tensor of GGUF, and its values row by row: q
 * and k of architecture `llama` in the order of pairs that GGUF has, packed codes unpacked, weights
 * that are to be made ternary rounded. */
#ifndef TRINE_CONVERT_HF_TENSORS_H
#define TRINE_CONVERT_HF_TENSORS_H

#include "convert/hf_config.h"
#include "convert/safetensors.h"
#include "tensor/formats.h"

enum hf_kind {
    HF_VECTOR,         /* a norm, a bias, divisors of angles */
    HF_ORDINARY,       /* a matrix of any numbers */
    HF_TERNARY_FOUND,  /* numbers that are -s, 0, +s already */
    HF_TERNARY_PACKED, /* codes with a weight_scale */
    HF_TERNARY_MADE,   /* numbers that are rounded here, because the caller asked */
    N_HF_KINDS
};

struct hf_tensor {
    char name[96];      /* in GGUF */
    int64_t rows, cols; /* a vector has one row */
    enum hf_kind kind;
    bool is_projection;
    const struct safetensor *source; /* NULL: `values` */
    const float *values;             /* borrowed; a vector that config.json gives */
    int turned_head; /* elements of a head whose halves become pairs; 0: rows stay in order */
    float scale;     /* packed and made: of the codes */
    float inverse;   /* made: what weights are multiplied with before they are rounded */
    int group;       /* found: weights per scale */
    bool has_one_scale, is_scale_f16; /* ternary: one scale in all; f16 holds every scale */
};

struct hf_tensors {
    struct hf_tensor *list; /* owned */
    size_t n;
    char ignored[200]; /* names that are known to carry nothing, separated by commas */
};

/* Every tensor the architecture needs, with its shape checked; what is left in the folder is
 * refused. Kinds are VECTOR, ORDINARY and TERNARY_PACKED.
 * errors  FORMAT, UNSUPPORTED, MEMORY; the text names the tensor */
enum status hf_tensors_list(struct hf_tensors *tensors, const struct hf_config *config,
                            const struct safetensors *folder, struct error *err);

/* Accepts a zeroed object. */
void hf_tensors_done(struct hf_tensors *tensors);

/* Reads all values once: refuses what is not finite and codes that do not exist, finds matrices that
 * are ternary, and with make_ternary turns ordinary projections into TERNARY_MADE.
 * errors  FORMAT, MEMORY */
enum status hf_tensor_examine(struct hf_tensor *tensor, bool make_ternary, struct error *err);

/* Values of rows [row0, row1): (row1 - row0, cols) floats, exact. */
void hf_tensor_rows(const struct hf_tensor *tensor, int64_t row0, int64_t row1, float *out);

/* The format that holds the numbers as the folder has them. */
enum format_id hf_tensor_stored(const struct hf_tensor *tensor);

/* Codes and scales of the whole matrix, of any ternary kind, in a ternary format.
 * what: for messages; out: format_bytes(...). errors: FORMAT for a row that is not ternary, and as
 * ternary_encode; MEMORY */
enum status hf_tensor_encode(const struct hf_tensor *tensor, enum format_id format,
                             const char *what, uint8_t *out, struct error *err);

#endif
