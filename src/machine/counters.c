#include "machine/counters.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "machine/counters_state.h"

#define MOST_W 1000 /* of a package: more than any draws for long (TDPs of 2025: 500 W) */

const struct counter_info *counter_info(enum counter_id id)
{
#define COUNTER_INFO(id_, name, text, unit, size, is_machine) {name, text, unit, size, is_machine},
    static const struct counter_info infos[] = {COUNTER_LIST(COUNTER_INFO)};
#undef COUNTER_INFO
    return &infos[id];
}

void counters_say_absent(struct counters *c, enum counter_id id, const char *format, ...)
{
    struct counter_state *state = &c->states[id];
    if (state->reason[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(state->reason, sizeof state->reason, format, args);
    va_end(args);
}

enum status counters_add(struct counters *c, const struct counter_input *input, struct error *err)
{
    size_t n = (size_t)c->n_inputs + 1;
    struct counter_input *inputs = memory_resize(c->inputs, n, sizeof *inputs);
    if (!inputs) {
        if (input->fd >= 0)
            close(input->fd);
        return fail_memory(err, "counters", n * sizeof *inputs);
    }
    c->inputs = inputs;
    c->inputs[c->n_inputs++] = *input;
    c->states[input->id].is_present = true;
    return STATUS_OK;
}

void counters_drop(struct counters *c, enum counter_id id)
{
    int n = 0;
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].id != id)
            c->inputs[n++] = c->inputs[i];
        else if (c->inputs[i].fd >= 0)
            close(c->inputs[i].fd);
    }
    c->n_inputs = n;
    c->states[id].is_present = false;
}

static int open_perf_event(struct perf_event_attr *attr, int pid, int cpu)
{
    return (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

enum status counters_open(struct counters **counters, const struct counter_system *system,
                          struct error *err)
{
    static const struct counter_system live = {"", open_perf_event};
    struct counters *c = memory_alloc(1, sizeof *c);
    *counters = c;
    if (!c)
        return fail_memory(err, "counters", sizeof *c);
    c->system = system ? *system : live;
    enum status status = counters_find(c, err);
    if (status == STATUS_OK)
        return STATUS_OK;
    counters_close(c);
    *counters = NULL;
    return status;
}

void counters_close(struct counters *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].fd >= 0)
            close(c->inputs[i].fd);
    memory_free(c->inputs);
    memory_free(c);
}

void counters_clear(struct counters *c)
{
    for (int i = 0; i < N_COUNTERS; i++) {
        struct counter_state *state = &c->states[i];
        state->is_estimated = state->is_lost = state->is_long = false;
        state->amount = state->seconds = 0;
    }
}

/* What an input shows now. */
static bool take_sample(const struct counter_input *input, struct counter_sample *sample)
{
    *sample = (struct counter_sample){0};
    if (input->fd >= 0)
        return read(input->fd, sample, sizeof *sample) == sizeof *sample;
    sample->enabled_ns = sample->running_ns = (uint64_t)clock_ns();
    return counters_read_file(input->file, &sample->value);
}

void counters_start(struct counters *c)
{
    for (int i = 0; i < c->n_inputs; i++)
        if (!take_sample(&c->inputs[i], &c->inputs[i].begin))
            c->states[c->inputs[i].id].is_lost = true;
}

/* A file's number falls when it wraps. */
static uint64_t difference(const struct counter_input *input, uint64_t end)
{
    bool is_wrapped = input->fd < 0 && end < input->begin.value;
    return is_wrapped ? input->range - input->begin.value + end : end - input->begin.value;
}

/* Whether a file's number may have come round to where it began, or further: it does not show that. */
static bool is_too_long(const struct counter_input *input, uint64_t ns)
{
    return input->fd < 0 && (double)ns / 1e9 * MOST_W >= input->scale * (double)input->range;
}

/* Adds what one input counted. When units have more events than counters, each is on for a part of
 * the time, and its count is that part of the whole. */
static void add_input(struct counter_state *state, const struct counter_input *input,
                      const struct counter_sample *end)
{
    double amount = input->scale * (double)difference(input, end->value);
    uint64_t enabled = end->enabled_ns - input->begin.enabled_ns;
    uint64_t running = end->running_ns - input->begin.running_ns;
    if (running < enabled) {
        state->is_lost |= running == 0;
        state->is_estimated = true;
        amount *= running > 0 ? (double)enabled / (double)running : 0;
    }
    state->is_long |= is_too_long(input, enabled);
    state->amount += amount;
    state->seconds += (double)enabled / 1e9;
}

void counters_stop(struct counters *c)
{
    for (int i = 0; i < c->n_inputs; i++) {
        struct counter_state *state = &c->states[c->inputs[i].id];
        struct counter_sample end;
        if (take_sample(&c->inputs[i], &end))
            add_input(state, &c->inputs[i], &end);
        else
            state->is_lost = true;
    }
}

struct counter_reading counters_read(const struct counters *c, enum counter_id id)
{
    const struct counter_state *state = &c->states[id];
    if (!state->is_present)
        return (struct counter_reading){.reason = state->reason};
    if (state->is_lost)
        return (struct counter_reading){
            .reason = "it did not count: others use the unit's counters, or it cannot be read"};
    if (state->is_long)
        return (struct counter_reading){
            .reason = "samples were too long: powercap's number may have gone through its whole "
                      "range at 1000 W, and does not show how often it did"};
    return (struct counter_reading){.is_present = true,
                                    .amount = state->amount,
                                    .seconds = state->seconds,
                                    .is_estimated = state->is_estimated,
                                    .source = state->source};
}

double counter_value(enum counter_id id, const struct counter_reading *reading)
{
    if (id != COUNTER_FREQUENCY)
        return reading->amount;
    return reading->seconds > 0 ? reading->amount / reading->seconds : NAN;
}

double counter_per_token(enum counter_id id, const struct counter_reading *reading, double n)
{
    double value = counter_value(id, reading);
    return id == COUNTER_FREQUENCY ? value : value / n;
}

double counter_per_more(enum counter_id id, const struct counter_reading *longer, double n_long,
                        const struct counter_reading *shorter, double n_short)
{
    struct counter_reading difference = {.amount = longer->amount - shorter->amount,
                                         .seconds = longer->seconds - shorter->seconds};
    return counter_per_token(id, &difference, n_long - n_short);
}
