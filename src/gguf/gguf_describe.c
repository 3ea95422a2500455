#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/reader.h"
#include "gguf/gguf_metadata.h"

enum { MAX_STRING = 120, MAX_ELEMENTS = 8, MAX_ELEMENT_STRING = 24 };

/* Text being built; what does not fit is dropped at a whole piece. */
struct output {
    char *bytes;
    size_t size, at;
};

static bool append(struct output *out, const char *piece, size_t n)
{
    if (out->size - out->at <= n)
        return false;
    memcpy(out->bytes + out->at, piece, n);
    out->at += n;
    out->bytes[out->at] = 0;
    return true;
}

static bool append_character(struct output *out, const char *p, int length, uint32_t code)
{
    if (code == '\n')
        return append(out, "\\n", 2);
    if (code == '\t')
        return append(out, "\\t", 2);
    if (code == '"' || code == '\\')
        return append(out, code == '"' ? "\\\"" : "\\\\", 2);
    if (disturbs_terminal(code))
        return append(out, "?", 1);
    return append(out, p, (size_t)length);
}

static void append_string(struct output *out, struct text text, size_t max)
{
    append(out, "\"", 1);
    size_t i = 0;
    while (i < text.n && i < max) {
        uint32_t code = 0; /* stays a control character where no character begins */
        int length = utf8_decode(text.bytes + i, text.n - i, &code);
        if (!append_character(out, text.bytes + i, length, code))
            break;
        i += length ? (size_t)length : 1;
    }
    append(out, i < text.n ? "...\"" : "\"", i < text.n ? 4 : 1);
}

static void append_number(struct output *out, const struct gguf_pair *pair, uint64_t i)
{
    char number[40];
    int n;
    if (pair->element == GGUF_BOOL)
        n = snprintf(number, sizeof number, "%s", gguf_element_integer(pair, i) ? "true" : "false");
    else if (pair->element == GGUF_UINT64)
        n = snprintf(number, sizeof number, "%" PRIu64, load_u64(pair->data + 8 * i));
    else if (pair->element == GGUF_FLOAT32)
        n = snprintf(number, sizeof number, "%.7g", gguf_element_number(pair, i));
    else if (pair->element == GGUF_FLOAT64)
        n = snprintf(number, sizeof number, "%.15g", gguf_element_number(pair, i));
    else
        n = snprintf(number, sizeof number, "%" PRId64, gguf_element_integer(pair, i));
    append(out, number, (size_t)n);
}

static void append_array(struct output *out, const struct gguf_pair *pair)
{
    char head[64];
    int n = snprintf(head, sizeof head, "[%s, %" PRIu64 "]", gguf_type_name(pair->element),
                     pair->count);
    append(out, head, (size_t)n);
    uint64_t at = 0;
    for (uint64_t i = 0; i < pair->count && i < MAX_ELEMENTS; i++) {
        append(out, i ? ", " : " ", i ? 2 : 1);
        if (pair->element == GGUF_STRING)
            append_string(out, gguf_next_string(pair, &at), MAX_ELEMENT_STRING);
        else
            append_number(out, pair, i);
    }
    if (pair->count > MAX_ELEMENTS)
        append(out, ", ...", 5);
}

int gguf_describe(const struct gguf_pair *pair, char *out, size_t size)
{
    if (size == 0)
        return 0;
    struct output output = {out, size, 0};
    out[0] = 0;
    uint64_t at = 0;
    if (pair->type == GGUF_ARRAY)
        append_array(&output, pair);
    else if (pair->type == GGUF_STRING)
        append_string(&output, gguf_next_string(pair, &at), MAX_STRING);
    else
        append_number(&output, pair, 0);
    return (int)output.at;
}
