#include "cli/compare_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/text.h"
#include "cli/build_commit.h"
#include "machine/cpu_features.h"
#include "machine/topology.h"

static const char *time_text(time_t when, char out[32])
{
    struct tm utc;
    gmtime_r(&when, &utc);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return out;
}

/* A file's first line, or null. */
static json_t *line_of(const char *path)
{
    char line[128] = "";
    FILE *f = fopen(path, "re");
    if (f && !fgets(line, sizeof line, f))
        line[0] = 0;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = 0;
    return line[0] ? json_string(line) : json_null();
}

/* The processor says so to programs that run under a hypervisor. */
static bool is_virtual_machine(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t room = 0;
    bool is_virtual = false, is_flags = false;
    while (f && !is_flags && getline(&line, &room, f) > 0) {
        is_flags = strncmp(line, "flags", 5) == 0;
        is_virtual = is_flags && strstr(line, " hypervisor");
    }
    free(line);
    if (f)
        fclose(f);
    return is_virtual;
}

static json_t *machine_facts(void)
{
    struct utsname system = {0};
    struct topology t = {0};
    struct error err;
    uname(&system);
    bool is_known = topology_read(&t, NULL, &err) == STATUS_OK;
    json_t *facts = json_pack("{s:s, s:i, s:i, s:i, s:f, s:I, s:I, s:s, s:s, s:o, s:b}", "cpu",
                              is_known && t.cpu[0] ? t.cpu : cpu_name(), "cores", t.n_cores, "cpus",
                              t.n_cpus, "nodes", t.n_nodes, "quota", t.quota, "memory_bytes",
                              (json_int_t)t.memory_bytes, "l3_bytes", (json_int_t)t.l3_bytes,
                              "kernel", system.release, "architecture", system.machine, "governor",
                              line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
                              "virtual_machine", is_virtual_machine());
    topology_done(&t);
    return facts;
}

/* A file by its name without folders, once. */
static void add_file(json_t *files, const char *path)
{
    struct stat info;
    char modified[32], name[256];
    size_t i;
    json_t *file;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    const char *slash = strrchr(path, '/');
    text_printable(text_of(slash ? slash + 1 : path), name, sizeof name);
    json_t *found = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)info.st_size,
                              "modified", time_text(info.st_mtime, modified));
    json_array_foreach(files, i, file)
    {
        if (json_equal(file, found)) {
            json_decref(found);
            return;
        }
    }
    json_array_append_new(files, found);
}

/* Words as a shell sees them in simple commands; of "--model=FILE" also what follows the sign. */
static void add_files(json_t *files, const char *command)
{
    char *copy = strdup(command), *rest = copy, *word;
    while (copy && (word = strsep(&rest, " \t\n'\"();|&<>"))) {
        char *sign = strchr(word, '=');
        add_file(files, word);
        if (sign)
            add_file(files, sign + 1);
    }
    free(copy);
}

json_t *compare_facts(const struct comparison *c, double max_foreign)
{
    char begun[32];
    json_t *files = json_array();
    for (int v = 0; v < c->n_variants; v++)
        add_files(files, c->commands[v]);
    return json_pack("{s:s, s:s, s:s, s:f, s:o, s:o}", "begun", time_text(time(NULL), begun),
                     "trine_version", TRINE_VERSION, "trine_commit", build_commit(), "max_foreign",
                     max_foreign, "machine", machine_facts(), "files", files);
}

static const char *cpu_of(json_t *facts)
{
    const char *cpu = json_string_value(json_object_get(json_object_get(facts, "machine"), "cpu"));
    return cpu ? cpu : "an unknown processor";
}

enum status compare_facts_check(const struct comparison *c, json_t *facts, struct error *err)
{
    json_t *first = json_array_get(c->sessions, 0);
    if (!first || strcmp(cpu_of(first), cpu_of(facts)) == 0)
        return STATUS_OK;
    return fail(err, STATUS_FORMAT,
                "the record was begun on %s and this is %s; give another --record", cpu_of(first),
                cpu_of(facts));
}

static bool is_in(json_t *files, json_t *wanted)
{
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file)
    {
        if (json_equal(file, wanted))
            return true;
    }
    return false;
}

void compare_facts_report(const struct comparison *c)
{
    json_t *first = json_object_get(json_array_get(c->sessions, 0), "files"), *file;
    for (size_t s = 1; s < json_array_size(c->sessions); s++) {
        json_t *files = json_object_get(json_array_get(c->sessions, s), "files");
        size_t i;
        json_array_foreach(files, i, file)
        {
            char text[256];
            const char *name = json_string_value(json_object_get(file, "name"));
            if (is_in(first, file) || !name)
                continue;
            fprintf(stderr, "ATTENTION: %s is not the file that the record was begun with\n",
                    text_printable(text_of(name), text, sizeof text));
        }
    }
}
