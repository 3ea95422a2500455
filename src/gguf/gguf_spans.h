/* Where the tensors of a file lie: lets the span_rule find their sizes, then checks that each is
 * wholly inside its file and that none overlap. */
#ifndef TRINE_GGUF_GGUF_SPANS_H
#define TRINE_GGUF_GGUF_SPANS_H

#include "gguf/gguf_read.h"

/* Fills room, is_last, format, bytes and data of all tensors.
 * errors  FORMAT (cut short, overlapping), MEMORY, and those of the rule */
enum status gguf_place_tensors(struct gguf_file *file, span_rule *rule, struct error *err);

#endif
