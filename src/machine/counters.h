/* What the machine counts while a program runs: cycles, energy, traffic of memory and between
 * sockets. What it does not offer is absent with the reason; nothing is estimated from models. */
#ifndef TRINE_MACHINE_COUNTERS_H
#define TRINE_MACHINE_COUNTERS_H

#include <linux/perf_event.h>
#include <stdbool.h>

#include "base/error.h"

/* name in JSON, with its unit; for people; unit for people and how many of the counter's own units
 * it is; whether it is of the whole machine, with everything else that runs there.
 * The frequency is a quotient: cycles over the seconds that threads were running. */
#define COUNTER_LIST(X)                                                                            \
    X(FREQUENCY, "core_frequency_hz", "core frequency", "GHz", 1e9, false)                         \
    X(ENERGY_PACKAGE, "energy_package_j", "energy, package", "J", 1, true)                         \
    X(ENERGY_DRAM, "energy_dram_j", "energy, DRAM", "J", 1, true)                                  \
    X(MEMORY_READ, "memory_read_bytes", "memory read", "GB", 1e9, true)                            \
    X(MEMORY_WRITTEN, "memory_written_bytes", "memory written", "GB", 1e9, true)                   \
    X(CROSS_SOCKET, "cross_socket_bytes", "between sockets", "GB", 1e9, true)
#define COUNTER_ENUM(id, name, text, unit, size, is_machine) COUNTER_##id,
enum counter_id { COUNTER_LIST(COUNTER_ENUM) N_COUNTERS };
#undef COUNTER_ENUM

struct counter_info {
    const char *name, *text, *unit;
    double unit_size;
    bool is_machine;
};
const struct counter_info *counter_info(enum counter_id id);

/* What was counted between starts and stops. */
struct counter_reading {
    bool is_present;
    double amount;      /* cycles, J or bytes */
    double seconds;     /* that the counter was on; of the frequency: of all threads together */
    bool is_estimated;  /* more events than the unit can count: it counted a part of the time */
    const char *source; /* borrowed from the counters: "uncore_imc, cas_count_read"; NULL: absent */
    const char *reason; /* borrowed likewise: why it is absent; NULL: present */
};

/* Where they are found, for tests: root stands before /sys and /proc; open is perf_event_open
 * (an fd, or -1 with errno) without its group and flags. */
struct counter_system {
    const char *root;
    int (*open)(struct perf_event_attr *attr, int pid, int cpu);
};

struct counters;

/* Looks for all of them. Threads that the caller starts afterwards are counted with it, those it
 * started before are not. system NULL: this machine.
 * errors  MEMORY; an absent counter is none */
enum status counters_open(struct counters **counters, const struct counter_system *system,
                          struct error *err);

/* Accepts NULL. */
void counters_close(struct counters *counters);

/* Nothing is counted yet. */
void counters_clear(struct counters *counters);

/* What lies between is added. powercap's energies wrap, and must use less than one range between
 * them: a counter is absent after an interval that was long enough for more. */
void counters_start(struct counters *counters);
void counters_stop(struct counters *counters);

struct counter_reading counters_read(const struct counters *counters, enum counter_id id);

/* A reading in the counter's unit: its amount; of the frequency the quotient, NAN when no thread
 * ran. */
double counter_value(enum counter_id id, const struct counter_reading *reading);

/* What one of n tokens took; the frequency is the same for all. */
double counter_per_token(enum counter_id id, const struct counter_reading *reading, double n);

/* What one more token takes: the difference of a run of n_long tokens and one of n_short, which
 * leaves out what every run has. */
double counter_per_more(enum counter_id id, const struct counter_reading *longer, double n_long,
                        const struct counter_reading *shorter, double n_short);

#endif
