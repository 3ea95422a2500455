/* How anything in Trine reports failure: a status to return and a text for the user.
 * Three kinds of error exist. A programmer's error is an assert. An error of the world (file,
 * memory, option) is a status with text, passed up unchanged to cli/, which prints it as one line
 * and exits. The step loop of the engine cannot fail: everything was checked when it was planned.
 */
#ifndef TRINE_BASE_ERROR_H
#define TRINE_BASE_ERROR_H

enum status {
    STATUS_OK,
    STATUS_IO,          /* cannot read or write */
    STATUS_FORMAT,      /* malformed file */
    STATUS_UNSUPPORTED, /* valid, but not supported */
    STATUS_MEMORY,      /* out of memory */
    STATUS_LIMIT,       /* a limit was reached */
    STATUS_USAGE,       /* wrong usage */
};

/* text: one line, no newline: what, where, expected, found, what to do. */
struct error {
    enum status status;
    char text[768];
};

/* Fills err (which may be NULL) with a printf-style text and returns status, so that a check reads
 * `return fail(err, STATUS_FORMAT, ...)`. What could disturb a terminal becomes '?'; of a
 * text that is too long the middle is left out.
 */
enum status fail(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the current function when the call did not return STATUS_OK. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status status_ = (call);                                                              \
        if (status_ != STATUS_OK)                                                                  \
            return status_;                                                                        \
    } while (0)

#endif
