/* The kernel for an op, a packing and the instruction sets that may be used. */
#ifndef TRINE_KERNELS_KERNEL_SELECT_H
#define TRINE_KERNELS_KERNEL_SELECT_H

#include "kernels/kernels.h"

struct kernel_row {
    enum op op;
    enum packing packing; /* PACKING_none: the op does not depend on one */
    enum isa isa;
    int grain;
    kernel *run;
    const char *name;
};

/* The list as a table. */
extern const struct kernel_row kernel_rows[];
extern const int n_kernel_rows;

const char *op_name(enum op op);

/* The last row of that op and packing whose instruction set `cap` includes; NULL if there is none.
 */
const struct kernel_row *kernel_select(enum op op, enum packing packing, enum isa cap);

#endif
