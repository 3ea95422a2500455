/* Split models: how their files are named and what each says about itself. */
#ifndef TRINE_GGUF_GGUF_SPLIT_H
#define TRINE_GGUF_GGUF_SPLIT_H

#include "gguf/gguf_read.h"

/* Number of files of the model this header belongs to; 1 without the key split.count. errors:
 * FORMAT */
enum status gguf_split_count(const struct gguf_file *header, int *count, struct error *err);

/* Checks that this header, by its keys and by the name of its file, is number `no` (0 first) of
 * `count`. errors: FORMAT, UNSUPPORTED (another file than the first was opened) */
enum status gguf_split_check(const struct gguf_file *header, int no, int count, struct error *err);

/* Name of file `no` of `count` beside `path`, whose own name is <prefix>-%05d-of-%05d.gguf.
 * Owned by the arena; NULL when there is no memory. */
char *gguf_split_name(struct arena *arena, const char *path, int no, int count);

/* Checks that the first header counts as many tensors as all files have. errors: FORMAT */
enum status gguf_split_check_total(const struct gguf_file *header, size_t n_tensors,
                                   struct error *err);

#endif
