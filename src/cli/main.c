/* The command `trine`: finds the command, parses its options, runs it. Only this layer exits. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/output_file.h"
#include "cli/cli.h"

const struct command *const commands[] = {
#define COMMAND(name) &command_##name,
#include "cli/command_list.h"
#undef COMMAND
    NULL,
};

static const struct command *find_command(const char *name)
{
    for (const struct command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

/* A caller may start us with some of the three standard files closed; a model opened next would
 * then take their numbers and be written to. Input reads as empty, writing to output fails. */
static void occupy_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDONLY) != fd)
            _exit(1);
}

/* A file that is not finished goes; then the signal does what it always does. */
static void remove_unfinished(int signal_number)
{
    output_file_remove_unfinished();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int usage(const char *text)
{
    fprintf(stderr, "trine: %s\n", text);
    return EXIT_USAGE;
}

/* What was printed must also have arrived. */
static int finish_output(void)
{
    if (cli_output_arrived())
        return EXIT_SUCCESS;
    fprintf(stderr, "trine: standard output: cannot write all of it\n");
    return EXIT_FAILURE;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    void *values = memory_alloc(1, command->options_bytes);
    if (!values) {
        fprintf(stderr, "trine: out of memory\n");
        return EXIT_FAILURE;
    }
    struct error err;
    bool wants_help;
    int status = EXIT_SUCCESS;
    if (options_parse(command, argc, argv, values, &wants_help, &err) != STATUS_OK) {
        fprintf(stderr, "trine %s: %s (see trine %s --help)\n", command->name, err.text,
                command->name);
        status = EXIT_USAGE;
    } else if (wants_help) {
        options_help(command);
    } else {
        status = command->run(values);
    }
    memory_free(values);
    return status == EXIT_SUCCESS ? finish_output() : status;
}

int main(int argc, char **argv)
{
    occupy_standard_files();
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is seen as a failed write */
    const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++)
        if (signal(ends[i], remove_unfinished) == SIG_IGN)
            signal(ends[i], SIG_IGN); /* nohup */
    if (argc < 2)
        return usage("give a command (see trine --help)");
    const char *name = argv[1];
    bool is_help = strcmp(name, "help") == 0;
    if (argc > 2 && name[0] == '-')
        return usage("nothing may follow this option (see trine --help)");
    if (strcmp(name, "--version") == 0) {
        printf("trine %s\n", TRINE_VERSION);
    } else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (is_help && argc == 2)) {
        options_overview();
    } else if (strcmp(name, "manual") == 0) {
        options_manual();
    } else {
        const struct command *command = find_command(is_help ? argv[2] : name);
        if (!command) {
            fprintf(stderr, "trine: unknown command '%s' (see trine --help)\n",
                    is_help ? argv[2] : name);
            return EXIT_USAGE;
        }
        if (!is_help)
            return run_command(command, argc - 2, argv + 2);
        options_help(command);
    }
    return finish_output();
}
