/* Instruction sets as a ladder: each name stands for a bundle of CPU features that its kernels may
 * use together, and for all bundles below it. */
#ifndef TRINE_BASE_ISA_H
#define TRINE_BASE_ISA_H

#include "base/error.h"

enum isa {
    ISA_scalar,     /* baseline of the architecture */
    ISA_avx2,       /* AVX2, FMA, F16C */
    ISA_avx512,     /* AVX-512 F, BW, VL, DQ, VNNI */
    ISA_avx512vbmi, /* the same and VBMI */
    N_ISAS
};

/* "avx512". */
const char *isa_name(enum isa isa);

/* Parses a name. errors: USAGE, listing the names. */
enum status isa_parse(const char *name, enum isa *isa, struct error *err);

#endif
