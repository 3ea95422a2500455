/* Events of perf_event_open as sysfs describes them: a folder for each unit that counts (PMU), with
 * its type, the CPUs to count on (cpumask), bit fields (format/NAME: "config:0-7,32-35") and events
 * (events/NAME: "event=0x04,umask=0x0f", with NAME.scale and NAME.unit). */
#ifndef TRINE_MACHINE_PERF_EVENT_TEXT_H
#define TRINE_MACHINE_PERF_EVENT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define PERF_EVENT_MAX_CPUS 64 /* one for each socket or die */

/* What perf_event_open wants to know, and what a count means. */
struct perf_event_text {
    uint32_t type;
    uint64_t config[3]; /* config, config1, config2 */
    double scale;       /* counts times this are units */
    char unit[16];      /* "MiB", "Joules"; "": counts */
    int n_cpus;         /* 0: there is no cpumask */
    int cpus[PERF_EVENT_MAX_CPUS];
};

/* The folder `pmu` (a path) describes the event. */
bool perf_event_is_named(const char *pmu, const char *event);

/* Reads an event that the folder describes.
 * errors  IO: a file cannot be read; FORMAT: a text is not what the kernel's documentation says;
 *         LIMIT: more CPUs than above */
enum status perf_event_named(struct perf_event_text *text, const char *pmu, const char *event,
                             struct error *err);

/* The same of an event that the folder gives no name: terms "event=0x02,umask=0x0f", put together by
 * the folder's bit fields. Scale 1, no unit.
 * errors  as above */
enum status perf_event_encoded(struct perf_event_text *text, const char *pmu, const char *terms,
                               struct error *err);

#endif
