#include "../support.h"

#include <string.h>

#include "machine/cpu_features.h"

/* Registers of the cores' reference manuals; Apple's is not in the table. */
static void test_names_of_arm_cores(void **state)
{
    (void)state;
    static const struct {
        uint64_t midr;
        const char *name;
    } cores[] = {
        {0x410fd083, "ARM Cortex-A72"},
        {0x413fd0c1, "ARM Neoverse-N1"},
        {0x411fd401, "ARM Neoverse-V1"},
        {0x611f0221, "implementer 0x61, part 0x022"},
    };
    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++) {
        char name[48];
        cpu_name_of_midr(cores[i].midr, name, sizeof name);
        assert_string_equal(name, cores[i].name);
    }
}

/* What the machine has includes what it stands on, and belongs to this architecture. */
static void test_best_isa(void **state)
{
    (void)state;
    enum isa best = cpu_best_isa();
    assert_true(cpu_has_isa(ISA_scalar) && cpu_has_isa(best) && isa_is_native(best));
    for (enum isa isa = ISA_scalar; isa < N_ISAS; isa++) {
        if (isa_includes(best, isa))
            assert_true(cpu_has_isa(isa));
        assert_false(cpu_has_isa(isa) && !isa_is_native(isa));
        assert_true(isa_includes(isa, cpu_isa_within(isa)));
    }
#if defined(__x86_64__)
    assert_false(isa_is_native(ISA_neon) || isa_is_native(ISA_i8mm));
    assert_true(isa_is_native(ISA_avx2));
#elif defined(__aarch64__)
    assert_false(isa_is_native(ISA_avx2) || isa_is_native(ISA_avx512vbmi));
    assert_true(isa_is_native(ISA_neon));
#endif
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_arm_cores),
        cmocka_unit_test(test_best_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
