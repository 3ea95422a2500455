/* Typed access to GGUF metadata. Integers are accepted in any integer type that holds the value,
 * because writers disagree on the width. Every refusal names the file, the key, what was expected
 * and what is there. */
#ifndef TRINE_GGUF_GGUF_METADATA_H
#define TRINE_GGUF_GGUF_METADATA_H

#include "gguf/gguf_read.h"

/* Required scalar integer in [min, max].
 * errors  FORMAT when absent, of another type, out of range */
enum status gguf_integer(const struct gguf_file *file, const char *key, int64_t min, int64_t max,
                         int64_t *value, struct error *err);

/* As above; *value stays as it is when the key is absent. */
enum status gguf_optional_integer(const struct gguf_file *file, const char *key, int64_t min,
                                  int64_t max, int64_t *value, struct error *err);

/* float32, float64 or any integer type; finite. */
enum status gguf_number(const struct gguf_file *file, const char *key, double *value,
                        struct error *err);
enum status gguf_optional_number(const struct gguf_file *file, const char *key, double *value,
                                 struct error *err);

/* bool, or an integer 0 or 1. *value stays as it is when the key is absent. */
enum status gguf_optional_bool(const struct gguf_file *file, const char *key, bool *value,
                               struct error *err);

enum status gguf_string(const struct gguf_file *file, const char *key, struct text *value,
                        struct error *err);
enum status gguf_optional_string(const struct gguf_file *file, const char *key, struct text *value,
                                 struct error *err);

/* Integer per layer: a scalar gives every layer the same value, an array must have n elements.
 * values: n integers in [min, max]. An absent key leaves values as they are when is_optional. */
enum status gguf_integers_per_layer(const struct gguf_file *file, const char *key, bool is_optional,
                                    int64_t min, int64_t max, int32_t *values, int n,
                                    struct error *err);

/* Array element i of a pair, already checked to be an array of a fitting type: integer types
 * (also bool) and float types convert. i < pair->count. */
int64_t gguf_element_integer(const struct gguf_pair *pair, uint64_t i);
double gguf_element_number(const struct gguf_pair *pair, uint64_t i);
bool gguf_is_integer_type(enum gguf_type type);

/* Walks the strings of an array (or a scalar string): start with *at = 0 and call pair->count
 * times. */
struct text gguf_next_string(const struct gguf_pair *pair, uint64_t *at);

/* Writes a short text of the value for people: numbers, "quoted text" (cut), arrays as
 * [element type, n] with the first elements. Safe for terminals. Returns the length. */
int gguf_describe(const struct gguf_pair *pair, char *out, size_t size);

#endif
