/* The bandwidth probe against a plain read of memory by the test itself. */
#include <string.h>
#include <sys/mman.h>

#include "../support.h"
#include "base/clock.h"
#include "machine/bandwidth.h"

#define MIB ((size_t)1 << 20)

/* This machine, and a team of two threads on one or two nodes, virtual where it has fewer. */
struct machine {
    struct topology topology;
    struct team_layout layout;
    struct thread_team *team;
};

static void machine_open(struct machine *m, int n_threads, int n_nodes)
{
    *m = (struct machine){0};
    struct error err = {0};
    struct team_request request = {.n_threads = n_threads, .n_nodes = n_nodes};
    if (topology_read(&m->topology, &(struct topology_source){0}, &err) != STATUS_OK ||
        team_layout_make(&m->layout, &m->topology, &request, &err) != STATUS_OK ||
        team_open(&m->team, &m->layout, true, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void machine_close(struct machine *m)
{
    team_close(m->team);
    team_layout_done(&m->layout);
    topology_done(&m->topology);
}

/* Bytes per second in which the C library finds that memory holds no zero: one thread, the best of
 * eight passes. */
static double plain_read(void)
{
    size_t bytes = 256 * MIB;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    double best = 0;
    for (int pass = 0; pass < 8; pass++) {
        int64_t begin = clock_ns();
        assert_null(memchr(memory, 0, bytes));
        double speed = (double)bytes * 1e9 / (double)(clock_ns() - begin);
        best = speed > best ? speed : best;
    }
    munmap(memory, bytes);
    return best;
}

/* One thread reads about as fast as the C library. Out of the caches it would be several times as
 * fast; a probe that read a part only, or counted its bytes wrongly, likewise. Wide bounds: the
 * machine may be busy, and unoptimised code is slower. */
static void test_one_thread_against_a_plain_read(void **state)
{
    (void)state;
    struct machine m;
    machine_open(&m, 1, 1);
    struct bandwidth bandwidth;
    double plain = plain_read();
    assert_int_equal(bandwidth_measure(&bandwidth, m.team, &m.topology, 0.3, false, NULL),
                     STATUS_OK);
    print_message("probe %.1f GB/s, plain read %.1f GB/s\n", bandwidth.machine_bytes_s / 1e9,
                  plain / 1e9);
    assert_int_equal(bandwidth.n_nodes, 1);
    assert_null(bandwidth.node_bytes_s);
    assert_true(bandwidth.machine_bytes_s < 3 * plain);
    if (!IS_SANITISED)
        assert_true(bandwidth.machine_bytes_s > plain / 4);
    bandwidth_done(&bandwidth);
    machine_close(&m);
}

/* Every cell is filled, and none is faster than plausible for its threads. */
static void test_matrix_of_nodes(void **state)
{
    (void)state;
    struct machine m;
    machine_open(&m, 3, 2); /* shares of nodes differ: 2 threads and 1 */
    struct bandwidth bandwidth;
    double plain = plain_read();
    assert_int_equal(bandwidth_measure(&bandwidth, m.team, &m.topology, 0.4, true, NULL),
                     STATUS_OK);
    assert_int_equal(bandwidth.n_nodes, 2);
    for (int i = 0; i < 4; i++) {
        assert_true(bandwidth.node_bytes_s[i] > plain / 1000);
        assert_true(bandwidth.node_bytes_s[i] < 3 * plain * m.layout.nodes[i / 2].n_threads);
    }
    bandwidth_done(&bandwidth);
    bandwidth_done(&bandwidth);
    machine_close(&m);
}

/* A long measurement takes its time, a short one still reads everything once. */
static void test_time_is_kept(void **state)
{
    (void)state;
    struct machine m;
    machine_open(&m, 1, 1);
    struct bandwidth bandwidth;
    for (int i = 0; i < 2; i++) {
        int64_t begin = clock_ns();
        assert_int_equal(
            bandwidth_measure(&bandwidth, m.team, &m.topology, i ? 1.5 : 0, false, NULL),
            STATUS_OK);
        double seconds = (double)(clock_ns() - begin) / 1e9;
        assert_true(bandwidth.machine_bytes_s > 0);
        assert_true(i == 0 || seconds >= 1.5);
        assert_true(IS_SANITISED || seconds < (i ? 30 : 20)); /* the machine may be busy */
        bandwidth_done(&bandwidth);
    }
    machine_close(&m);
}

/* Whichever allocation fails, the status says so and nothing is leaked (the sanitiser build looks). */
static void test_out_of_memory(void **state)
{
    (void)state;
    struct machine m;
    machine_open(&m, 2, 2);
    enum status status = STATUS_MEMORY;
    int n = 0;
    for (; status != STATUS_OK; n++) {
        struct bandwidth bandwidth;
        struct error err = {0};
        memory_fail_after(n);
        status = bandwidth_measure(&bandwidth, m.team, &m.topology, 0, true, &err);
        memory_fail_after(-1);
        assert_true(status == STATUS_OK || status == STATUS_MEMORY);
        assert_true(status == STATUS_OK || err.text[0]);
        bandwidth_done(&bandwidth);
    }
    assert_in_range(n, 4, 20); /* arrays, a mapping for each node, the matrix; and once none */
    machine_close(&m);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread_against_a_plain_read),
        cmocka_unit_test(test_matrix_of_nodes),
        cmocka_unit_test(test_time_is_kept),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
