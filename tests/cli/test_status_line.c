/* A failure on a terminal: the line that was rewritten in place is gone before the message comes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fixture.h"

static const char *trine, *model;

/* A terminal whose text the test can read. */
struct terminal {
    int master, slave;
    const char *name;
};

static void terminal_open(struct terminal *t)
{
    t->master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (t->master < 0 || grantpt(t->master) != 0 || unlockpt(t->master) != 0) {
        print_message("skipped: no pseudo terminals here\n");
        skip();
    }
    t->name = ptsname(t->master);
    t->slave = open(t->name, O_RDWR | O_NOCTTY); /* so that nothing is lost when the command ends */
    assert_true(t->slave >= 0);
}

static void terminal_close(struct terminal *t)
{
    close(t->slave);
    close(t->master);
}

/* Runs a command that fails with its messages on the terminal; what came, terminated. */
static char *fail_on_terminal(const char *command)
{
    enum { MOST = 1 << 16 };
    struct terminal t;
    terminal_open(&t);
    char *text = calloc(MOST, 1);
    assert_non_null(text);
    struct outcome o = run_command("%s %s 2> %s", trine, command, t.name);
    assert_int_equal(o.status, 1);
    outcome_done(&o);
    for (ssize_t n, at = 0; (n = read(t.master, text + at, (size_t)(MOST - 1 - at))) > 0;)
        at += n;
    terminal_close(&t);
    return text;
}

#define CLEARED "\r\033[K"

/* rewritten: what the line showed before. */
static void expect_cleared(const char *command, const char *name, const char *rewritten)
{
    char message[64];
    char *text = fail_on_terminal(command);
    snprintf(message, sizeof message, "trine %s: ", name);
    const char *shown = strstr(text, rewritten), *failed = strstr(text, message);
    if (!shown || !failed || shown > failed ||
        strncmp(failed - strlen(CLEARED), CLEARED, strlen(CLEARED)) != 0)
        fail_msg("%s: %s", command, text);
    free(text);
}

static void test_failures(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "quantize %s %s F16", model, scratch_path("out.gguf"));
    expect_cleared(command, "quantize", "\rwrite tensor 1 of ");
}

/* Without one nothing is rewritten. */
static void test_no_terminal(void **state)
{
    (void)state;
    struct outcome o = run_command("%s quantize %s %s F16", trine, model, scratch_path("out.gguf"));
    assert_int_equal(o.status, 1);
    assert_int_equal(strncmp(o.err, "trine quantize: ", 16), 0);
    assert_null(strpbrk(o.err, "\r\033"));
    outcome_done(&o);
}

/* The last weight is 1.7e38, which F16 does not hold. */
static int write_model(void **state)
{
    (void)state;
    size_t size;
    char *bytes = fixture_bytes(&(struct fixture){.format = FORMAT_BF16}, &size);
    bytes[size - 1] = 0x7f;
    bytes[size - 2] = 0;
    trine = build_path("trine");
    model = strdup(scratch_path("large.gguf"));
    write_whole(model, bytes, size);
    free(bytes);
    return 0;
}

static int free_name(void **state)
{
    (void)state;
    free((void *)(uintptr_t)model);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_no_terminal),
    };
    return cmocka_run_group_tests(tests, write_model, free_name);
}
