/* Any bytes as a safetensors file: reads its header, lists its tensors as those of small models with
 * plain and with packed weights, and touches every value then offered. */
#include <stdlib.h>
#include <string.h>

#include "convert/hf_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static volatile double sink; /* keeps the reads */

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_refusal(enum status status, const struct error *err)
{
    require(status == err->status && err->text[0] && !strchr(err->text, '\n'));
}

/* One layer, 2 heads of 4, width 8, feed-forward 4, 3 tokens. */
static void set_config(struct hf_config *c, enum hf_weights weights)
{
    *c = (struct hf_config){.weights = weights, .is_tied = true, .reason = "of the fuzzer"};
    c->model =
        (struct model_config){.arch = arch_find(text_of("llama")), .n_layer = 1, .n_embd = 8};
    c->model.n_ff = 4;
    c->model.n_vocab = 3;
    c->model.n_head = c->model.n_head_kv = 2;
    c->model.head_dim = c->model.rope.n_rot = 4;
}

static void touch_tensor(struct hf_tensor *t, bool make_ternary)
{
    struct error err;
    float row[16];
    enum status status = hf_tensor_examine(t, make_ternary, &err);
    if (status != STATUS_OK) {
        check_refusal(status, &err);
        return;
    }
    require(t->cols <= 16);
    for (int64_t r = 0; r < t->rows; r++) {
        hf_tensor_rows(t, r, r + 1, row);
        for (int64_t i = 0; i < t->cols; i++)
            sink += (double)row[i];
    }
}

static void touch_model(const struct safetensors *s, enum hf_weights weights)
{
    struct hf_config config;
    struct hf_tensors tensors;
    struct error err;
    set_config(&config, weights);
    enum status status = hf_tensors_list(&tensors, &config, s, &err);
    if (status != STATUS_OK)
        check_refusal(status, &err);
    for (size_t i = 0; i < tensors.n; i++)
        touch_tensor(&tensors.list[i], weights == HF_AS_STORED);
    hf_tensors_done(&tensors);
}

static void touch(const struct safetensors *s)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct safetensor *t = &s->tensors[i];
        require(safetensors_find(s, t->name.bytes) == t);
        require(safetensor_count(t) <= t->bytes || t->bytes == 0);
        if (t->bytes)
            sink += t->data[0] + t->data[t->bytes - 1];
    }
    touch_model(s, HF_AS_STORED);
    touch_model(s, HF_PACKED_DIVIDE);
    touch_model(s, HF_PACKED_MULTIPLY);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct safetensors s;
    struct error err;
    enum status status = safetensors_open_bytes(&s, bytes, size, "fuzz", &err);
    if (status == STATUS_OK)
        touch(&s);
    else
        check_refusal(status, &err);
    safetensors_close(&s);
    return 0;
}
