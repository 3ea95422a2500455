#include "base/isa.h"

#include <string.h>

static const char *const names[N_ISAS] = {"scalar", "avx2", "avx512", "avx512vbmi"};

const char *isa_name(enum isa isa)
{
    return names[isa];
}

enum status isa_parse(const char *name, enum isa *isa, struct error *err)
{
    for (int i = 0; i < N_ISAS; i++)
        if (strcmp(name, names[i]) == 0) {
            *isa = (enum isa)i;
            return STATUS_OK;
        }
    return fail(err, STATUS_USAGE,
                "unknown instruction set '%s'; known: scalar, avx2, avx512, avx512vbmi", name);
}
