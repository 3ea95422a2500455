/* Any bytes as tokenizer.json, or behind a first byte 'S' as tokenizer.model; what is accepted is
 * written as metadata of GGUF. */
#include <stdlib.h>
#include <string.h>

#include "convert/hf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define N_TOKENS 300

static void require(bool holds)
{
    if (!holds)
        abort();
}

static enum status read_json(struct hf_tokenizer *t, const uint8_t *bytes, size_t size,
                             struct error *err)
{
    json_t *root;
    TRY(json_read_bytes((const char *)bytes, size, "fuzz", &root, err));
    return hf_tokenizer_read_json(t, root, "fuzz", NULL, err);
}

static void check(const struct hf_tokenizer *t)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        require(t->types[id] >= 0 && t->types[id] <= HF_BYTE);
        require(t->types[id] || t->texts[id].n == 0);
        n += t->types[id] != 0;
    }
    require(n == t->n_named);
    for (size_t i = 0; i < t->n_merges; i++)
        require(t->merges[i].n >= 3 && memchr(t->merges[i].bytes, ' ', t->merges[i].n));
    require(t->bos < (int64_t)t->n_tokens && t->ends[0] < (int64_t)t->n_tokens);
    struct gguf_writer w;
    require(gguf_writer_open(&w, "/dev/null", NULL) == STATUS_OK);
    require(hf_tokenizer_put(t, &w, NULL) == STATUS_OK);
    gguf_writer_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct hf_tokenizer t;
    struct error err;
    require(hf_tokenizer_reserve(&t, N_TOKENS, NULL) == STATUS_OK);
    bool has_pieces = size && bytes[0] == 'S';
    enum status status = has_pieces
                             ? hf_tokenizer_read_pieces(&t, bytes + 1, size - 1, "fuzz", &err)
                             : read_json(&t, bytes, size, &err);
    if (status == STATUS_OK)
        check(&t);
    else
        require(status == err.status && err.text[0]);
    hf_tokenizer_close(&t);
    return 0;
}
