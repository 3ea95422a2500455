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
