/* What the commands share. */
#ifndef TRINE_CLI_CLI_H
#define TRINE_CLI_CLI_H

#include "cli/options.h"

#define EXIT_USAGE    2

#define COMMAND(name) extern const struct command command_##name;
#include "cli/command_list.h"
#undef COMMAND

/* Prints the error as the one line "trine COMMAND: text" on standard error; the exit status. */
int cli_failed(const char *command, const struct error *err);

/* Refuses an output that would replace the file that is being read. errors: USAGE */
enum status cli_refuse_same_file(const char *in, const char *out, struct error *err);

/* Writes out what is buffered for standard output. True if all of it arrived or the reader left by
 * itself, as `head` does. */
bool cli_output_arrived(void);

/* "1.5 MiB": bytes for people; out holds 16 characters. */
const char *cli_size(uint64_t bytes, char out[16]);

#endif
