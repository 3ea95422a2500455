/* Foreign load of recorded /proc/stat texts, and of a process that really runs beside this one. */
#include "../support.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "machine/foreign_load.h"

static bool read_text(const char *text, struct cpu_times *times)
{
    const char *path = scratch_path("stat");
    write_whole(path, text, strlen(text));
    return cpu_times_read(times, path);
}

static void near_to(double found, double expected)
{
    if (!(fabs(found - expected) < 1e-9))
        fail_msg("found %.12g, expected %.12g", found, expected);
}

/* user nice system idle iowait irq softirq steal guest guest_nice, in ticks of 1/100 s; guest time
 * is a part of user time. */
static void test_recorded(void **state)
{
    (void)state;
    if (sysconf(_SC_CLK_TCK) != 100)
        skip();
    struct cpu_times a, b;
    assert_true(read_text("cpu  1000 200 300 5000 400 10 20 30 900 100\ncpu0 1 2 3 4\n", &a));
    near_to(a.busy_s, 15.3);
    near_to(a.idle_s, 54);
    near_to(a.stolen_s, 0.3);
    assert_true(read_text("cpu  1400 220 340 5350 450 15 25 180 1300 120\n", &b));
    /* 4 + 0.2 + 0.4 + 0.05 + 0.05 busy seconds of all CPUs in 2 s, of which 3.7 are ours */
    struct foreign_load load = foreign_load_between(&a, &b, 2, 3.7);
    near_to(load.cpus, 0.5);
    near_to(load.stolen, 0.75);
    load = foreign_load_between(&a, &b, 2, 4.75); /* clocks disagree a little: not below 0 */
    near_to(load.cpus, 0);
}

static void test_other_texts(void **state)
{
    (void)state;
    struct cpu_times t;
    assert_true(read_text("cpu 100 0 0 300\n", &t)); /* four numbers */
    near_to(t.busy_s + t.idle_s + t.stolen_s, 400.0 / (double)sysconf(_SC_CLK_TCK));
    static const char *const none[] = {
        "",        "cpu\n",   "cpu  0 0 0 0 0 0 0 0 0 0\n", "cpu0 1 2 3 4\n", "cpu  1 2 3\n",
        "cpu x\n", "intr 7\n"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_false(read_text(none[i], &t));
    assert_false(cpu_times_read(&t, scratch_path("absent")));
    assert_true(isnan(foreign_load_between(&t, &t, 1, 0).cpus)); /* the clock stands still */
    struct cpu_times later = t;
    later.idle_s += 1;
    assert_true(isnan(foreign_load_between(&t, &later, 0.05, 0).cpus)); /* too short to tell */
    near_to(foreign_load_between(&t, &later, 0.5, 0).cpus, 0);
}

static bool disturbs(double cpus, double stolen, double wall_s, double limit)
{
    struct foreign_load load = {cpus, stolen};
    return foreign_load_disturbs(&load, wall_s, limit);
}

static void test_limit(void **state)
{
    (void)state;
    assert_true(disturbs(0.3, 0, 1, 0.25));
    assert_false(disturbs(0.26, 0, 1, 0.25)); /* within two ticks */
    assert_false(disturbs(0.24, 0, 100, 0.25));
    assert_true(disturbs(0.26, 0, 100, 0.25));
    assert_true(disturbs(0.1, 0.2, 1, 0.25));
    assert_false(disturbs(1, 0, 0.02, 0.25)); /* one tick of a short run says nothing */
    assert_false(disturbs(64, 1, 10, 0));     /* no limit */
    assert_false(disturbs(NAN, NAN, 10, 0.25));
}

static void burn(void)
{
    for (volatile unsigned i = 0;; i++)
        ;
}

/* CPUs were busy with a child that burns one: at least so many must be seen as foreign. Others may
 * use this machine, but never more than the CPUs that are left beside our own work. */
static void test_real(void **state)
{
    (void)state;
    struct cpu_times begin, end;
    if (!cpu_times_read(&begin, NULL)) {
        print_message("skipped: needs /proc/stat\n");
        skip();
    }
    pid_t child = fork();
    if (child == 0)
        burn();
    double own = own_cpu_seconds();
    int64_t start = clock_ns();
    while (clock_ns() - start < 500000000)
        ;
    own = own_cpu_seconds() - own;
    struct rusage usage;
    kill(child, SIGKILL);
    assert_int_equal(wait4(child, NULL, 0, &usage), child);
    assert_true(cpu_times_read(&end, NULL));
    double wall_s = 1e-9 * (double)(clock_ns() - start);
    double child_s = (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec;

    struct foreign_load load = foreign_load_between(&begin, &end, wall_s, own);
    double most = (double)sysconf(_SC_NPROCESSORS_ONLN) - own / wall_s;
    if (load.cpus < 0.8 * child_s / wall_s - 0.06 || load.cpus > most + 0.1)
        fail_msg("%.3f foreign CPUs; the child used %.3f of %.3f s, this process %.3f", load.cpus,
                 child_s, wall_s, own);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_other_texts),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
