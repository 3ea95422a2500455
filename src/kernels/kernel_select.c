#include "kernels/kernel_select.h"

#include <stddef.h>

const struct kernel_row kernel_rows[] = {
#define KERNEL(op, packing, isa, grain, function)                                                  \
    {OP_##op, PACKING_##packing, ISA_##isa, grain, function, #function},
#include "kernels/kernel_list.h"
#undef KERNEL
};
const int n_kernel_rows = sizeof kernel_rows / sizeof kernel_rows[0];

const char *op_name(enum op op)
{
#define OP_NAME(name) #name,
    static const char *const names[] = {OP_LIST(OP_NAME)};
#undef OP_NAME
    return names[op];
}

const struct kernel_row *kernel_select(enum op op, enum packing packing, enum isa cap)
{
    const struct kernel_row *best = NULL;
    for (const struct kernel_row *row = kernel_rows; row < kernel_rows + n_kernel_rows; row++)
        if (row->op == op && row->packing == packing && isa_includes(cap, row->isa))
            best = row;
    return best;
}
