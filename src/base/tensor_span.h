/* Where a tensor lies in a file: what the file layer and the number layer both speak of, though
 * neither knows the other. The file layer fills name, type id, shape and offset; a rule of the
 * number layer (struct span_rule, implemented by tensor/formats.h) fills format and bytes. */
#ifndef TRINE_BASE_TENSOR_SPAN_H
#define TRINE_BASE_TENSOR_SPAN_H

#include "base/error.h"
#include "base/text.h"

struct tensor_span {
    struct text name;
    uint32_t type_id;   /* as stored in the file */
    uint64_t ne[4];     /* ne[0] = contiguous inputs; missing dimensions are 1; all >= 1 */
    uint64_t offset;    /* bytes from the start of the data section */
    uint64_t room;      /* bytes up to the next tensor by offset, or to the end of the file */
    bool is_last;       /* no tensor follows by offset: room may hold more than padding */
    int shard;          /* file of a split model, 0 first */
    uint64_t alignment; /* of the data section of its file */

    int format;     /* out: enum format_id of tensor/formats.h */
    uint64_t bytes; /* out: exact size of the data */

    const char *reason; /* out: how an ambiguous type id was decided, static text; else NULL */
};

/* Decides format and bytes of all n spans together (some type ids mean different layouts, and only
 * the spans of all tensors tell which). file: for messages.
 * errors  UNSUPPORTED for an unknown type or an undecidable one, FORMAT for a width that is no
 *         multiple of the block or a size that overflows; the text names file, tensor and type. */
typedef enum status span_rule(struct tensor_span *spans, size_t n, const char *file,
                              struct error *err);

#endif
