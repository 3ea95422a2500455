#include "gguf/gguf_metadata.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/reader.h"

static const struct {
    const char *name;
    uint8_t bytes;
} types[N_GGUF_TYPES] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},     [GGUF_UINT16] = {"uint16", 2},
    [GGUF_INT16] = {"int16", 2},     [GGUF_UINT32] = {"uint32", 4}, [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},     [GGUF_UINT64] = {"uint64", 8}, [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < N_GGUF_TYPES ? types[type].name : "unknown";
}

size_t gguf_type_bytes(enum gguf_type type)
{
    return (unsigned)type < N_GGUF_TYPES ? types[type].bytes : 0;
}

bool gguf_is_integer_type(enum gguf_type type)
{
    return type <= GGUF_INT32 || type == GGUF_UINT64 || type == GGUF_INT64;
}

static const uint8_t *element_at(const struct gguf_pair *pair, uint64_t i)
{
    assert(i < pair->count && gguf_type_bytes(pair->element) > 0);
    return pair->data + i * gguf_type_bytes(pair->element);
}

static double load_f64(const uint8_t *p)
{
    uint64_t bits = load_u64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double element_float(const struct gguf_pair *pair, uint64_t i)
{
    const uint8_t *p = element_at(pair, i);
    return pair->element == GGUF_FLOAT32 ? (double)load_f32(p) : load_f64(p);
}

/* The nearest int64 to a float, 0 for NaN. */
static int64_t clamp_float(double value)
{
    if (isnan(value))
        return 0;
    if (value >= 0x1p63)
        return INT64_MAX;
    return value <= -0x1p63 ? INT64_MIN : (int64_t)value;
}

int64_t gguf_element_integer(const struct gguf_pair *pair, uint64_t i)
{
    const uint8_t *p = element_at(pair, i);
    switch (pair->element) {
    case GGUF_UINT8: return p[0];
    case GGUF_BOOL: return p[0];
    case GGUF_INT8: return (int8_t)p[0];
    case GGUF_UINT16: return load_u16(p);
    case GGUF_INT16: return (int16_t)load_u16(p);
    case GGUF_UINT32: return load_u32(p);
    case GGUF_INT32: return (int32_t)load_u32(p);
    case GGUF_UINT64: return load_u64(p) > INT64_MAX ? INT64_MAX : (int64_t)load_u64(p);
    case GGUF_INT64: return (int64_t)load_u64(p);
    default: return clamp_float(element_float(pair, i));
    }
}

double gguf_element_number(const struct gguf_pair *pair, uint64_t i)
{
    if (pair->element == GGUF_FLOAT32 || pair->element == GGUF_FLOAT64)
        return element_float(pair, i);
    if (pair->element == GGUF_UINT64)
        return (double)load_u64(element_at(pair, i));
    return (double)gguf_element_integer(pair, i);
}

struct text gguf_next_string(const struct gguf_pair *pair, uint64_t *at)
{
    assert(pair->element == GGUF_STRING && *at + 8 <= pair->data_bytes);
    size_t n = (size_t)load_u64(pair->data + *at);
    struct text text = {(const char *)pair->data + *at + 8, n};
    *at += 8 + n;
    return text;
}

/* "FILE: key 'KEY' is WHAT IS THERE, expected EXPECTED". */
static enum status fail_value(const struct gguf_file *file, const char *key,
                              const struct gguf_pair *pair, const char *expected, struct error *err)
{
    const char *path = file->shards ? file->shards[0].path : "metadata";
    if (!pair)
        return fail(err, STATUS_FORMAT,
                    "%s: key '%s' is absent, expected %s; the file is incomplete or of another "
                    "kind",
                    path, key, expected);
    char found[160];
    gguf_describe(pair, found, sizeof found);
    return fail(err, STATUS_FORMAT,
                "%s: key '%s' is %s %s, expected %s; the file is damaged or was written by a "
                "broken tool",
                path, key, pair->type == GGUF_ARRAY ? "an array" : gguf_type_name(pair->type),
                found, expected);
}

/* False when element i does not fit into [min, max]. Only a uint64 can be beyond int64. */
static bool is_in_range(const struct gguf_pair *pair, uint64_t i, int64_t min, int64_t max)
{
    if (pair->element == GGUF_UINT64 && load_u64(element_at(pair, i)) > INT64_MAX)
        return false;
    int64_t value = gguf_element_integer(pair, i);
    return value >= min && value <= max;
}

static enum status read_integer(const struct gguf_file *file, const char *key, bool is_optional,
                                int64_t min, int64_t max, int64_t *value, struct error *err)
{
    const struct gguf_pair *pair = gguf_find(file, key);
    if (!pair && is_optional)
        return STATUS_OK;
    if (!pair || !gguf_is_integer_type(pair->type) || !is_in_range(pair, 0, min, max)) {
        char expected[96];
        snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
        return fail_value(file, key, pair, expected, err);
    }
    *value = gguf_element_integer(pair, 0);
    return STATUS_OK;
}

enum status gguf_integer(const struct gguf_file *file, const char *key, int64_t min, int64_t max,
                         int64_t *value, struct error *err)
{
    return read_integer(file, key, false, min, max, value, err);
}

enum status gguf_optional_integer(const struct gguf_file *file, const char *key, int64_t min,
                                  int64_t max, int64_t *value, struct error *err)
{
    return read_integer(file, key, true, min, max, value, err);
}

static enum status read_number(const struct gguf_file *file, const char *key, bool is_optional,
                               double *value, struct error *err)
{
    const struct gguf_pair *pair = gguf_find(file, key);
    if (!pair && is_optional)
        return STATUS_OK;
    bool is_number = pair && (pair->type == GGUF_FLOAT32 || pair->type == GGUF_FLOAT64 ||
                              gguf_is_integer_type(pair->type));
    if (!is_number || !isfinite(gguf_element_number(pair, 0)))
        return fail_value(file, key, pair, "a finite number", err);
    *value = gguf_element_number(pair, 0);
    return STATUS_OK;
}

enum status gguf_number(const struct gguf_file *file, const char *key, double *value,
                        struct error *err)
{
    return read_number(file, key, false, value, err);
}

enum status gguf_optional_number(const struct gguf_file *file, const char *key, double *value,
                                 struct error *err)
{
    return read_number(file, key, true, value, err);
}

enum status gguf_optional_bool(const struct gguf_file *file, const char *key, bool *value,
                               struct error *err)
{
    const struct gguf_pair *pair = gguf_find(file, key);
    if (!pair)
        return STATUS_OK;
    bool is_fit = pair->type == GGUF_BOOL || gguf_is_integer_type(pair->type);
    if (!is_fit || !is_in_range(pair, 0, 0, 1))
        return fail_value(file, key, pair, "a bool, or an integer 0 or 1", err);
    *value = gguf_element_integer(pair, 0) != 0;
    return STATUS_OK;
}

static enum status read_string(const struct gguf_file *file, const char *key, bool is_optional,
                               struct text *value, struct error *err)
{
    const struct gguf_pair *pair = gguf_find(file, key);
    if (!pair && is_optional)
        return STATUS_OK;
    if (!pair || pair->type != GGUF_STRING)
        return fail_value(file, key, pair, "a string", err);
    uint64_t at = 0;
    *value = gguf_next_string(pair, &at);
    return STATUS_OK;
}

enum status gguf_string(const struct gguf_file *file, const char *key, struct text *value,
                        struct error *err)
{
    return read_string(file, key, false, value, err);
}

enum status gguf_optional_string(const struct gguf_file *file, const char *key, struct text *value,
                                 struct error *err)
{
    return read_string(file, key, true, value, err);
}

enum status gguf_integers_per_layer(const struct gguf_file *file, const char *key, bool is_optional,
                                    int64_t min, int64_t max, int32_t *values, int n,
                                    struct error *err)
{
    assert(min >= INT32_MIN && max <= INT32_MAX);
    const struct gguf_pair *pair = gguf_find(file, key);
    if (!pair && is_optional)
        return STATUS_OK;
    bool is_array = pair && pair->type == GGUF_ARRAY;
    bool is_fit = pair && (gguf_is_integer_type(pair->element) || pair->element == GGUF_BOOL) &&
                  (!is_array || pair->count == (uint64_t)n);
    for (int i = 0; is_fit && i < n; i++)
        is_fit = is_in_range(pair, is_array ? (uint64_t)i : 0, min, max);
    if (!is_fit) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "an integer from %" PRId64 " to %" PRId64 ", or an array of %d of them", min, max,
                 n);
        return fail_value(file, key, pair, expected, err);
    }
    for (int i = 0; i < n; i++)
        values[i] = (int32_t)gguf_element_integer(pair, is_array ? (uint64_t)i : 0);
    return STATUS_OK;
}
