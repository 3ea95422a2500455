/* The insides of counters, shared by those that look for them (counters_find.c, counters_powercap.c)
 * and those that read them (counters.c). */
#ifndef TRINE_MACHINE_COUNTERS_STATE_H
#define TRINE_MACHINE_COUNTERS_STATE_H

#include <stdint.h>

#include "machine/counters.h"

#define COUNTERS_PATH 512

/* A number that grows while counting, and how long it was counted; of a file, the clock. */
struct counter_sample {
    uint64_t value, enabled_ns, running_ns;
};

/* One of the numbers that make a counter together, of one unit and socket. */
struct counter_input {
    enum counter_id id;
    int fd;                   /* of perf_event_open; -1: the file below */
    char file[COUNTERS_PATH]; /* powercap's energy_uj */
    uint64_t range;           /* of the file: it wraps to 0 behind this */
    double scale;             /* to the counter's own unit */
    struct counter_sample begin;
};

struct counter_state {
    bool is_present, is_estimated;
    bool is_lost; /* an input could not be read, or did not count in an interval */
    bool is_long; /* a file may have gone through its whole range in an interval */
    double amount, seconds;
    char source[128], reason[512];
};

/* What /proc/cpuinfo says of the first CPU. */
struct processor {
    bool is_virtual, is_amd;
    int family, model;
};

struct counters {
    struct counter_system system;
    struct processor processor;
    int n_inputs;
    struct counter_input *inputs; /* owned */
    struct counter_state states[N_COUNTERS];
};

/* Writes why a counter is absent, unless it is said already. */
void counters_say_absent(struct counters *c, enum counter_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* errors  MEMORY */
enum status counters_add(struct counters *c, const struct counter_input *input, struct error *err);

/* Takes the inputs of a counter out again. */
void counters_drop(struct counters *c, enum counter_id id);

/* Adds the inputs of all counters that perf_event_open offers, and says what it does not.
 * errors  MEMORY */
enum status counters_find(struct counters *c, struct error *err);

/* Adds the energy of `id` from powercap, if it has any.
 * errors  MEMORY */
enum status counters_find_powercap(struct counters *c, enum counter_id id, struct error *err);

/* The energy in microjoules.
 * returns  false: the file cannot be read or is no number */
bool counters_read_file(const char *path, uint64_t *value);

#endif
