/* Which counters there are: a list of units and events, looked up in sysfs. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "machine/counters_state.h"
#include "machine/perf_event_text.h"

/* An event of a unit (PMU). Units are numbered where there are several: uncore_imc_0. */
struct counter_source {
    enum counter_id id;
    const char *pmu;   /* without number */
    const char *event; /* as sysfs names it; NULL: it does not, and the terms are */
    const char *terms; /* may hold one %x for the number of an instance */
    int first, step, n_instances;
    double scale; /* of the terms: counts to bytes */
    bool is_zen4; /* only of these processors: others may count something else */
};

/* source  events by name: arch/x86/events/rapl.c, arch/x86/events/intel/uncore_snb.c and _snbep.c of
 *         Linux. UPI: a cache line of 64 bytes is 9 flits. AMD: tools/perf/pmu-events/arch/x86/amdzen4
 *         (memory-controller.json: a CAS command moves 64 bytes; data-fabric.json: beats of 64 bytes
 *         for the remote processor at coherent stations 0 to 11, read and write).
 * Of a counter the first unit counts that the machine has; all rows with this unit are summed. */
static const struct counter_source sources[] = {
    {COUNTER_ENERGY_PACKAGE, "power", "energy-pkg", NULL, 0, 0, 1, 0, false},
    {COUNTER_ENERGY_DRAM, "power", "energy-ram", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_READ, "uncore_imc", "cas_count_read", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_READ, "uncore_imc", "data_reads", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_READ, "uncore_imc_free_running", "data_read", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_READ, "amd_umc", NULL, "event=0x0a,rdwrmask=0x1", 0, 0, 1, 64, false},
    {COUNTER_MEMORY_WRITTEN, "uncore_imc", "cas_count_write", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_WRITTEN, "uncore_imc", "data_writes", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_WRITTEN, "uncore_imc_free_running", "data_write", NULL, 0, 0, 1, 0, false},
    {COUNTER_MEMORY_WRITTEN, "amd_umc", NULL, "event=0x0a,rdwrmask=0x2", 0, 0, 1, 64, false},
    {COUNTER_CROSS_SOCKET, "uncore_upi", NULL, "event=0x02,umask=0x0f", 0, 0, 1, 64.0 / 9, false},
    {COUNTER_CROSS_SOCKET, "amd_df", NULL, "event=0x%x,umask=0xbfe", 0x1f, 0x40, 12, 64, true},
    {COUNTER_CROSS_SOCKET, "amd_df", NULL, "event=0x%x,umask=0xbff", 0x1f, 0x40, 12, 64, true},
};
#define N_SOURCES (int)(sizeof sources / sizeof sources[0])

static FILE *open_in(const struct counters *c, const char *name)
{
    char path[COUNTERS_PATH];
    snprintf(path, sizeof path, "%s/%s", c->system.root, name);
    return fopen(path, "re");
}

static void read_processor(struct counters *c)
{
    struct processor *p = &c->processor;
    char line[8192]; /* flags of today's processors take 2000 */
    FILE *file = open_in(c, "proc/cpuinfo");
    while (file && fgets(line, sizeof line, file) && line[0] != '\n') {
        p->is_amd |= strstr(line, "AuthenticAMD") != NULL;
        p->is_virtual |= strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor");
        sscanf(line, "cpu family : %d", &p->family);
        sscanf(line, "model : %d", &p->model);
    }
    if (file)
        fclose(file);
}

/* Servers of Zen 4: the event numbers of other data fabrics are different. */
static bool is_zen4_server(const struct processor *p)
{
    bool has_model =
        (p->model >= 0x10 && p->model <= 0x1f) || (p->model >= 0xa0 && p->model <= 0xaf);
    return p->is_amd && p->family == 0x19 && has_model;
}

static int read_paranoid(const struct counters *c)
{
    int level = 2; /* the kernel's default */
    FILE *file = open_in(c, "proc/sys/kernel/perf_event_paranoid");
    if (file && fscanf(file, "%d", &level) != 1)
        level = 2;
    if (file)
        fclose(file);
    return level;
}

static const char *where_none(const struct counters *c)
{
    return c->processor.is_virtual ? "this is a virtual machine (hypervisor flag)"
                                   : "this kernel or processor has none";
}

/* Why perf_event_open failed. */
static void say_refused(struct counters *c, enum counter_id id, const char *what, int reason)
{
    int level = read_paranoid(c), needed = counter_info(id)->is_machine ? 0 : 2;
    if (reason != EACCES && reason != EPERM)
        counters_say_absent(c, id, "%s: the kernel does not count it (%s): %s", what,
                            strerror(reason), where_none(c));
    else if (level > needed)
        counters_say_absent(
            c, id, "permission: perf_event_paranoid is %d; needs %d or less, or CAP_PERFMON", level,
            needed);
    else
        counters_say_absent(c, id,
                            "permission: perf_event_open is refused (%s) although "
                            "perf_event_paranoid is %d: by a filter of the container, perhaps",
                            strerror(reason), level);
}

/* The unit that sysfs gives, to the counter's own; 0: not known. */
static double unit_scale(const char *unit)
{
    if (strcmp(unit, "MiB") == 0)
        return 1 << 20;
    return strcmp(unit, "Joules") == 0 ? 1 : 0;
}

/* Opens an event on every CPU of its mask. */
static enum status open_event(struct counters *c, const struct counter_source *source,
                              const char *pmu, const struct perf_event_text *text,
                              struct error *err)
{
    struct counter_input input = {.id = source->id, .scale = source->scale};
    if (source->event)
        input.scale = text->scale * unit_scale(text->unit);
    if (input.scale <= 0 || text->n_cpus == 0) {
        counters_drop(c, source->id);
        counters_say_absent(c, source->id, "%s: the kernel gives no %s that is known here", pmu,
                            text->n_cpus ? "unit" : "cpumask");
        return STATUS_OK;
    }
    struct perf_event_attr attr = {.size = sizeof attr, .type = text->type};
    attr.config = text->config[0];
    attr.config1 = text->config[1];
    attr.config2 = text->config[2];
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    for (int i = 0; i < text->n_cpus; i++) {
        input.fd = c->system.open(&attr, -1, text->cpus[i]);
        if (input.fd < 0) {
            int reason = errno;
            counters_drop(c, source->id);
            say_refused(c, source->id, pmu, reason);
            return STATUS_OK;
        }
        TRY(counters_add(c, &input, err));
    }
    return STATUS_OK;
}

static bool is_absent(const struct counters *c, enum counter_id id)
{
    return c->states[id].reason[0];
}

/* The terms of one instance. */
static void write_terms(const struct counter_source *source, int instance, char terms[64])
{
    const char *number = strstr(source->terms, "%x");
    if (number)
        snprintf(terms, 64, "%.*s%x%s", (int)(number - source->terms), source->terms,
                 source->first + instance * source->step, number + 2);
    else
        snprintf(terms, 64, "%s", source->terms);
}

/* Opens a source on one unit. */
static enum status open_unit(struct counters *c, const struct counter_source *source,
                             const char *pmu, struct error *err)
{
    for (int i = 0; i < source->n_instances && !is_absent(c, source->id); i++) {
        struct perf_event_text text;
        struct error wrong;
        char terms[64];
        if (!source->event)
            write_terms(source, i, terms);
        enum status status = source->event ? perf_event_named(&text, pmu, source->event, &wrong)
                                           : perf_event_encoded(&text, pmu, terms, &wrong);
        if (status != STATUS_OK) {
            counters_drop(c, source->id);
            counters_say_absent(c, source->id, "%s", wrong.text);
            return STATUS_OK;
        }
        TRY(open_event(c, source, pmu, &text, err));
    }
    return STATUS_OK;
}

/* "uncore_imc", "uncore_imc_0", but not "uncore_imc_free_running_0". */
static bool is_unit_of(const char *name, const char *pmu)
{
    size_t n = strlen(pmu);
    if (strncmp(name, pmu, n) != 0)
        return false;
    name += n;
    return *name == 0 ||
           (*name == '_' && name[1] && strspn(name + 1, "0123456789") == strlen(name + 1));
}

/* Opens a source on all units that have it. *n_units: those with the name, also without the event. */
static enum status open_source(struct counters *c, const struct counter_source *source,
                               int *n_units, struct error *err)
{
    char folder[COUNTERS_PATH / 2], pmu[COUNTERS_PATH];
    snprintf(folder, sizeof folder, "%s/sys/bus/event_source/devices", c->system.root);
    DIR *units = opendir(folder);
    enum status status = STATUS_OK;
    for (struct dirent *unit; status == STATUS_OK && units && (unit = readdir(units));) {
        if (!is_unit_of(unit->d_name, source->pmu) || is_absent(c, source->id))
            continue;
        ++*n_units;
        if (source->is_zen4 && !is_zen4_server(&c->processor))
            continue;
        snprintf(pmu, sizeof pmu, "%s/%s", folder, unit->d_name);
        if (source->event && !perf_event_is_named(pmu, source->event))
            continue;
        status = open_unit(c, source, pmu, err);
    }
    if (units)
        closedir(units);
    return status;
}

static bool is_energy(enum counter_id id)
{
    return id == COUNTER_ENERGY_PACKAGE || id == COUNTER_ENERGY_DRAM;
}

/* seen: a source whose unit there is, without the event. */
static void say_not_found(struct counters *c, enum counter_id id, const struct counter_source *seen)
{
    char names[192] = "";
    if (seen && seen->event) {
        counters_say_absent(c, id, "%s does not offer %s: this processor does not measure it",
                            seen->pmu, seen->event);
    } else if (seen) {
        counters_say_absent(c, id, "%s: the numbers of its events are not known for this processor",
                            seen->pmu);
    } else {
        for (int i = 0; i < N_SOURCES; i++)
            if (sources[i].id == id && !strstr(names, sources[i].pmu))
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                         names[0] ? ", " : "", sources[i].pmu);
        counters_say_absent(c, id, "the kernel has no unit %s%s: %s", names,
                            is_energy(id) ? ", and no intel-rapl in powercap" : "", where_none(c));
    }
}

/* Opens the first unit that has the counter. *seen: the first unit that there is. */
static enum status open_sources(struct counters *c, enum counter_id id,
                                const struct counter_source **seen, struct error *err)
{
    struct counter_state *state = &c->states[id];
    const struct counter_source *used = NULL;
    for (int i = 0; i < N_SOURCES && !is_absent(c, id); i++) {
        const struct counter_source *source = &sources[i];
        int n_units = 0;
        if (source->id != id || (used && strcmp(used->pmu, source->pmu) != 0))
            continue;
        TRY(open_source(c, source, &n_units, err));
        if (n_units > 0 && !*seen)
            *seen = source;
        if (state->is_present && !used) {
            used = source;
            snprintf(state->source, sizeof state->source, "%s, %s", source->pmu,
                     source->event ? source->event : source->terms);
        }
    }
    return STATUS_OK;
}

/* Cycles of this thread and those that it starts; where the kernel's may not be seen, the user's. */
static enum status find_frequency(struct counters *c, struct error *err)
{
    struct counter_state *state = &c->states[COUNTER_FREQUENCY];
    struct counter_input input = {.id = COUNTER_FREQUENCY, .scale = 1};
    struct perf_event_attr attr = {.size = sizeof attr, .type = PERF_TYPE_HARDWARE};
    attr.config = PERF_COUNT_HW_CPU_CYCLES;
    attr.inherit = 1;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    input.fd = c->system.open(&attr, 0, -1);
    if (input.fd < 0 && (errno == EACCES || errno == EPERM)) {
        attr.exclude_kernel = 1;
        input.fd = c->system.open(&attr, 0, -1);
    }
    if (input.fd < 0) {
        say_refused(c, COUNTER_FREQUENCY, "cycles", errno);
        return STATUS_OK;
    }
    snprintf(state->source, sizeof state->source, "cycles%s",
             attr.exclude_kernel ? " of user mode only, over all time: a lower bound" : "");
    return counters_add(c, &input, err);
}

enum status counters_find(struct counters *c, struct error *err)
{
    read_processor(c);
    TRY(find_frequency(c, err));
    for (int i = 0; i < N_COUNTERS; i++) {
        enum counter_id id = (enum counter_id)i;
        const struct counter_source *seen = NULL;
        if (id == COUNTER_FREQUENCY)
            continue;
        TRY(open_sources(c, id, &seen, err));
        if (!c->states[id].is_present && is_energy(id))
            TRY(counters_find_powercap(c, id, err));
        if (!c->states[id].is_present)
            say_not_found(c, id, seen);
    }
    return STATUS_OK;
}
