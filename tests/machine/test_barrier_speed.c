/* The probe of barriers: every kind ends, on one and on two nodes, and lack of memory is said. */
#include "../support.h"

#include "base/clock.h"
#include "machine/barrier_speed.h"

static void with_team(int n_threads, int n_nodes, void (*check)(struct thread_team *team))
{
    struct topology topology;
    struct team_layout layout;
    struct thread_team *team = NULL;
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

/* Steps without work by a team, timed from outside. */
#define N_STEPS 5000
struct steps {
    struct thread_team *team;
    struct barrier barrier;
    enum sync sync;
};

static void go(void *context, const struct team_member *me)
{
    struct steps *s = context;
    struct barrier_cursor cursor = {0};
    struct step_units step = {.sync = s->sync,
                              .n_units = (uint32_t)me->n_in_node,
                              .n_units_all = (uint32_t)team_layout_of(s->team)->n_threads,
                              .n_nodes_busy = (uint32_t)s->barrier.n_nodes};
    for (int i = 0; i < N_STEPS; i++) {
        barrier_next(&s->barrier, &cursor, me->node, &step);
        barrier_report(&s->barrier, &cursor, me->node, 1);
        barrier_wait(&s->barrier, &cursor, me->node, team_spin_ns(s->team));
    }
}

/* Seconds of a step: the best of several passes. */
static double timed(struct thread_team *team, enum sync sync)
{
    double best = 1e9;
    for (int pass = 0; pass < 9; pass++) {
        struct barrier_node nodes[2] = {0}, *list[2] = {&nodes[0], &nodes[1]};
        struct steps s = {.team = team, .sync = sync};
        s.barrier = (struct barrier){.n_nodes = team_layout_of(team)->n_nodes, .nodes = list};
        int64_t begin = clock_ns();
        team_run(team, go, &s);
        double seconds = (double)(clock_ns() - begin) / 1e9 / N_STEPS;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* Within a factor 20 of a direct timing, either way: other programs may take a core from one of the two,
 * so it is tried three times. */
static bool is_near(struct thread_team *team, enum sync sync)
{
    double ratio = 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        struct barrier_speed speed;
        assert_int_equal(barrier_measure(&speed, team, sync, NULL), STATUS_OK);
        assert_true(speed.best_s <= speed.median_s && speed.n_steps > 0);
        ratio = speed.best_s / timed(team, sync);
        if (ratio > 1.0 / 20 && ratio < 20)
            return true;
    }
    print_message("measured %g of what a direct timing says\n", ratio);
    return false;
}

static void check_times(struct thread_team *team)
{
    static const enum sync syncs[] = {SYNC_NODE, SYNC_GLOBAL, SYNC_FLAT};
    for (int i = 0; i < 3; i++)
        assert_true(is_near(team, syncs[i]));
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
