#include "cli/compare_run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

#define MOST_OUT   ((size_t)16 << 20)
#define MOST_TAIL  ((size_t)4096)    /* of messages */
#define MOST_END_S 2                 /* from SIGKILL until the processes are gone */
#define MOST_AFTER ((size_t)1 << 20) /* that a pipe can hold when the command has ended */

/* The reading end of a pipe, and what came out of it. */
struct catcher {
    int fd; /* -1: ended */
    bool keeps_tail;
    bool is_cut, is_full; /* too much was written; no memory */
    char *bytes;          /* owned */
    size_t n, room;
};

struct watch {
    pid_t child; /* also its group */
    int64_t begin_ns, end_ns, deadline_ns;
    struct catcher out, err;
    bool is_late, is_stuck; /* the time is over; a process outlives SIGKILL */
    int status;
    double cpu_s;
    int n_left;
};

/* These are blocked while a command runs, but for the moments in which it is waited for. */
static const int caught_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
#define N_CAUGHT 4

static volatile sig_atomic_t interrupted_by;

static void note_signal(int number)
{
    if (number != SIGCHLD)
        interrupted_by = number;
}

struct signal_state {
    struct sigaction actions[N_CAUGHT];
    sigset_t mask, open;
};

static void catch_signals(struct signal_state *saved)
{
    struct sigaction action = {.sa_handler = note_signal};
    sigset_t blocked;
    interrupted_by = 0;
    sigemptyset(&blocked);
    for (int i = 0; i < N_CAUGHT; i++)
        sigaddset(&blocked, caught_signals[i]);
    sigprocmask(SIG_BLOCK, &blocked, &saved->mask);
    saved->open = saved->mask;
    for (int i = 0; i < N_CAUGHT; i++) {
        sigaction(caught_signals[i], NULL, &saved->actions[i]);
        bool is_ignored = saved->actions[i].sa_handler == SIG_IGN; /* nohup */
        if (!is_ignored || caught_signals[i] == SIGCHLD)
            sigaction(caught_signals[i], &action, NULL);
        sigdelset(&saved->open, caught_signals[i]);
    }
}

/* Then an interruption does what it would have done without a command. */
static void release_signals(const struct signal_state *saved)
{
    for (int i = 0; i < N_CAUGHT; i++)
        sigaction(caught_signals[i], &saved->actions[i], NULL);
    sigprocmask(SIG_SETMASK, &saved->mask, NULL);
    if (interrupted_by)
        raise(interrupted_by);
}

static bool make_room(struct catcher *c)
{
    if (c->room - c->n > 1)
        return true;
    size_t room = c->room ? 2 * c->room : 4096;
    char *bytes = memory_resize(c->bytes, room, 1);
    if (!bytes)
        return false;
    c->bytes = bytes;
    c->room = room;
    return true;
}

/* Keeps what fits; reads on in any case, so that the command is not held up. */
static void keep(struct catcher *c, const char *bytes, size_t n)
{
    if (c->keeps_tail && c->n + n > 2 * MOST_TAIL) {
        size_t drop = c->n > MOST_TAIL ? c->n - MOST_TAIL : 0;
        memmove(c->bytes, c->bytes + drop, c->n - drop);
        c->n -= drop;
    }
    if (!c->keeps_tail && c->n + n > MOST_OUT) {
        c->is_cut = true;
        return;
    }
    for (size_t used = 0; used < n;) {
        if (!make_room(c)) {
            c->is_full = true;
            return;
        }
        size_t part = c->room - c->n - 1 < n - used ? c->room - c->n - 1 : n - used;
        memcpy(c->bytes + c->n, bytes + used, part);
        c->n += part;
        used += part;
    }
}

/* Reads until the pipe is empty, at most `most` bytes. */
static void catch_bytes(struct catcher *c, size_t most)
{
    char bytes[MOST_TAIL];
    while (c->fd >= 0 && most > 0) {
        ssize_t n = read(c->fd, bytes, most < sizeof bytes ? most : sizeof bytes);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close(c->fd);
            c->fd = -1;
            return;
        }
        keep(c, bytes, (size_t)n);
        most -= (size_t)n;
    }
}

static bool has_ended(pid_t child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child;
}

static void wait_for_end(struct watch *w, const sigset_t *open)
{
    while (!has_ended(w->child)) {
        int64_t left = w->deadline_ns - clock_ns();
        w->is_late = left <= 0;
        if (w->is_late || interrupted_by)
            break;
        struct pollfd fds[2] = {{.fd = w->out.fd, .events = POLLIN},
                                {.fd = w->err.fd, .events = POLLIN}};
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        if (ppoll(fds, 2, &timeout, open) > 0) {
            catch_bytes(&w->out, MOST_AFTER);
            catch_bytes(&w->err, MOST_AFTER);
        }
    }
    w->end_ns = clock_ns();
}

static double cpu_seconds(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           1e-6 * (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* Takes the processes of the group that have ended. False: none is left. */
static bool reap(struct watch *w)
{
    int status;
    struct rusage usage;
    pid_t ended;
    while ((ended = wait4(-w->child, &status, WNOHANG, &usage)) > 0) {
        w->cpu_s += cpu_seconds(&usage);
        if (ended == w->child)
            w->status = status;
        else
            w->n_left += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    return ended == 0;
}

/* Orphans of the group are this process's children, because it is their reaper; what they used is
 * the command's as well. One that runs as another user, hangs in the kernel or is traced by another
 * process does not go: it is not waited for without end. */
static void end_group(struct watch *w, const sigset_t *open)
{
    int64_t deadline_ns = clock_ns() + (int64_t)MOST_END_S * 1000000000;
    kill(-w->child, SIGKILL);
    while (reap(w) && !w->is_stuck) {
        int64_t left = deadline_ns - clock_ns();
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        w->is_stuck = left <= 0;
        if (!w->is_stuck)
            ppoll(NULL, 0, &timeout, open); /* SIGCHLD ends it */
    }
}

static void become(const char *command, const int out[2], const int err[2], const sigset_t *mask)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    dup2(in, 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static enum status start(struct watch *w, const char *command, const sigset_t *mask,
                         struct error *err)
{
    int out[2], messages[2];
    if (pipe2(out, O_CLOEXEC) != 0)
        return fail(err, STATUS_IO, "cannot make a pipe: %s", strerror(errno));
    w->out.fd = out[0];
    if (pipe2(messages, O_CLOEXEC) != 0) {
        close(out[1]);
        return fail(err, STATUS_IO, "cannot make a pipe: %s", strerror(errno));
    }
    w->err.fd = messages[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(messages[0], F_SETFL, O_NONBLOCK);
    w->begin_ns = clock_ns();
    w->child = fork();
    if (w->child == 0)
        become(command, out, messages, mask);
    close(out[1]);
    close(messages[1]);
    if (w->child < 0)
        return fail(err, STATUS_IO, "cannot start a process: %s", strerror(errno));
    setpgid(w->child, w->child); /* the child does the same; whoever comes first */
    return STATUS_OK;
}

/* The last line of the messages that is not empty. */
static const char *last_line(struct catcher *c)
{
    while (c->n && strchr(" \t\r\n", c->bytes[c->n - 1]))
        c->n--;
    if (c->n == 0)
        return "";
    c->bytes[c->n] = 0;
    const char *newline = memrchr(c->bytes, '\n', c->n);
    return newline ? newline + 1 : c->bytes;
}

static enum status judge(struct watch *w, double timeout_s, struct error *err)
{
    const char *message = last_line(&w->err), *colon = message[0] ? ": " : "";
    if (interrupted_by)
        return fail(err, STATUS_IO, "interrupted");
    if (w->is_stuck)
        return fail(err, STATUS_IO,
                    "a process of it cannot be killed: there %d s after SIGKILL%s%s", MOST_END_S,
                    colon, message);
    if (w->is_late)
        return fail(err, STATUS_LIMIT, "not finished after %g s: killed (see --timeout)%s%s",
                    timeout_s, colon, message);
    if (WIFSIGNALED(w->status))
        return fail(err, STATUS_IO, "ended by signal %d (%s)%s%s", WTERMSIG(w->status),
                    strsignal(WTERMSIG(w->status)), colon, message);
    if (WEXITSTATUS(w->status) != 0)
        return fail(err, STATUS_IO, "exit status %d%s%s", WEXITSTATUS(w->status), colon, message);
    if (w->out.is_cut)
        return fail(err, STATUS_LIMIT, "wrote more than %zu MiB to its standard output",
                    MOST_OUT >> 20);
    if (w->out.is_full || !make_room(&w->out))
        return fail_memory(err, "output of the command", w->out.n);
    return STATUS_OK;
}

static enum status watch(struct watch *w, const char *command, double timeout_s, struct error *err)
{
    struct signal_state signals;
    catch_signals(&signals);
    enum status status = start(w, command, &signals.mask, err);
    if (status == STATUS_OK) {
        w->deadline_ns = w->begin_ns + (int64_t)(timeout_s * 1e9);
        wait_for_end(w, &signals.open);
        end_group(w, &signals.open);
        catch_bytes(&w->out, MOST_AFTER);
        catch_bytes(&w->err, MOST_AFTER);
        status = judge(w, timeout_s, err);
    }
    release_signals(&signals);
    return status;
}

enum status shell_run(struct shell_run *run, const char *command, double timeout_s,
                      struct error *err)
{
    struct watch w = {.out.fd = -1, .err = {.fd = -1, .keeps_tail = true}};
    struct cpu_times begin, end;
    *run = (struct shell_run){.load = {NAN, NAN}};
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* a refusal costs only what orphans used */
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ; /* those that left the groups of earlier commands: theirs is foreign time */
    bool is_known = cpu_times_read(&begin, NULL);
    double own = own_cpu_seconds();
    int64_t begin_ns = clock_ns();
    enum status status = watch(&w, command, timeout_s, err);
    own = own_cpu_seconds() - own + w.cpu_s;
    run->load_s = 1e-9 * (double)(clock_ns() - begin_ns);
    if (is_known && cpu_times_read(&end, NULL))
        run->load = foreign_load_between(&begin, &end, run->load_s, own);
    run->wall_s = 1e-9 * (double)(w.end_ns - w.begin_ns);
    run->cpu_s = w.cpu_s;
    run->n_left = w.n_left;
    run->out = w.out.bytes;
    run->out_bytes = w.out.n;
    if (run->out)
        run->out[run->out_bytes] = 0;
    if (w.out.fd >= 0)
        close(w.out.fd);
    if (w.err.fd >= 0)
        close(w.err.fd);
    memory_free(w.err.bytes);
    return status;
}

void shell_run_done(struct shell_run *run)
{
    memory_free(run->out);
    *run = (struct shell_run){0};
}
