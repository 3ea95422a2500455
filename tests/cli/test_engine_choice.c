/* Switches of the engine that cannot do anything: said where the machine or the model decides, refused
 * where another option does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "base/isa.h"

#define KJV "models/trine-kjv.gguf" /* ternary, one scale per row */

static const char *trine;

/* A switch, where it has no effect, and where it has. */
static const struct {
    const char *option, *name, *without, *with; /* with: NULL where it takes several NUMA nodes */
} switches[] = {
    {"--dataflow row", "--dataflow row", "--nodes 1", "--nodes 2 -t 2"},
    {"--dataflow row --row-scatter copy", "--row-scatter", "--nodes 1", "--nodes 2 -t 2"},
    {"--dataflow row --row-attention position", "--row-attention", "--nodes 1", "--nodes 2 -t 2"},
    {"--barrier flat", "--barrier flat", "--nodes 1", "--nodes 2 -t 2"},
    {"--promote-barriers 3", "--promote-barriers", "--nodes 1", "--nodes 2 -t 2"},
    {"--extra-barriers 2", "--extra-barriers", "-t 1", "-t 2"},
    {"--rows static", "--rows static", "-t 1", "--nodes 1 -t 2"},
    {"--rows static", "--rows static", "--nodes 2 -t 2", "--nodes 2 -t 4"},
    {"--kv-placement interleave", "--kv-placement", "--nodes 1", NULL},
    {"--weights-placement one-node", "--weights-placement", "--nodes 1", NULL},
};

static struct outcome run_well(const char *command, const char *options)
{
    struct outcome o = run_command("%s %s %s", trine, command, options);
    if (o.status != 0)
        fail_msg("%s %s: status %d: %s", command, options, o.status, o.err);
    return o;
}

/* Whether the talk has the line about a switch; any such line for NULL. */
static bool has_note(const struct outcome *o, const char *name)
{
    char line[128];
    snprintf(line, sizeof line, name ? "note: %s has no effect: " : "has no effect", name);
    return strstr(o->err, line) != NULL;
}

static char *logits_of(const char *options, size_t *size)
{
    char line[256];
    const char *out = scratch_path("logits.bin");
    snprintf(line, sizeof line, "--tokens 1,7,250 -q -o %s %s", out, options);
    struct outcome o = run_well("logits " KJV, line);
    outcome_done(&o);
    return read_whole(out, size);
}

/* What is said must be true: the same bits with and without the switch, in a run that says so. */
static void test_said_where_the_machine_decides(void **state)
{
    (void)state;
    char line[256];
    size_t n, size;
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        snprintf(line, sizeof line, "-p In -n 1 %s %s", switches[i].without, switches[i].option);
        struct outcome o = run_well("run " KJV, line);
        if (!has_note(&o, switches[i].name))
            fail_msg("%s: no note in: %s", line, o.err);
        outcome_done(&o);
        snprintf(line, sizeof line, "%s %s", switches[i].without, switches[i].option);
        char *plain = logits_of(switches[i].without, &size), *with = logits_of(line, &n);
        assert_int_equal(n, size);
        assert_memory_equal(with, plain, n);
        free(plain);
        free(with);
        if (!switches[i].with)
            continue;
        snprintf(line, sizeof line, "-p In -n 1 %s %s", switches[i].with, switches[i].option);
        o = run_well("run " KJV, line);
        if (has_note(&o, switches[i].name))
            fail_msg("%s: has an effect, but: %s", line, o.err);
        outcome_done(&o);
    }
}

static void test_other_commands(void **state)
{
    (void)state;
    static const char *const commands[] = {"bench " KJV " -p 0 -n 1 -r 1", "trace " KJV " -n 1",
                                           "ppl " KJV " -f models/heldout.txt -c 32 --chunks 1",
                                           "run " KJV " --dry-run"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct outcome o = run_well(commands[i], "--nodes 1 --barrier flat");
        if (!has_note(&o, "--barrier flat"))
            fail_msg("%s: no note in: %s", commands[i], o.err);
        assert_null(strstr(o.out, "no effect"));
        outcome_done(&o);
        o = run_well(commands[i], "--act-scale token");
        assert_false(has_note(&o, NULL));
        outcome_done(&o);
    }
    struct outcome o = run_well("run " KJV, "-p In -n 1 -q --nodes 1 --barrier flat");
    assert_string_equal(o.err, "");
    outcome_done(&o);
}

/* Groups of activations go with rows that have one scale. */
static void test_said_where_the_model_decides(void **state)
{
    (void)state;
    char line[256];
    static const char *const types[] = {"IQ2_BN", "Q4_0"};
    for (int i = 0; i < 2; i++) {
        const char *path = scratch_path("typed.gguf");
        struct outcome o =
            run_command("%s synth --shape tiny --type %s -o %s", trine, types[i], path);
        assert_int_equal(o.status, 0);
        outcome_done(&o);
        snprintf(line, sizeof line, "bench %s -p 0 -n 1 -r 1", path);
        o = run_well(line, "--act-scale group");
        assert_int_equal(has_note(&o, "--act-scale group"), i == 1);
        outcome_done(&o);
    }
}

static void expect_refused(const char *command, const char *option, const char *word)
{
    struct outcome o = run_command("%s %s %s", trine, command, option);
    if (o.status != 2 || !strstr(o.err, word) || strchr(o.err, '\n') != strrchr(o.err, '\n'))
        fail_msg("%s %s: status %d, message: %s", command, option, o.status, o.err);
    assert_int_equal(o.out_bytes, 0);
    outcome_done(&o);
}

static void test_refused_where_another_option_decides(void **state)
{
    (void)state;
    static const char *const engine[] = {"-t 2",
                                         "--trits trits4",
                                         "--nodes 1",
                                         "--threads-per-node 1",
                                         "--isa scalar",
                                         "--head q8_0",
                                         "--no-pin",
                                         "--dataflow column",
                                         "--barrier flat",
                                         "--rows static",
                                         "--quantise each",
                                         "--act-scale group",
                                         "--attention-split off",
                                         "--kv-placement interleave",
                                         "--weights-placement interleave",
                                         "--extra-barriers 1",
                                         "--promote-barriers 1",
                                         "--prefetch-wait 1",
                                         "--row-scatter copy",
                                         "--row-attention position"};
    static const char *const commands[] = {
        "run " KJV " -p In -n 1 --reference", "logits " KJV " --tokens 1 -o /dev/null --reference",
        "ppl " KJV " -f models/heldout.txt --chunks 1 --reference"};
    for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++)
        for (size_t i = 0; i < sizeof engine / sizeof engine[0]; i++)
            expect_refused(commands[c], engine[i], "has no effect with --reference");
    for (size_t i = 0; i < sizeof engine / sizeof engine[0]; i++) {
        expect_refused("inspect " KJV, engine[i], " goes with --plan");
        expect_refused("inspect --machine", engine[i], " goes with --plan");
    }
    expect_refused("inspect " KJV, "-c 100", "-c goes with --plan");
    expect_refused("inspect " KJV, "--format json", "--format goes with --plan");
    expect_refused("inspect --plan " KJV, "--core-bandwidth 5", "go with --plan --predict");
    expect_refused("inspect --plan " KJV, "--cache-bandwidth 5", "go with --plan --predict");
    expect_refused("inspect --plan " KJV, "--kernel-share 5", "go with --plan --predict");
    expect_refused("inspect --plan " KJV, "--imbalance 2", "go with --plan --predict");
    expect_refused("inspect " KJV, "--imbalance 0", "go with --plan --predict");
    expect_refused("inspect --json " KJV, "--brief", "--brief has no effect with --json");
    static const char *const instead[] = {"--plan " KJV, "--machine"};
    for (int i = 0; i < 2; i++) {
        char line[128];
        snprintf(line, sizeof line, "inspect %s", instead[i]);
        expect_refused(line, "--brief", "--brief has no effect with --");
        expect_refused(line, "--pre-tokenizer gpt-2", "--pre-tokenizer has no effect with --");
    }
    expect_refused("inspect --machine", KJV, "--machine shows a machine and no model");
    expect_refused("inspect --machine", "--i2s-layout arm", "--i2s-layout is for a file");
    static const char *const formats[] = {"--format json", "--format svg"};
    for (int i = 0; i < 2; i++)
        expect_refused("inspect --plan --json " KJV, formats[i], "give one of the two");
    static const char *const others[] = {"", "--dataflow column"};
    for (int i = 0; i < 2; i++) {
        char line[128];
        snprintf(line, sizeof line, "--row-scatter copy %s", others[i]);
        expect_refused("run " KJV " -p In -n 1", line, "--row-scatter is for --dataflow row");
        snprintf(line, sizeof line, "--row-attention position %s", others[i]);
        expect_refused("bench " KJV " -p 0 -n 1", line, "--row-attention is for --dataflow row");
    }
}

/* Kernels of another architecture cannot run: a cap that would leave the scalar ones is a mistake. */
static void test_foreign_isa(void **state)
{
    (void)state;
    enum isa foreign = isa_is_native(ISA_neon) ? ISA_avx2 : ISA_neon;
    struct outcome o = run_command("%s run " KJV " -p a -n 1 --isa %s", trine, isa_name(foreign));
    assert_int_equal(o.status, 2);
    assert_non_null(strstr(o.err, "another architecture"));
    outcome_done(&o);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    trine = build_path("trine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_said_where_the_machine_decides),
        cmocka_unit_test(test_other_commands),
        cmocka_unit_test(test_said_where_the_model_decides),
        cmocka_unit_test(test_refused_where_another_option_decides),
        cmocka_unit_test(test_foreign_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
