#include "base/isa.h"

#include <string.h>

#define ISA_NAME(name, features)     #name,
#define ISA_FEATURES(name, features) features,
static const char *const names[] = {ISA_LIST(ISA_NAME)};
static const char *const features_of[] = {ISA_LIST(ISA_FEATURES)};

const char *isa_name(enum isa isa)
{
    return names[isa];
}

const char *isa_features(enum isa isa)
{
    return features_of[isa];
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
