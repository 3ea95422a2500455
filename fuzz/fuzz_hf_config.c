/* Any bytes as config.json of a Hugging Face folder; what is accepted must lie in the bounds that
 * the rest of the conversion counts on, and the metadata made of it must read back as the same model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/hf_config.h"
#include "tensor/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_refusal(enum status status, const struct error *err)
{
    require(status == err->status && err->text[0] && !strchr(err->text, '\n'));
}

static void check_values(const struct hf_config *c)
{
    const struct model_config *m = &c->model;
    require(m->arch && m->n_layer >= 1 && m->n_embd >= 1 && m->n_ff >= 1 && m->n_vocab >= 1);
    require(m->n_head_kv >= 1 && m->n_head % m->n_head_kv == 0);
    require(m->head_dim >= 2 && m->head_dim % 2 == 0 && m->rope.n_rot == m->head_dim);
    for (int j = 0; m->rope.factors && j < m->rope.n_rot / 2; j++)
        require(m->rope.factors[j] > 0 && isfinite(m->rope.factors[j]));
    require(c->reason && memchr(c->unused, 0, sizeof c->unused));
}

/* A GGUF file of these pairs and no tensor; the caller frees. */
static uint8_t *file_of(const struct gguf_writer *w, size_t *size)
{
    enum { HEADER = 24 };
    static const uint8_t header[HEADER] = {'G', 'G', 'U', 'F', 3};
    *size = HEADER + w->pairs_bytes;
    uint8_t *bytes = malloc(*size);
    require(bytes != NULL);
    memcpy(bytes, header, HEADER);
    bytes[16] = (uint8_t)w->n_pairs; /* a few dozen */
    memcpy(bytes + HEADER, w->pairs, w->pairs_bytes);
    return bytes;
}

static void check_same(const struct model_config *a, const struct model_config *b)
{
    require(a->arch == b->arch && a->n_layer == b->n_layer && a->n_embd == b->n_embd);
    require(a->n_ff == b->n_ff && a->n_head == b->n_head && a->n_head_kv == b->n_head_kv);
    require(a->head_dim == b->head_dim && a->n_ctx_train == b->n_ctx_train);
    require(a->norm_epsilon == b->norm_epsilon);
    require(a->rope.pairs == b->rope.pairs && a->rope.is_yarn == b->rope.is_yarn);
    require((float)a->rope.freq_base == (float)b->rope.freq_base);
    require((float)(1 / a->rope.freq_scale) == (float)(1 / b->rope.freq_scale));
    require((float)a->rope.attn_factor == (float)b->rope.attn_factor);
    require(!a->rope.is_yarn || a->rope.original_ctx == b->rope.original_ctx);
}

/* What is written must be what `trine run` reads. */
static void check_written(const struct hf_config *c)
{
    struct gguf_writer w;
    struct gguf_file file;
    struct model_config read;
    size_t size;
    require(gguf_writer_open(&w, "/dev/null", NULL) == STATUS_OK);
    require(hf_config_put(c, "fuzz", &w, NULL) == STATUS_OK);
    uint8_t *bytes = file_of(&w, &size);
    require(gguf_open_bytes(&file, bytes, size, "fuzz", format_resolve, NULL) == STATUS_OK);
    require(model_config_read(&read, &file, NULL) == STATUS_OK);
    check_same(&c->model, &read);
    gguf_close(&file);
    free(bytes);
    gguf_writer_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct hf_config config;
    struct error err;
    json_t *root;
    enum status status = json_read_bytes((const char *)bytes, size, "fuzz", &root, &err);
    if (status == STATUS_OK)
        status = hf_config_read(&config, root, "fuzz", &err);
    json_decref(root); /* what the config needs must not be borrowed from it */
    if (status != STATUS_OK) {
        check_refusal(status, &err);
        return 0;
    }
    check_values(&config);
    check_written(&config);
    hf_config_done(&config);
    return 0;
}
