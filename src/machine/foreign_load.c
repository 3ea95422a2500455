#include "machine/foreign_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define UNCERTAIN_S 0.02 /* two ticks */
#define SHORTEST_S  0.1

/* The numbers of the line in their order; guest time is a part of user time and follows after. */
enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, N_TIMES };

static bool parse_line(const char *line, double seconds[N_TIMES])
{
    int at = 0, used;
    uint64_t ticks, sum = 0;
    double tick_s = 1 / (double)sysconf(_SC_CLK_TCK);
    if (strncmp(line, "cpu ", 4) != 0)
        return false;
    line += 4;
    while (at < N_TIMES && sscanf(line, "%" SCNu64 "%n", &ticks, &used) == 1) {
        seconds[at++] = (double)ticks * tick_s;
        sum += ticks;
        line += used;
    }
    return at > IDLE && sum > 0; /* old systems have the first four only */
}

bool cpu_times_read(struct cpu_times *times, const char *path)
{
    FILE *f = fopen(path ? path : "/proc/stat", "re");
    char line[512];
    double t[N_TIMES] = {0};
    bool is_good = f && fgets(line, sizeof line, f) && parse_line(line, t);
    if (f)
        fclose(f);
    *times = (struct cpu_times){.busy_s = t[USER] + t[NICE] + t[SYSTEM] + t[IRQ] + t[SOFTIRQ],
                                .idle_s = t[IDLE] + t[IOWAIT],
                                .stolen_s = t[STEAL]};
    return is_good;
}

double own_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct foreign_load foreign_load_between(const struct cpu_times *begin, const struct cpu_times *end,
                                         double wall_s, double own_s)
{
    double busy = end->busy_s - begin->busy_s, stolen = end->stolen_s - begin->stolen_s;
    double all = busy + stolen + end->idle_s - begin->idle_s;
    if (wall_s < SHORTEST_S || all <= 0)
        return (struct foreign_load){NAN, NAN};
    return (struct foreign_load){.cpus = fmax(0, (busy - own_s) / wall_s),
                                 .stolen = fmax(0, stolen / wall_s)};
}

bool foreign_load_disturbs(const struct foreign_load *load, double wall_s, double limit)
{
    return limit > 0 && (load->cpus + load->stolen - limit) * wall_s > UNCERTAIN_S;
}
