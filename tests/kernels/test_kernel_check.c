/* Every row of kernel_list.h that this machine can run, against the scalar row of its op and
 * packing (bits) and that one against double precision. Also takes [--seed N] [--only TEXT]. */
#include "../support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "machine/cpu_features.h"

static uint64_t seed = 1;

static void test_row(void **state)
{
    const struct kernel_row *row = *state;
    if (!cpu_has_isa(row->isa)) {
        print_message("skipped: needs %s\n", isa_name(row->isa));
        skip();
    }
    static struct check c;
    check_kernel(&c, row, seed);
    if (c.failed)
        fail_msg("%s", c.message);
    assert_true(c.n_cases > 0);
}

/* Rows of an op and packing begin with the scalar one, and get stronger. */
static void test_order(void **state)
{
    (void)state;
    for (int i = 0; i < n_kernel_rows; i++) {
        enum isa isa = ISA_scalar;
        for (int k = 0; k <= i; k++)
            if (kernel_rows[k].op == kernel_rows[i].op &&
                kernel_rows[k].packing == kernel_rows[i].packing) {
                if (kernel_rows[k].isa < isa)
                    fail_msg("%s is weaker than a row above it", kernel_rows[k].name);
                isa = kernel_rows[k].isa;
            }
        if (!kernel_select(kernel_rows[i].op, kernel_rows[i].packing, ISA_scalar))
            fail_msg("%s has no scalar row", kernel_rows[i].name);
    }
}

static int run_wrong(const struct kernel_row *row)
{
    static struct check c;
    check_kernel(&c, row, seed);
    return c.failed;
}

/* Kernels that are wrong in one way each. */
static void wrong_value(const union job *job, int begin, int end)
{
    kernel_select(OP_rope, PACKING_none, ISA_scalar)->run(job, begin, end);
    job->rope.x[begin / job->rope.n_heads * job->rope.x_stride] += 1e-3f;
}

static void wrong_range(const union job *job, int begin, int end)
{
    kernel_select(OP_rope, PACKING_none, ISA_scalar)->run(job, begin, end);
    if (begin > 0)
        job->rope.x[0] = 1;
}

static void wrong_padding(const union job *job, int begin, int end)
{
    const struct rope_job *rope = &job->rope;
    kernel_select(OP_rope, PACKING_none, ISA_scalar)->run(job, begin, end);
    int used = rope->n_heads * rope->head_dim;
    if (rope->x_stride > used)
        rope->x[begin / rope->n_heads * rope->x_stride + used] = 1;
}

static void wrong_read(const union job *job, int begin, int end)
{
    const struct rope_job *rope = &job->rope;
    kernel_select(OP_rope, PACKING_none, ISA_scalar)->run(job, begin, end);
    volatile float beyond =
        rope->cosines[(int64_t)((end - 1) / rope->n_heads + 1) * (rope->n_rot / 2)];
    (void)beyond;
}

static void wrong_write_before(const union job *job, int begin, int end)
{
    kernel_select(OP_rope, PACKING_none, ISA_scalar)->run(job, begin, end);
    job->rope.x[-1] = 0;
}

static void wrong_input(const union job *job, int begin, int end)
{
    kernel_select(OP_rope, PACKING_none, ISA_scalar)->run(job, begin, end);
    *(float *)(uintptr_t)job->rope.cosines = 1;
}

static void wrong_instruction(const union job *job, int begin, int end)
{
    (void)job, (void)begin, (void)end;
    __builtin_trap();
}

/* The check finds what it is for. */
static void test_finds_errors(void **state)
{
    (void)state;
    static kernel *const wrong[] = {wrong_value, wrong_range,        wrong_padding,    wrong_read,
                                    wrong_input, wrong_write_before, wrong_instruction};
    if (!kernel_select(OP_rope, PACKING_none, ISA_scalar))
        skip();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct kernel_row row = {OP_rope, PACKING_none, ISA_avx2, 1, wrong[i], "wrong"};
        if (!run_wrong(&row))
            fail_msg("the check did not find error %zu", i);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
    }
    struct CMUnitTest *tests = calloc((size_t)n_kernel_rows + 3, sizeof *tests);
    if (!tests)
        return 1;
    size_t n = 0;
    tests[n++] = (struct CMUnitTest){"order", test_order, NULL, NULL, NULL};
    tests[n++] = (struct CMUnitTest){"finds_errors", test_finds_errors, NULL, NULL, NULL};
    for (int i = 0; i < n_kernel_rows; i++)
        if (!only || strstr(kernel_rows[i].name, only))
            tests[n++] = (struct CMUnitTest){kernel_rows[i].name, test_row, NULL, NULL,
                                             (void *)(uintptr_t)&kernel_rows[i]};
    int status = _cmocka_run_group_tests("kernel_check", tests, n, NULL, NULL);
    free(tests);
    return status;
}
