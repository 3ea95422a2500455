#include "model/arch.h"

#include <string.h>

#define ARCH(symbol) extern const struct arch symbol;
#include "model/arch_list.h"
#undef ARCH

static const struct arch *const archs[] = {
#define ARCH(symbol) &symbol,
#include "model/arch_list.h"
#undef ARCH
};
#define N_ARCHS (sizeof archs / sizeof archs[0])

const struct arch *arch_find(struct text name)
{
    for (size_t i = 0; i < N_ARCHS; i++)
        if (text_is(name, archs[i]->name))
            return archs[i];
    return NULL;
}

int64_t arch_dim(const struct model_config *c, enum dim dim)
{
    switch (dim) {
    case DIM_ONE: return 1;
    case DIM_EMBD: return c->n_embd;
    case DIM_FF: return c->n_ff;
    case DIM_Q: return (int64_t)c->n_head * c->head_dim;
    case DIM_KV: return (int64_t)c->n_head_kv * c->head_dim;
    case DIM_HEAD: return c->head_dim;
    case DIM_VOCAB: return c->n_vocab;
    case DIM_ROPE: return c->rope.n_rot / 2;
    }
    return 0;
}

const char *arch_names(void)
{
    static char names[256];
    names[0] = 0;
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (i)
            strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, archs[i]->name, sizeof names - strlen(names) - 1);
    }
    return names;
}
