/* Instruction sets: each name stands for a bundle of CPU features that its kernels may use together,
 * and for the bundles that it includes. Among those that include each other the later is stronger. */
#ifndef TRINE_BASE_ISA_H
#define TRINE_BASE_ISA_H

#include <stdbool.h>

#include "base/error.h"

enum isa {
    ISA_scalar,     /* baseline of the architecture */
    ISA_avx2,       /* AVX2, FMA, F16C */
    ISA_avxvnni,    /* the same and VNNI on 256 bits: hybrid processors, which have no AVX-512 */
    ISA_avx512,     /* AVX2 and AVX-512 F, BW, VL, DQ, VNNI */
    ISA_avx512vbmi, /* the same and VBMI */
    ISA_amx,        /* the same and AMX tiles of int8 */
    ISA_neon,       /* ARM: Advanced SIMD with dot products of int8 */
    ISA_i8mm,       /* the same and matrix multiplications of int8 */
    N_ISAS
};

/* "avx512". */
const char *isa_name(enum isa isa);

/* Whether what may use `isa` may run kernels of `part`. */
bool isa_includes(enum isa isa, enum isa part);

/* Whether this build has kernels of it: those of other architectures are names only. */
bool isa_is_native(enum isa isa);

/* Parses a name. errors: USAGE, listing the names. */
enum status isa_parse(const char *name, enum isa *isa, struct error *err);

#endif
