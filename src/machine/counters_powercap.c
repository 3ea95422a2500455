/* Energy from powercap: a folder for each package and for parts of it, with energy_uj, which wraps to 0
 * behind max_energy_range_uj. Only root may read it on most systems. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "machine/counters_state.h"

/* A name below the root, cut to what fits: a path that is too long is not found. */
static void path_in(char out[COUNTERS_PATH], const struct counters *c, const char *zone,
                    const char *name)
{
    snprintf(out, COUNTERS_PATH, "%s/sys/class/powercap/%s/%s", c->system.root, zone, name);
}

bool counters_read_file(const char *path, uint64_t *value)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    int n = fscanf(file, "%" SCNu64, value);
    int reason = ferror(file) ? errno : EINVAL;
    fclose(file);
    errno = reason;
    return n == 1;
}

/* Zones are named package-0 (or package-0-die-1), dram, core, uncore, psys. */
static bool is_zone_of(const struct counters *c, const char *zone, enum counter_id id)
{
    char path[COUNTERS_PATH], name[64] = "";
    path_in(path, c, zone, "name");
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool has_name = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    name[strcspn(name, "\n")] = 0;
    if (id == COUNTER_ENERGY_PACKAGE)
        return has_name && strncmp(name, "package-", 8) == 0;
    return has_name && strcmp(name, "dram") == 0;
}

/* *is_whole: false when the zone cannot be read; then none of them counts. */
static enum status add_zone(struct counters *c, const char *zone, enum counter_id id,
                            bool *is_whole, struct error *err)
{
    struct counter_input input = {.id = id, .fd = -1, .scale = 1e-6};
    char range[COUNTERS_PATH];
    uint64_t energy;
    path_in(input.file, c, zone, "energy_uj");
    path_in(range, c, zone, "max_energy_range_uj");
    const char *wrong = counters_read_file(input.file, &energy) ? NULL : input.file;
    if (!wrong && (!counters_read_file(range, &input.range) || input.range == 0))
        wrong = range;
    *is_whole = !wrong;
    if (!wrong)
        return counters_add(c, &input, err);
    int reason = errno;
    counters_drop(c, id);
    if (reason == EACCES || reason == EPERM)
        counters_say_absent(c, id, "permission: only root may read %s", wrong);
    else
        counters_say_absent(c, id, "%s: is no number of microjoules", wrong);
    return STATUS_OK;
}

enum status counters_find_powercap(struct counters *c, enum counter_id id, struct error *err)
{
    char folder[COUNTERS_PATH];
    snprintf(folder, sizeof folder, "%s/sys/class/powercap", c->system.root);
    DIR *zones = opendir(folder);
    enum status status = STATUS_OK;
    bool is_whole = true;
    /* intel-rapl-mmio shows the same packages a second time */
    for (struct dirent *zone; status == STATUS_OK && is_whole && zones && (zone = readdir(zones));)
        if (strncmp(zone->d_name, "intel-rapl:", 11) == 0 && is_zone_of(c, zone->d_name, id))
            status = add_zone(c, zone->d_name, id, &is_whole, err);
    if (zones)
        closedir(zones);
    if (c->states[id].is_present)
        snprintf(c->states[id].source, sizeof c->states[id].source, "powercap, intel-rapl");
    return status;
}
