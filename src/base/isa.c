#include "base/isa.h"

#include <stdio.h>
#include <string.h>

#define BIT(isa) (1u << ISA_##isa)

static const struct {
    const char *name;
    unsigned includes;
} isas[N_ISAS] = {
    [ISA_scalar] = {"scalar", BIT(scalar)},
    [ISA_avx2] = {"avx2", BIT(scalar) | BIT(avx2)},
    [ISA_avxvnni] = {"avxvnni", BIT(scalar) | BIT(avx2) | BIT(avxvnni)},
    [ISA_avx512] = {"avx512", BIT(scalar) | BIT(avx2) | BIT(avx512)},
    [ISA_avx512vbmi] = {"avx512vbmi", BIT(scalar) | BIT(avx2) | BIT(avx512) | BIT(avx512vbmi)},
    [ISA_amx] = {"amx", BIT(scalar) | BIT(avx2) | BIT(avx512) | BIT(avx512vbmi) | BIT(amx)},
    [ISA_neon] = {"neon", BIT(scalar) | BIT(neon)},
    [ISA_i8mm] = {"i8mm", BIT(scalar) | BIT(neon) | BIT(i8mm)},
};

const char *isa_name(enum isa isa)
{
    return isas[isa].name;
}

bool isa_includes(enum isa isa, enum isa part)
{
    return isas[isa].includes >> part & 1;
}

bool isa_is_native(enum isa isa)
{
#if defined(__x86_64__)
    return !isa_includes(isa, ISA_neon);
#elif defined(__aarch64__)
    return isa == ISA_scalar || isa_includes(isa, ISA_neon);
#else
    return isa == ISA_scalar;
#endif
}

enum status isa_parse(const char *name, enum isa *isa, struct error *err)
{
    char known[120] = "";
    for (int i = 0; i < N_ISAS; i++) {
        if (strcmp(name, isas[i].name) == 0) {
            *isa = (enum isa)i;
            return STATUS_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", isas[i].name);
    }
    return fail(err, STATUS_USAGE, "unknown instruction set '%s'; known: %s", name, known);
}
