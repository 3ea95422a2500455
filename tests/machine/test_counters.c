/* Counters of machines as sysfs describes them, with numbers that the test gives; and of this one. */
#include "../support.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "machine/counters.h"
#include "machine/perf_event_text.h"

#define DEVICES "sys/bus/event_source/devices/"

/* Writes a file below the scratch folder and makes the folders above it. */
static void put(const char *tree, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", scratch_path(tree), name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    write_whole(path, text, strlen(text));
}

/* Unpacks tests/machine/counters/NAME.tree, and returns where its root is. */
static const char *unpack(const char *name)
{
    char path[256], text[1024];
    snprintf(path, sizeof path, "tests/machine/counters/%s.tree", name);
    char *all = read_whole(path, NULL), *rest = NULL;
    assert_non_null(all);
    for (char *line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t'), *to = text;
        if (!tab)
            continue;
        *tab = 0;
        for (const char *from = tab + 1; *from; from++) {
            bool is_newline = from[0] == '\\' && from[1] == 'n';
            *to++ = is_newline ? '\n' : *from;
            from += is_newline;
        }
        memcpy(to, "\n", 2);
        put(name, line, text);
    }
    free(all);
    return scratch_path(name);
}

/* What was asked of perf_event_open, and the other ends of what it returned: the test says there what
 * a read finds. */
#define MAX_OPENED 256
static struct opened {
    struct perf_event_attr attr;
    int pid, cpu, fd;
} opened[MAX_OPENED];
static int n_opened;
static uint32_t refused_type = UINT32_MAX; /* this type is not opened: refused_errno */
static int refused_errno;

static int fake_open(struct perf_event_attr *attr, int pid, int cpu)
{
    int ends[2];
    if (attr->type == refused_type) {
        errno = refused_errno;
        return -1;
    }
    assert_true(n_opened < MAX_OPENED);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    opened[n_opened++] = (struct opened){*attr, pid, cpu, ends[1]};
    return ends[0];
}

static struct counters *open_tree(const char *tree)
{
    struct counter_system system = {unpack(tree), fake_open};
    struct counters *counters;
    struct error err;
    if (counters_open(&counters, &system, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return counters;
}

static void close_tree(struct counters *counters)
{
    counters_close(counters);
    for (int i = 0; i < n_opened; i++)
        close(opened[i].fd);
    n_opened = 0;
    refused_type = UINT32_MAX;
}

/* How many events of a type and config were opened on a CPU (-1: any). */
static int count_opened(uint32_t type, uint64_t config, int cpu)
{
    int n = 0;
    for (int i = 0; i < n_opened; i++)
        n += opened[i].attr.type == type && opened[i].attr.config == config &&
             (cpu < 0 || opened[i].cpu == cpu);
    return n;
}

/* What the next read of every event finds: this many counts for all with the config, else 0. */
static void next_read(uint64_t config, uint64_t value, uint64_t enabled, uint64_t running)
{
    for (int i = 0; i < n_opened; i++) {
        uint64_t sample[3] = {opened[i].attr.config == config ? value : 0, enabled, running};
        assert_int_equal(write(opened[i].fd, sample, sizeof sample), sizeof sample);
    }
}

/* The counter after the events with this config have grown from 1000 by `counts`, and were counting
 * for running of enabled ns. */
static struct counter_reading measured(struct counters *counters, enum counter_id id,
                                       uint64_t config, uint64_t counts, uint64_t enabled,
                                       uint64_t running)
{
    counters_clear(counters);
    next_read(config, 1000, 5000, 5000);
    counters_start(counters);
    next_read(config, 1000 + counts, 5000 + enabled, 5000 + running);
    counters_stop(counters);
    return counters_read(counters, id);
}

static void expect_amount(struct counters *counters, enum counter_id id, uint64_t config,
                          uint64_t counts, double expected)
{
    struct counter_reading r = measured(counters, id, config, counts, 1000, 1000);
    if (!r.is_present || fabs(r.amount - expected) > 1e-9 * expected)
        fail_msg("%s: %.6f, expected %.6f (%s)", counter_info(id)->name, r.amount, expected,
                 r.reason ? r.reason : "present");
}

static void expect_absent(struct counters *counters, enum counter_id id, const char *reason)
{
    struct counter_reading r = counters_read(counters, id);
    if (r.is_present || !strstr(r.reason, reason))
        fail_msg("%s: %s, expected: %s", counter_info(id)->name, r.is_present ? "there" : r.reason,
                 reason);
}

/* Four channels and three links on each of two sockets. 2^32 counts of energy are a joule; a CAS is 64
 * bytes; 9 flits carry 64 bytes. */
static void test_ice_lake(void **state)
{
    (void)state;
    struct counters *c = open_tree("ice_lake");
    assert_int_equal(n_opened, 1 + 2 * 2 + 2 * 4 * 2 + 3 * 2);
    assert_int_equal(count_opened(22, 0x02, 0), 1);
    assert_int_equal(count_opened(22, 0x03, 32), 1);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(count_opened(30 + i, 0x0f04, 0), 1);
        assert_int_equal(count_opened(30 + i, 0x3004, 32), 1);
    }
    assert_int_equal(count_opened(40, 0x0f02, 32), 1);
    expect_amount(c, COUNTER_ENERGY_PACKAGE, 0x02, UINT64_C(3) << 32, 2 * 3.0);
    expect_amount(c, COUNTER_ENERGY_DRAM, 0x03, UINT64_C(1) << 31, 2 * 0.5);
    expect_amount(c, COUNTER_MEMORY_READ, 0x0f04, 1000, 2 * 4 * 64000.0);
    expect_amount(c, COUNTER_MEMORY_WRITTEN, 0x3004, 10, 2 * 4 * 640.0);
    expect_amount(c, COUNTER_CROSS_SOCKET, 0x0f02, 900, 2 * 3 * 6400.0);
    close_tree(c);
}

static void test_emerald_rapids(void **state)
{
    (void)state;
    struct counters *c = open_tree("emerald_rapids");
    assert_int_equal(count_opened(60, 0xcf05, 52), 1);
    assert_int_equal(count_opened(61, 0xf005, 0), 1);
    expect_amount(c, COUNTER_MEMORY_READ, 0xcf05, 100, 2 * 2 * 6400.0);
    expect_amount(c, COUNTER_MEMORY_WRITTEN, 0xf005, 100, 2 * 2 * 6400.0);
    expect_amount(c, COUNTER_CROSS_SOCKET, 0x0f02, 9, 2 * 64.0);
    close_tree(c);
}

/* Two controllers of a desktop, which count without being asked to; 1/16384 MiB are 64 bytes. They have
 * another name than those of servers, which would otherwise be counted twice. */
static void test_free_running(void **state)
{
    (void)state;
    static const char *const units[] = {"uncore_imc_free_running_0", "uncore_imc_free_running_1"};
    static const char *const files[][2] = {{"type", "80"},
                                           {"cpumask", "0"},
                                           {"format/event", "config:0-7"},
                                           {"format/umask", "config:8-15"},
                                           {"events/data_read", "event=0xff,umask=0x20"},
                                           {"events/data_read.scale", "6.103515625e-5"},
                                           {"events/data_read.unit", "MiB"},
                                           {"events/cas_count_read", "event=0x01"}};
    char name[256];
    for (int unit = 0; unit < 2; unit++)
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            snprintf(name, sizeof name, DEVICES "%s/%s", units[unit], files[i][0]);
            put("desktop", name, files[i][1]);
        }
    struct counter_system system = {scratch_path("desktop"), fake_open};
    struct counters *c;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    assert_int_equal(count_opened(80, 0x20ff, 0), 2);
    assert_int_equal(count_opened(80, 0x01, -1), 0);
    expect_amount(c, COUNTER_MEMORY_READ, 0x20ff, 100, 2 * 6400.0);
    expect_absent(c, COUNTER_MEMORY_WRITTEN, "uncore_imc_free_running does not offer data_write");
    close_tree(c);
}

/* An UMC has the mask of its own socket. Coherent station 11 is event 0x2df, whose bits 8 and up lie at
 * 32; umask 0xbfe has its bits 8 and up at 24. */
static void test_zen4(void **state)
{
    (void)state;
    struct counters *c = open_tree("zen4");
    assert_int_equal(count_opened(13, 0x10a, 0), 1);
    assert_int_equal(count_opened(13, 0x10a, 96), 0);
    assert_int_equal(count_opened(14, 0x20a, 96), 1);
    assert_int_equal(count_opened(12, 0x0b00fe1f, -1), 2);
    assert_int_equal(count_opened(12, 0x20b00ffdf, 96), 1);
    expect_amount(c, COUNTER_ENERGY_PACKAGE, 0x02, UINT64_C(1) << 32, 2);
    expect_amount(c, COUNTER_MEMORY_READ, 0x10a, 50, 2 * 3200.0);
    expect_amount(c, COUNTER_MEMORY_WRITTEN, 0x20a, 50, 2 * 3200.0);
    expect_amount(c, COUNTER_CROSS_SOCKET, 0x0b00fe5f, 3, 2 * 192.0);
    expect_absent(c, COUNTER_ENERGY_DRAM, "power does not offer energy-ram");
    close_tree(c);
}

/* Its data fabric counts something else under Zen 4's numbers. */
static void test_zen3(void **state)
{
    (void)state;
    struct counters *c = open_tree("zen3");
    expect_absent(c, COUNTER_CROSS_SOCKET, "amd_df: the numbers of its events are not known");
    expect_absent(
        c, COUNTER_MEMORY_READ,
        "the kernel has no unit uncore_imc, uncore_imc_free_running, amd_umc: this kernel");
    close_tree(c);
}

static void test_virtual_machine(void **state)
{
    (void)state;
    refused_type = PERF_TYPE_HARDWARE;
    refused_errno = ENOENT;
    struct counters *c = open_tree("virtual_machine");
    assert_int_equal(n_opened, 0);
    expect_absent(c, COUNTER_FREQUENCY, "cycles: the kernel does not count it (No such file");
    for (int i = 0; i < N_COUNTERS; i++)
        expect_absent(c, (enum counter_id)i, "this is a virtual machine (hypervisor flag)");
    expect_absent(c, COUNTER_CROSS_SOCKET, "has no unit uncore_upi, amd_df:");
    close_tree(c);
}

static void test_permission(void **state)
{
    (void)state;
    refused_type = 22;
    refused_errno = EACCES;
    struct counters *c = open_tree("ice_lake"); /* which has 0: enough */
    expect_absent(c, COUNTER_ENERGY_DRAM,
                  "refused (Permission denied) although perf_event_paranoid is 0");
    assert_true(counters_read(c, COUNTER_MEMORY_READ).is_present);
    close_tree(c);

    put("ice_lake", "proc/sys/kernel/perf_event_paranoid", "3\n");
    struct counter_system system = {scratch_path("ice_lake"), fake_open};
    refused_type = 33; /* the last channel: the others don't count alone */
    refused_errno = EPERM;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    expect_absent(c, COUNTER_MEMORY_READ,
                  "permission: perf_event_paranoid is 3; needs 0 or less, or CAP_PERFMON");
    assert_true(counters_read(c, COUNTER_ENERGY_DRAM).is_present);
    close_tree(c);

    refused_type = PERF_TYPE_HARDWARE;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    expect_absent(c, COUNTER_FREQUENCY, "perf_event_paranoid is 3; needs 2 or less");
    close_tree(c);
}

/* Cycles and time are those of all threads; the frequency is their quotient. */
static void test_frequency(void **state)
{
    (void)state;
    struct counters *c = open_tree("zen3");
    assert_int_equal(opened[0].attr.type, PERF_TYPE_HARDWARE);
    assert_true(opened[0].attr.inherit && opened[0].pid == 0 && opened[0].cpu == -1);
    struct counter_reading r = measured(c, COUNTER_FREQUENCY, PERF_COUNT_HW_CPU_CYCLES, 6000000000,
                                        2000000000, 2000000000);
    assert_true(r.is_present && fabs(counter_value(COUNTER_FREQUENCY, &r) - 3e9) < 1);
    close_tree(c);
}

/* A quarter of the time was counted: the rest is as the quarter, and said to be. Nothing counted is no
 * zero. */
static void test_shared_counters(void **state)
{
    (void)state;
    struct counters *c = open_tree("emerald_rapids");
    struct counter_reading r = measured(c, COUNTER_CROSS_SOCKET, 0x0f02, 9, 1000, 250);
    assert_true(r.is_present && r.is_estimated && fabs(r.amount - 2 * 4 * 64.0) < 1e-9);
    r = measured(c, COUNTER_CROSS_SOCKET, 0x0f02, 9, 1000, 1000);
    assert_true(r.is_present && !r.is_estimated);
    r = measured(c, COUNTER_CROSS_SOCKET, 0x0f02, 0, 1000, 0);
    assert_true(!r.is_present && strstr(r.reason, "did not count"));
    close_tree(c);
}

/* Two intervals sum; what lies between them does not count. */
static void test_intervals(void **state)
{
    (void)state;
    struct counters *c = open_tree("emerald_rapids");
    static const uint64_t reads[4] = {0, 9, 900, 918};
    for (int i = 0; i < 4; i++) {
        next_read(0x0f02, reads[i], 100 * (uint64_t)i, 100 * (uint64_t)i);
        (i % 2 ? counters_stop : counters_start)(c);
    }
    assert_true(fabs(counters_read(c, COUNTER_CROSS_SOCKET).amount - 2 * 3 * 64.0) < 1e-9);
    close_tree(c);
}

static void put_zone_in(const char *tree, const char *zone, const char *name, const char *energy,
                        const char *range)
{
    char path[256];
    const char *const files[] = {"name", "energy_uj", "max_energy_range_uj"};
    const char *const texts[] = {name, energy, range};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "sys/class/powercap/%s/%s", zone, files[i]);
        put(tree, path, texts[i]);
    }
}

static void put_zone(const char *zone, const char *name, const char *energy, const char *range)
{
    put_zone_in("powercap", zone, name, energy, range);
}

/* Two packages, of which one wraps: 850 uJ to the end of its range and 1150 more. The sum of them, and
 * not of cores, psys or the same package seen through another door. */
static void test_powercap(void **state)
{
    (void)state;
    put("powercap", "proc/cpuinfo", "flags : fpu\n");
    put_zone("intel-rapl:0", "package-0\n", "262143328000\n", "262143328850\n");
    put_zone("intel-rapl:1", "package-1\n", "7000000\n", "262143328850\n");
    put_zone("intel-rapl:0:0", "core\n", "5\n", "262143328850\n");
    put_zone("intel-rapl:0:1", "dram\n", "100\n", "65712999613\n");
    put_zone("intel-rapl:2", "psys\n", "1\n", "262143328850\n");
    put_zone("intel-rapl-mmio:0", "package-0\n", "262143328000\n", "262143328850\n");
    struct counter_system system = {scratch_path("powercap"), fake_open};
    struct counters *c;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    next_read(0, 0, 0, 0);
    counters_start(c);
    put_zone("intel-rapl:0", "package-0\n", "1150\n", "262143328850\n");
    put_zone("intel-rapl:1", "package-1\n", "9500000\n", "262143328850\n");
    put_zone("intel-rapl:0:0", "core\n", "900000000\n", "262143328850\n");
    put_zone("intel-rapl:2", "psys\n", "900000000\n", "262143328850\n");
    put_zone("intel-rapl-mmio:0", "package-0\n", "262143328800\n", "262143328850\n");
    put_zone("intel-rapl:0:1", "dram\n", "250100\n", "65712999613\n");
    next_read(0, 0, 0, 0);
    counters_stop(c);
    struct counter_reading package = counters_read(c, COUNTER_ENERGY_PACKAGE);
    assert_true(package.is_present && fabs(package.amount - 2.502) < 1e-9);
    assert_string_equal(package.source, "powercap, intel-rapl");
    assert_true(fabs(counters_read(c, COUNTER_ENERGY_DRAM).amount - 0.25) < 1e-9);
    close_tree(c);

    put_zone("intel-rapl:1", "package-1\n", "many\n", "262143328850\n");
    put_zone("intel-rapl:0:1", "dram\n", "250100\n", "0\n");
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    expect_absent(c, COUNTER_ENERGY_PACKAGE, "intel-rapl:1/energy_uj: is no number of microjoules");
    expect_absent(c, COUNTER_ENERGY_DRAM, "max_energy_range_uj: is no number");
    close_tree(c);
}

/* A range of 10 J lasts 10 ms at 1000 W, one of 262 kJ minutes: after 20 ms the first may have wrapped
 * once or more, whatever its number is then. */
static void test_powercap_long(void **state)
{
    (void)state;
    put("long", "proc/cpuinfo", "flags : fpu\n");
    put_zone_in("long", "intel-rapl:0", "package-0\n", "5000000\n", "10000000\n");
    put_zone_in("long", "intel-rapl:0:0", "dram\n", "5000000\n", "262143328850\n");
    struct counter_system system = {scratch_path("long"), fake_open};
    struct counters *c;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    next_read(0, 0, 0, 0);
    counters_start(c);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    next_read(0, 0, 0, 0);
    counters_stop(c);
    expect_absent(c, COUNTER_ENERGY_PACKAGE, "samples were too long");
    assert_true(counters_read(c, COUNTER_ENERGY_DRAM).is_present);
    counters_clear(c);
    assert_true(counters_read(c, COUNTER_ENERGY_PACKAGE).is_present);
    close_tree(c);
}

/* Only root may read it: tried as another user where the test is root. */
static void test_powercap_permission(void **state)
{
    (void)state;
    char path[512];
    put("powercap", "proc/cpuinfo", "flags : fpu\n");
    put_zone("intel-rapl:0", "package-0\n", "1\n", "262143328850\n");
    put_zone("intel-rapl:1", "package-1\n", "1\n", "262143328850\n");
    snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:0/energy_uj",
             scratch_path("powercap"));
    assert_int_equal(chmod(path, 0), 0);
    struct counter_system system = {scratch_path("powercap"), fake_open};
    struct counters *c;
    if (geteuid() == 0 && syscall(SYS_setresuid, -1, 65534, -1) != 0)
        skip();
    enum status status = counters_open(&c, &system, NULL);
    syscall(SYS_setresuid, -1, getuid(), -1);
    assert_int_equal(status, STATUS_OK);
    expect_absent(c, COUNTER_ENERGY_PACKAGE, "permission: only root may read");
    close_tree(c);
    chmod(path, 0600);
}

/* Texts that are put in the place of a good one, and what is said of them. */
static const struct malformed {
    const char *file, *text, *message;
} malformed[] = {
    {"type", "x", "type: 'x' is not the number of a type"},
    {"type", "4294967296", "is not the number of a type"},
    {"type", "", "is empty"},
    {"cpumask", "0-", "cpumask: '0-' is not a list of CPUs"},
    {"cpumask", "0,,4", "is not a list"},
    {"cpumask", "4-0", "is not a list"},
    {"cpumask", "0-99", "lists more than 64 CPUs"},
    {"cpumask", "0-2147483647", "lists more than 64 CPUs"},
    {"format/umask", "config3:0-7", "umask: 'config3:0-7' is not a bit field"},
    {"format/umask", "config:8-64", "is not a bit field"},
    {"format/umask", "config:15-8", "is not a bit field"},
    {"format/umask", "config:", "is not a bit field"},
    {"format/umask", "config:8-15,", "is not a bit field"},
    {"format/umask", "config:8-9", "umask does not fit 'config:8-9'"},
    {"events/cas_count_read", "event=,umask=1", "is not a list of terms"},
    {"events/cas_count_read", "event=?", "is not a list of terms"},
    {"events/cas_count_read", "event=0x04,", "is not a list of terms"},
    {"events/cas_count_read", "=3", "is not a list of terms"},
    {"events/cas_count_read", "../type=3", "is not a list of terms"},
    {"events/cas_count_read", "event=0x04,colour=1", "names 'colour', which"},
    {"events/cas_count_read", "event=0x104", "event does not fit 'config:0-7'"},
    {"events/cas_count_read", "event=18446744073709551616", "is not a list of terms"},
    {"events/cas_count_read.scale", "1,5", "scale: '1,5' is not a scale"},
    {"events/cas_count_read.scale", "nan", "is not a scale"},
    {"events/cas_count_read.scale", "-1", "is not a scale"},
    {"events/cas_count_read.unit", "quite a long unit", "is not a unit"},
};

static void test_malformed(void **state)
{
    (void)state;
    char pmu[512], path[1024], name[256];
    struct perf_event_text text;
    struct error err;
    snprintf(pmu, sizeof pmu, "%s/%suncore_imc_0", unpack("emerald_rapids"), DEVICES);
    assert_int_equal(perf_event_named(&text, pmu, "cas_count_read", &err), STATUS_OK);
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        const struct malformed *m = &malformed[i];
        snprintf(path, sizeof path, "%s/%s", pmu, m->file);
        snprintf(name, sizeof name, DEVICES "uncore_imc_0/%s", m->file);
        char *good = read_whole(path, NULL);
        put("emerald_rapids", name, m->text);
        enum status status = perf_event_named(&text, pmu, "cas_count_read", &err);
        if (status == STATUS_OK || !strstr(err.text, m->message))
            fail_msg("%s '%s': %s, expected: %s", m->file, m->text,
                     status == STATUS_OK ? "accepted" : err.text, m->message);
        put("emerald_rapids", name, good);
        free(good);
    }
}

/* A malformed unit makes its counter absent, with the message, and no other. */
static void test_malformed_is_absent(void **state)
{
    (void)state;
    unpack("emerald_rapids");
    put("emerald_rapids", DEVICES "uncore_imc_1/format/umask", "config:9x\n");
    struct counter_system system = {scratch_path("emerald_rapids"), fake_open};
    struct counters *c;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    expect_absent(c, COUNTER_MEMORY_READ, "umask: 'config:9x' is not a bit field");
    assert_true(counters_read(c, COUNTER_CROSS_SOCKET).is_present);
    close_tree(c);

    unpack("emerald_rapids");
    put("emerald_rapids", DEVICES "uncore_imc_1/events/cas_count_read.unit", "Furlongs\n");
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    expect_absent(c, COUNTER_MEMORY_READ, "the kernel gives no unit that is known here");
    close_tree(c);
}

/* Fields of three words, and one cut in three pieces. */
static void test_bit_fields(void **state)
{
    (void)state;
    struct perf_event_text text;
    put("fields", "u/type", "7\n");
    put("fields", "u/cpumask", "0-2,8\n");
    put("fields", "u/format/event", "config:0-7,32-35,59-60\n");
    put("fields", "u/format/filter", "config1:0-63\n");
    put("fields", "u/format/core", "config2:3\n");
    put("fields", "u/events/e", "event=0x3fff,filter=0xfedcba9876543210,core\n");
    char pmu[512];
    snprintf(pmu, sizeof pmu, "%s/u", scratch_path("fields"));
    assert_int_equal(perf_event_named(&text, pmu, "e", NULL), STATUS_OK);
    assert_int_equal(text.type, 7);
    assert_true(text.config[0] == UINT64_C(0x1800000f000000ff));
    assert_true(text.config[1] == UINT64_C(0xfedcba9876543210));
    assert_int_equal(text.config[2], 8);
    assert_int_equal(text.n_cpus, 4);
    assert_int_equal(text.cpus[2], 2);
    assert_int_equal(text.cpus[3], 8);
    assert_true(text.scale == 1 && !text.unit[0]);
    assert_int_equal(perf_event_encoded(&text, pmu, "core=1,event=0x100", NULL), STATUS_OK);
    assert_true(text.config[0] == UINT64_C(1) << 32);
    assert_false(perf_event_is_named(pmu, "f"));
}

/* 640 tokens took 1300 J and 128 took 276, of which 20 before the first: 2 J a token. */
static void test_per_token(void **state)
{
    (void)state;
    struct counter_reading longer = {.is_present = true, .amount = 20 + 2.0 * 640};
    struct counter_reading shorter = {.is_present = true, .amount = 20 + 2.0 * 128};
    assert_true(counter_per_more(COUNTER_ENERGY_PACKAGE, &longer, 640, &shorter, 128) == 2);
    assert_true(counter_per_token(COUNTER_ENERGY_PACKAGE, &longer, 640) == 1300.0 / 640);
    /* 3 GHz while loading, 2 GHz in the tokens */
    longer = (struct counter_reading){.amount = 3e9 + 5 * 2e9, .seconds = 1 + 5};
    shorter = (struct counter_reading){.amount = 3e9 + 1 * 2e9, .seconds = 1 + 1};
    assert_true(counter_per_more(COUNTER_FREQUENCY, &longer, 640, &shorter, 128) == 2e9);
    assert_true(counter_value(COUNTER_FREQUENCY, &shorter) == 2.5e9);
}

/* The kernel's own clock of threads in the place of cycles: a "cycle" is a nanosecond. */
static int open_task_clock(struct perf_event_attr *attr, int pid, int cpu)
{
    attr->type = PERF_TYPE_SOFTWARE;
    attr->config = PERF_COUNT_SW_TASK_CLOCK;
    return (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void *spin(void *ns)
{
    struct timespec now;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec * 1000000000 + now.tv_nsec < *(int64_t *)ns);
    return NULL;
}

/* Threads started after counters_open count: 60 ms of CPU time in each of two. */
static void test_threads_are_inherited(void **state)
{
    (void)state;
    struct counter_system system = {"/nowhere", open_task_clock};
    struct counters *c;
    pthread_t threads[2];
    int64_t ns = 60000000;
    assert_int_equal(counters_open(&c, &system, NULL), STATUS_OK);
    if (counters_read(c, COUNTER_FREQUENCY).reason) {
        print_message("skipped: %s\n", counters_read(c, COUNTER_FREQUENCY).reason);
        counters_close(c);
        skip();
    }
    counters_start(c);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, spin, &ns), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    counters_stop(c);
    struct counter_reading r = counters_read(c, COUNTER_FREQUENCY);
    if (r.amount < 0.95 * 2 * 60e6 || r.amount > 1.5 * 2 * 60e6) /* two clocks of the kernel */
        fail_msg("%.0f ns of two threads of 60 ms", r.amount);
    assert_true(fabs(counter_value(COUNTER_FREQUENCY, &r) / 1e9 - 1) < 0.01);
    counters_close(c);
}

/* Whatever this machine has: every counter is a finite number or has a reason. */
static void test_this_machine(void **state)
{
    (void)state;
    struct counters *c;
    assert_int_equal(counters_open(&c, NULL, NULL), STATUS_OK);
    counters_start(c);
    counters_stop(c);
    for (int i = 0; i < N_COUNTERS; i++) {
        struct counter_reading r = counters_read(c, (enum counter_id)i);
        print_message("%s: %s\n", counter_info((enum counter_id)i)->text,
                      r.reason ? r.reason : r.source);
        assert_true(r.is_present ? isfinite(r.amount) && r.source[0] : r.reason[0]);
    }
    counters_close(c);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ice_lake),
        cmocka_unit_test(test_emerald_rapids),
        cmocka_unit_test(test_free_running),
        cmocka_unit_test(test_zen4),
        cmocka_unit_test(test_zen3),
        cmocka_unit_test(test_virtual_machine),
        cmocka_unit_test(test_permission),
        cmocka_unit_test(test_frequency),
        cmocka_unit_test(test_shared_counters),
        cmocka_unit_test(test_intervals),
        cmocka_unit_test(test_powercap),
        cmocka_unit_test(test_powercap_long),
        cmocka_unit_test(test_powercap_permission),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_is_absent),
        cmocka_unit_test(test_bit_fields),
        cmocka_unit_test(test_per_token),
        cmocka_unit_test(test_threads_are_inherited),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
