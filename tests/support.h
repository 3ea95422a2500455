/* What the tests share: where things are, hexadecimal, and JSON lines of known answers.
 * Every test binary takes: [--build DIR] [--assets DIR] [--oracle DIR], and runs from the top of
 * the source tree. */
#ifndef TRINE_TESTS_SUPPORT_H
#define TRINE_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

/* cmocka's macro of that name would hide fail() of base/error.h. */
#undef fail
#undef fail_msg
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_error("ERROR: " __VA_ARGS__);                                                        \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

/* Reads the arguments above. Call first in main. */
void support_init(int argc, char **argv);

/* "DIR/name" of the build folder; of the folder of large assets or of the oracle, NULL if none was
 * given. The text is valid until the program ends. */
const char *build_path(const char *name);
const char *asset_path(const char *name);
const char *oracle_path(const char *name);

/* "DIR/name" in a folder of this process under the build folder, made on first use and removed at
 * exit. */
const char *scratch_path(const char *name);

/* The whole file, terminated by a zero byte that *size does not count; NULL when it cannot be read.
 */
char *read_whole(const char *path, size_t *size);
void write_whole(const char *path, const void *bytes, size_t size);

/* Bytes of a hexadecimal text; *size gets their number. */
uint8_t *from_hex(const char *hex, size_t *size);

/* Calls visit for each JSON object of a file of JSON lines; returns their number. */
int each_json_line(const char *path, void (*visit)(json_t *line));

/* What a command did. */
struct outcome {
    int status;      /* exit status, or 128 + signal */
    char *out, *err; /* what it printed, terminated; freed by outcome_done */
    size_t out_bytes;
    double seconds;
    long peak_kib; /* largest resident size */
};

/* Runs a command line as sh would, with `exec` before it, so that the figures are the program's
 * own. Standard input is empty unless the line redirects it. */
struct outcome run_command(const char *format, ...) __attribute__((format(printf, 1, 2)));
void outcome_done(struct outcome *outcome);

/* Nanoseconds of processor time of this process: other programs beside it do not count. */
int64_t cpu_ns(void);

/* True if every byte of a sanitiser build slows things down: bounds of time and memory do not hold.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITISED true
#else
#define IS_SANITISED false
#endif

/* Skips the running test with a message when path is NULL. */
#define NEED(path, what)                                                                           \
    do {                                                                                           \
        if (!(path)) {                                                                             \
            print_message("skipped: needs %s\n", what);                                            \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
