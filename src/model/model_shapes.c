#include "model/model_shapes.h"

#include <stddef.h>
#include <string.h>

#define SHAPE(shape, architecture, embd, layers, heads, heads_kv, dim, ff, vocab, ctx, base,       \
              epsilon)                                                                             \
    .name = shape, .arch = architecture, .n_embd = embd, .n_layer = layers, .n_head = heads,       \
    .n_head_kv = heads_kv, .head_dim = dim, .n_ff = ff, .n_vocab = vocab, .n_ctx = ctx,            \
    .rope_base = base, .norm_epsilon = epsilon
#define SPM            .bos = 1, .eos = 2
#define FALCON3        .pre_tokenizer = "falcon3", .bos = 11, .eos = 11
#define LLAMA3         .pre_tokenizer = "llama-bpe", .bos = 128000, .eos = 128001, .n_control = 256
#define NEOX           .pre_tokenizer = "gpt-2", .bos = 0, .eos = 0
#define QWEN           .pre_tokenizer = "qwen2", .bos = 151643, .eos = 151645, .n_control = 293
#define F16_TABLES     .has_f16_tables = true, .is_tied = true
#define TERNARY_TABLES .has_ternary_tables = true

/* Name, architecture, width, layers, heads, KV heads, head size, n_ff, vocabulary, context, RoPE base,
 * epsilon; vocabulary; tables. */
static const struct model_shape shapes[] = {
    {SHAPE("tiny", "llama", 512, 4, 8, 4, 64, 1024, 288, 512, 1e4f, 1e-5f), SPM},
    {SHAPE("falcon3-1b", "llama", 2048, 18, 8, 4, 256, 8192, 131072, 8192, 1000042, 1e-6f),
     FALCON3},
    {SHAPE("falcon3-3b", "llama", 3072, 22, 12, 4, 256, 9216, 131072, 4096, 1000042, 1e-6f),
     FALCON3},
    {SHAPE("falcon3-7b", "llama", 3072, 28, 12, 4, 256, 23040, 131072, 8192, 1000042, 1e-6f),
     FALCON3},
    {SHAPE("falcon3-10b", "llama", 3072, 40, 12, 4, 256, 23040, 131072, 32768, 1000042, 1e-6f),
     FALCON3},
    {SHAPE("llama3-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 5e5f, 1e-5f), LLAMA3},
    {SHAPE("trilm-99m", "llama", 512, 16, 8, 8, 64, 1280, 50304, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-190m", "llama", 768, 16, 12, 12, 64, 2048, 50304, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-390m", "llama", 1024, 24, 16, 16, 64, 2560, 50304, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-560m", "llama", 1280, 24, 20, 20, 64, 3072, 50304, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-830m", "llama", 1536, 24, 24, 24, 64, 4096, 50304, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-1.1b", "llama", 1792, 24, 28, 28, 64, 5120, 50432, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-1.5b", "llama", 2048, 24, 32, 32, 64, 6144, 50432, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-2.4b", "llama", 2304, 30, 36, 36, 64, 7680, 50304, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("trilm-3.9b", "llama", 3072, 30, 24, 24, 128, 9216, 50688, 2048, 1e4f, 1e-5f), NEOX},
    {SHAPE("bitnet-large", "bitnet", 1536, 24, 16, 16, 96, 4096, 32002, 2048, 1e4f, 1e-5f), SPM,
     F16_TABLES},
    {SHAPE("bitnet-xl", "bitnet", 2048, 24, 32, 32, 64, 5460, 32002, 2048, 1e4f, 1e-5f), SPM,
     F16_TABLES},
    {SHAPE("bitnet-3b", "bitnet", 3200, 26, 32, 32, 100, 8640, 32002, 2048, 1e4f, 1e-5f), SPM,
     F16_TABLES},
    {SHAPE("bitnet-2b4t", "bitnet-b1.58", 2560, 30, 20, 5, 128, 6912, 128256, 4096, 5e5f, 1e-5f),
     LLAMA3, F16_TABLES},
    {SHAPE("bonsai-1.7b", "qwen3", 2048, 28, 16, 8, 128, 6144, 151936, 32768, 1e6f, 1e-6f), QWEN,
     TERNARY_TABLES, .is_tied = true},
    {SHAPE("bonsai-4b", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 32768, 1e6f, 1e-6f), QWEN,
     TERNARY_TABLES, .is_tied = true},
    {SHAPE("bonsai-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 65536, 1e6f, 1e-6f), QWEN,
     TERNARY_TABLES, .yarn_factor = 4, .yarn_original_ctx = 16384},
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
