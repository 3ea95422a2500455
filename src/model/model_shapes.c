#include "model/model_shapes.h"

#include <stddef.h>
#include <string.h>

static const struct model_shape shapes[] = {
    {.name = "tiny",
     .arch = "llama",
     .n_embd = 512,
     .n_layer = 4,
     .n_head = 8,
     .n_head_kv = 4,
     .head_dim = 64,
     .n_ff = 1024,
     .n_vocab = 288,
     .n_ctx = 512,
     .rope_base = 1e4f,
     .norm_epsilon = 1e-5f,
     .bos = 1,
     .eos = 2},
    {.name = "falcon3-1b",
     .arch = "llama",
     .n_embd = 2048,
     .n_layer = 18,
     .n_head = 8,
     .n_head_kv = 4,
     .head_dim = 256,
     .n_ff = 8192,
     .n_vocab = 131072,
     .n_ctx = 8192,
     .rope_base = 1000042,
     .norm_epsilon = 1e-6f,
     .pre_tokenizer = "falcon3",
     .bos = 11,
     .eos = 11},
    {.name = "falcon3-10b",
     .arch = "llama",
     .n_embd = 3072,
     .n_layer = 40,
     .n_head = 12,
     .n_head_kv = 4,
     .head_dim = 256,
     .n_ff = 23040,
     .n_vocab = 131072,
     .n_ctx = 32768,
     .rope_base = 1000042,
     .norm_epsilon = 1e-6f,
     .pre_tokenizer = "falcon3",
     .bos = 11,
     .eos = 11},
    {.name = "llama3-8b",
     .arch = "llama",
     .n_embd = 4096,
     .n_layer = 32,
     .n_head = 32,
     .n_head_kv = 8,
     .head_dim = 128,
     .n_ff = 14336,
     .n_vocab = 128256,
     .n_ctx = 8192,
     .rope_base = 5e5f,
     .norm_epsilon = 1e-5f,
     .pre_tokenizer = "llama-bpe",
     .bos = 128000,
     .eos = 128001,
     .n_control = 256},
    {.name = "bonsai-8b",
     .arch = "qwen3",
     .n_embd = 4096,
     .n_layer = 36,
     .n_head = 32,
     .n_head_kv = 8,
     .head_dim = 128,
     .n_ff = 12288,
     .n_vocab = 151936,
     .n_ctx = 65536,
     .rope_base = 1e6f,
     .norm_epsilon = 1e-6f,
     .yarn_factor = 4,
     .yarn_original_ctx = 16384,
     .has_ternary_tables = true,
     .has_head_norms = true,
     .pre_tokenizer = "qwen2",
     .bos = 151643,
     .eos = 151645,
     .n_control = 293},
};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

const struct model_shape *model_shape_find(const char *name)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

const char *model_shape_names(void)
{
    static char names[512];
    names[0] = 0;
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (i)
            strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, shapes[i].name, sizeof names - strlen(names) - 1);
    }
    return names;
}
