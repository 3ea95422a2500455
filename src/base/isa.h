/* Instruction sets as a ladder: each name stands for a bundle of CPU features that its kernels may
 * use together, and for all bundles below it. */
#ifndef TRINE_BASE_ISA_H
#define TRINE_BASE_ISA_H

#include "base/error.h"

#define ISA_LIST(X)                                                                                \
    X(scalar, "baseline of the architecture")                                                      \
    X(avx2, "AVX2, FMA, F16C")                                                                     \
    X(avx512, "AVX-512 F, BW, VL, DQ, VNNI")                                                       \
    X(avx512vbmi, "the same and VBMI")

#define ISA_ENUM(name, features) ISA_##name,
enum isa { ISA_LIST(ISA_ENUM) N_ISAS };
#undef ISA_ENUM

/* "avx512". */
const char *isa_name(enum isa isa);

/* What the bundle holds, for people. */
const char *isa_features(enum isa isa);

/* Parses a name. errors: USAGE, listing the names. */
enum status isa_parse(const char *name, enum isa *isa, struct error *err);

#endif
