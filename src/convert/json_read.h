/* JSON files of strangers, and typed access to their members. A member that is null counts as
 * absent. Every refusal names the file, the key, what was expected and what is there. */
#ifndef TRINE_CONVERT_JSON_READ_H
#define TRINE_CONVERT_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* An object and what to call it in messages: the file, or "FILE: rope_scaling". */
struct json_object {
    const json_t *json; /* borrowed */
    const char *name;   /* borrowed */
};

/* Reads a file that holds one object without repeated keys. *root: NULL when is_optional and there
 * is no such file; else the caller calls json_decref.
 * errors  IO, FORMAT, MEMORY; LIMIT above 1 GiB */
enum status json_read_file(const char *path, bool is_optional, json_t **root, struct error *err);

/* The same from bytes; name: for messages. */
enum status json_read_bytes(const char *bytes, size_t n, const char *name, json_t **root,
                            struct error *err);

/* The member, or NULL when absent or null. */
const json_t *json_member(struct json_object o, const char *key);

/* Each leaves *value as it is when the member is absent; json_need_whole refuses that.
 * errors: FORMAT */
enum status json_need_whole(struct json_object o, const char *key, int64_t min, int64_t max,
                            int64_t *value, struct error *err);
enum status json_take_whole(struct json_object o, const char *key, int64_t min, int64_t max,
                            int64_t *value, struct error *err);
enum status json_take_number(struct json_object o, const char *key, double *value,
                             struct error *err);
enum status json_take_bool(struct json_object o, const char *key, bool *value, struct error *err);

/* *value is borrowed from the object. */
enum status json_take_text(struct json_object o, const char *key, const char **value,
                           struct error *err);
enum status json_take_list(struct json_object o, const char *key, const json_t **value,
                           struct error *err);

/* True, and *whole, for a number without a fraction up to 2^53; numbers are read as doubles, because
 * some files hold integers beyond 64 bits. */
bool json_whole(const json_t *value, int64_t *whole);

/* "an object", "a number", ...: what a value is, for messages. */
const char *json_kind(const json_t *value);

#endif
