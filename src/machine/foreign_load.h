/* How many CPUs other processes kept busy during an interval. The whole machine is counted, not
 * only the CPUs that this process may use: what runs on the others takes memory bandwidth and power
 * from the same machine. */
#ifndef TRINE_MACHINE_FOREIGN_LOAD_H
#define TRINE_MACHINE_FOREIGN_LOAD_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds of CPU time since the machine started, of all its CPUs. */
struct cpu_times {
    double busy_s;   /* user (guests included), nice, system, interrupts */
    double idle_s;   /* idle, or waiting for a disk */
    double stolen_s; /* the hypervisor ran something else instead */
};

/* From the line "cpu ..." of /proc/stat, or of a file like it; path NULL: /proc/stat. False when
 * there is none or it says nothing: systems that simulate the file give zeros only. */
bool cpu_times_read(struct cpu_times *times, const char *path);

/* CPU seconds of this process, of all its threads. */
double own_cpu_seconds(void);

struct foreign_load {
    double cpus;   /* busy with other processes, on average; never below 0 */
    double stolen; /* CPUs that the hypervisor took, on average */
};

/* From readings at the beginning and at the end of an interval of wall_s seconds, and the CPU
 * seconds that belong to the one who asks. The system counts in ticks of 1/100 s on each CPU, so
 * cpus is known to about 0.02 / wall_s: NAN for less than 0.1 s, and where the clock of the CPUs
 * stood still. */
struct foreign_load foreign_load_between(const struct cpu_times *begin, const struct cpu_times *end,
                                         double wall_s, double own_s);

/* Was the interval disturbed: foreign and stolen CPUs together above a limit by more than that
 * uncertainty? A limit of 0 is none. */
bool foreign_load_disturbs(const struct foreign_load *load, double wall_s, double limit);

#endif
