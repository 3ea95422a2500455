#include "convert/json_read.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file_map.h"

#define MAX_BYTES ((size_t)1 << 30)

const char *json_kind(const json_t *value)
{
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a truth value";
    case JSON_NULL: return "null";
    }
    return "unknown";
}

enum status json_read_bytes(const char *bytes, size_t n, const char *name, json_t **root,
                            struct error *err)
{
    json_error_t problem;
    *root = NULL;
    if (n > MAX_BYTES)
        return fail(err, STATUS_LIMIT, "%s: %zu bytes of JSON; at most %zu are read", name, n,
                    MAX_BYTES);
    json_t *json =
        json_loadb(n ? bytes : "", n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &problem);
    if (!json)
        return fail(err, STATUS_FORMAT, "%s: line %d, column %d: %s; the file is damaged", name,
                    problem.line, problem.column, problem.text);
    if (!json_is_object(json)) {
        fail(err, STATUS_FORMAT, "%s: holds %s, expected an object; the file is damaged", name,
             json_kind(json));
        json_decref(json);
        return STATUS_FORMAT;
    }
    *root = json;
    return STATUS_OK;
}

enum status json_read_file(const char *path, bool is_optional, json_t **root, struct error *err)
{
    const uint8_t *bytes;
    size_t size;
    *root = NULL;
    if (is_optional && access(path, F_OK) != 0 && errno == ENOENT)
        return STATUS_OK;
    TRY(file_map(path, "a JSON file", &bytes, &size, err));
    enum status status = json_read_bytes((const char *)bytes, size, path, root, err);
    file_unmap(bytes, size);
    return status;
}

const json_t *json_member(struct json_object o, const char *key)
{
    const json_t *value = json_object_get(o.json, key);
    return json_is_null(value) ? NULL : value;
}

bool json_whole(const json_t *value, int64_t *whole)
{
    double number = json_real_value(value);
    if (!json_is_real(value) || number != trunc(number) || fabs(number) > 0x1p53)
        return false;
    *whole = (int64_t)number;
    return true;
}

static enum status fail_kind(struct json_object o, const char *key, const char *expected,
                             struct error *err)
{
    return fail(err, STATUS_FORMAT, "%s: '%s' is %s, expected %s", o.name, key,
                json_kind(json_object_get(o.json, key)), expected);
}

enum status json_take_whole(struct json_object o, const char *key, int64_t min, int64_t max,
                            int64_t *value, struct error *err)
{
    const json_t *json = json_member(o, key);
    if (!json)
        return STATUS_OK;
    int64_t found;
    if (!json_whole(json, &found))
        return fail_kind(o, key, "a whole number", err);
    if (found < min || found > max)
        return fail(err, STATUS_FORMAT, "%s: '%s' is %lld, expected %lld to %lld", o.name, key,
                    (long long)found, (long long)min, (long long)max);
    *value = found;
    return STATUS_OK;
}

enum status json_need_whole(struct json_object o, const char *key, int64_t min, int64_t max,
                            int64_t *value, struct error *err)
{
    if (!json_member(o, key))
        return fail(err, STATUS_FORMAT, "%s: '%s' is absent; the model cannot be told without it",
                    o.name, key);
    return json_take_whole(o, key, min, max, value, err);
}

enum status json_take_number(struct json_object o, const char *key, double *value,
                             struct error *err)
{
    const json_t *json = json_member(o, key);
    if (!json)
        return STATUS_OK;
    if (!json_is_number(json))
        return fail_kind(o, key, "a number", err);
    *value = json_number_value(json);
    return STATUS_OK;
}

enum status json_take_bool(struct json_object o, const char *key, bool *value, struct error *err)
{
    const json_t *json = json_member(o, key);
    if (!json)
        return STATUS_OK;
    if (!json_is_boolean(json))
        return fail_kind(o, key, "true or false", err);
    *value = json_is_true(json);
    return STATUS_OK;
}

enum status json_take_text(struct json_object o, const char *key, const char **value,
                           struct error *err)
{
    const json_t *json = json_member(o, key);
    if (!json)
        return STATUS_OK;
    if (!json_is_string(json))
        return fail_kind(o, key, "a text", err);
    *value = json_string_value(json);
    return STATUS_OK;
}

enum status json_take_list(struct json_object o, const char *key, const json_t **value,
                           struct error *err)
{
    const json_t *json = json_member(o, key);
    if (!json)
        return STATUS_OK;
    if (!json_is_array(json))
        return fail_kind(o, key, "a list", err);
    *value = json;
    return STATUS_OK;
}
