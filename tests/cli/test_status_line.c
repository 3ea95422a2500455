/* On a terminal: the line that was rewritten in place is gone before a message of failure, or at the end. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fixture.h"

static const char *trine, *model;

#define MOST_TEXT (1 << 16)

/* A terminal whose text a thread reads while the command runs: it holds some KiB, then writers wait. */
struct terminal {
    int master, slave;
    const char *name;
    int stop[2]; /* a pipe; closed at one end when nothing more comes */
    char *text;  /* owned by the caller of terminal_close; terminated */
    pthread_t reader;
};

/* Till the end, and what has come by then; what does not fit is dropped, or the command would wait. */
static void *read_terminal(void *context)
{
    struct terminal *t = context;
    struct pollfd ends[] = {{.fd = t->master, .events = POLLIN}, {.fd = t->stop[0]}};
    size_t at = 0;
    for (bool is_ended = false; !is_ended;) {
        poll(ends, 2, -1);
        is_ended = ends[1].revents != 0;
        char piece[1024];
        for (ssize_t n; (n = read(t->master, piece, sizeof piece)) > 0;) {
            size_t room = MOST_TEXT - 1 - at, taken = (size_t)n < room ? (size_t)n : room;
            memcpy(t->text + at, piece, taken);
            at += taken;
        }
    }
    return NULL;
}

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
    t->text = calloc(MOST_TEXT, 1);
    assert_non_null(t->text);
    assert_int_equal(pipe2(t->stop, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&t->reader, NULL, read_terminal, t), 0);
}

/* What came. */
static char *terminal_close(struct terminal *t)
{
    close(t->stop[1]);
    assert_int_equal(pthread_join(t->reader, NULL), 0);
    close(t->stop[0]);
    close(t->slave);
    close(t->master);
    return t->text;
}

/* Runs a command with its messages on the terminal; what came, terminated. */
static char *run_on_terminal(const char *command, int status)
{
    struct terminal t;
    terminal_open(&t);
    struct outcome o = run_command("%s %s 2> %s", trine, command, t.name);
    assert_int_equal(o.status, status);
    outcome_done(&o);
    return terminal_close(&t);
}

#define CLEARED "\r\033[K"

/* rewritten: what the line showed before. */
static void expect_cleared(const char *command, const char *name, const char *rewritten)
{
    char message[64];
    char *text = run_on_terminal(command, 1);
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

/* A bar of a long measurement, far more text than a terminal holds unread. */
static void test_bar(void **state)
{
    (void)state;
    char *text = run_on_terminal(
        "ppl models/trine-kjv.gguf -f models/heldout.txt -c 32 --chunks 100 -t 1", 0);
    int n_bars = 0;
    for (const char *at = text; (at = strstr(at, "\r[")); at++)
        n_bars++;
    const char *last = strstr(text, "] 100 of 100  "), *end = last ? strchr(last, '\r') : NULL;
    if (n_bars != 100 || !end || strncmp(end, CLEARED, strlen(CLEARED)) != 0)
        fail_msg("%d bars: %s", n_bars, text);
    assert_true(strlen(text) > 4096);
    assert_null(strchr(end + 1, '\r'));
    free(text);
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
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_no_terminal),
    };
    return cmocka_run_group_tests(tests, write_model, free_name);
}
