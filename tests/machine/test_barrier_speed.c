/* The probe of barriers: every kind ends, on one and on two nodes, and lack of memory is said. */
#include "../support.h"

#include "machine/barrier_speed.h"

static void with_team(int n_threads, int n_nodes, void (*check)(struct thread_team *team))
{
    struct topology topology;
    struct team_layout layout;
    struct thread_team *team;
    struct error err;
    struct team_request request = {.n_threads = n_threads, .n_nodes = n_nodes};
    if (topology_read(&topology, NULL, &err) != STATUS_OK ||
        team_layout_make(&layout, &topology, &request, &err) != STATUS_OK ||
        team_open(&team, &layout, true, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    check(team);
    team_close(team);
    team_layout_done(&layout);
    topology_done(&topology);
}

/* A barrier takes more than a few instructions and less than a turn of the scheduler. */
static void check_times(struct thread_team *team)
{
    static const enum sync syncs[] = {SYNC_NODE, SYNC_GLOBAL, SYNC_FLAT};
    for (int i = 0; i < 3; i++) {
        struct barrier_speed speed;
        assert_int_equal(barrier_measure(&speed, team, syncs[i], NULL), STATUS_OK);
        assert_true(speed.best_s > 1e-9 && speed.best_s <= speed.median_s);
        assert_true(IS_SANITISED || speed.best_s < 1e-3);
        assert_true(speed.n_steps > 0);
    }
}

static void check_failure(struct thread_team *team)
{
    struct barrier_speed speed;
    struct error err;
    memory_fail_after(0);
    assert_int_equal(barrier_measure(&speed, team, SYNC_NODE, &err), STATUS_MEMORY);
    memory_fail_after(-1);
}

static void test_times(void **state)
{
    (void)state;
    with_team(1, 1, check_times);
    with_team(2, 1, check_times);
    with_team(2, 2, check_times);
}

static void test_no_memory(void **state)
{
    (void)state;
    with_team(2, 1, check_failure);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
