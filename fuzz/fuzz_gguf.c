/* Any bytes as a GGUF file: opens it and touches everything it then offers. */
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf_metadata.h"
#include "gguf/gguf_read.h"
#include "tensor/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static volatile uint64_t sink; /* keeps the reads */

static void touch_elements(const struct gguf_pair *pair)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < pair->count; i++) {
        if (pair->element == GGUF_STRING) {
            struct text text = gguf_next_string(pair, &at);
            if (text.n)
                sink += (uint8_t)text.bytes[0] + (uint8_t)text.bytes[text.n - 1];
        } else {
            sink += (uint64_t)gguf_element_integer(pair, i) + (gguf_element_number(pair, i) > 0);
        }
    }
}

/* Asks for a key by every getter; keys with a zero byte are another key, perhaps an absent one. */
static void touch_getters(const struct gguf_file *file, const char *key)
{
    struct error err;
    int64_t integer = 0;
    double number = 0;
    bool flag = false;
    struct text text = {"", 0};
    int32_t layers[3] = {0};
    gguf_integer(file, key, -1000, 1000, &integer, &err);
    gguf_number(file, key, &number, &err);
    gguf_optional_bool(file, key, &flag, &err);
    gguf_string(file, key, &text, &err);
    gguf_integers_per_layer(file, key, false, 0, 1000, layers, 3, &err);
    sink += (uint64_t)integer + (number > 0) + flag + text.n + (uint64_t)layers[2];
}

static void touch_pairs(const struct gguf_file *file)
{
    for (size_t i = 0; i < file->n_pairs; i++) {
        const struct gguf_pair *pair = &file->pairs[i];
        char text[100], key[100];
        sink += (uint64_t)gguf_describe(pair, text, sizeof text);
        touch_elements(pair);
        size_t n = pair->key.n < sizeof key - 1 ? pair->key.n : sizeof key - 1;
        memcpy(key, pair->key.bytes, n);
        key[n] = 0;
        touch_getters(file, key);
    }
}

static void touch_tensors(const struct gguf_file *file)
{
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *tensor = &file->tensors[i];
        char name[65];
        memcpy(name, tensor->span.name.bytes, tensor->span.name.n);
        name[tensor->span.name.n] = 0;
        const struct gguf_tensor *found = gguf_find_tensor(file, name);
        if (strlen(name) == tensor->span.name.n && found != tensor)
            abort();
        sink += tensor->data[0] + tensor->data[tensor->span.bytes - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct gguf_file file;
    struct error err;
    enum status status = gguf_open_bytes(&file, bytes, size, "fuzz", format_resolve, &err);
    if (status == STATUS_OK) {
        touch_pairs(&file);
        touch_tensors(&file);
    } else if (status != err.status || !err.text[0]) {
        abort(); /* a refusal without words */
    }
    gguf_close(&file);
    return 0;
}
