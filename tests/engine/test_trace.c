/* The shares of waiting, on traces whose answer can be seen; and what is printed of them. */
#include "engine_run.h"

#include <time.h>

#include "engine/trace_print.h"

/* Two nodes of two threads; one step of each kind that matters. */
enum { NODE_STEP, GLOBAL_STEP, LEADER_STEP, FREE_STEP, N_STEPS, N_THREADS = 4 };

struct hand_made {
    struct team_node nodes[2];
    int cpus[N_THREADS];
    struct team_layout layout;
    struct step steps[N_STEPS];
    struct program programs[N_THREADS];
    struct plan plan;
    struct trace trace;
};

/* Every thread at every step from 0 to 0: what a test does not set is empty. */
static void make(struct hand_made *h, int n_batches)
{
    struct error err;
    memset(h, 0, sizeof *h);
    h->nodes[0] = (struct team_node){.thread0 = 0, .n_threads = 2};
    h->nodes[1] = (struct team_node){.thread0 = 2, .n_threads = 2};
    for (int i = 0; i < N_THREADS; i++)
        h->cpus[i] = i;
    h->layout = (struct team_layout){
        .n_nodes = 2, .n_threads = N_THREADS, .nodes = h->nodes, .cpus = h->cpus};
    h->steps[NODE_STEP] = (struct step){.kind = STEP_QKV, .units.sync = SYNC_NODE};
    h->steps[GLOBAL_STEP] = (struct step){.kind = STEP_DOWN, .layer = 3, .units.sync = SYNC_GLOBAL};
    h->steps[LEADER_STEP] =
        (struct step){.kind = STEP_NORM, .units.sync = SYNC_NODE, .is_leader = true};
    h->steps[FREE_STEP] = (struct step){.kind = STEP_FOLD, .units.sync = SYNC_NONE};
    for (int i = 0; i < N_THREADS; i++)
        h->programs[i] = (struct program){.n_steps = N_STEPS, .steps = h->steps};
    h->plan.layout = &h->layout;
    h->plan.programs[PROGRAM_FEW] = h->programs;
    assert_int_equal(trace_open(&h->trace, &h->plan, PROGRAM_FEW, n_batches, &err), STATUS_OK);
    h->trace.batch = n_batches;
}

static void set(struct hand_made *h, int batch, int thread, int step, int64_t begun, int64_t done,
                int64_t left)
{
    trace_steps(&h->trace, batch, thread)[step] = (struct trace_step){begun, done, left};
}

static void assert_near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.6f, expected %.6f", found, expected);
}

/* A sum in nanoseconds of all threads and batches. */
static struct trace_sum total_ns(const struct hand_made *h, enum step_kind kind)
{
    struct trace_sum kinds[N_STEP_KINDS], all;
    trace_sums(&h->trace, &h->plan, 0, kinds, &all);
    double scale = 1e9 * N_THREADS * h->trace.n_batches;
    struct trace_sum *s = &kinds[kind];
    return (struct trace_sum){scale * s->work,    scale * s->late_own, scale * s->late_other,
                              scale * s->latency, scale * s->leader,   scale * s->total};
}

static void assert_sum(const struct trace_sum *s, struct trace_sum expected)
{
    const double exact[] = {expected.work,    expected.late_own, expected.late_other,
                            expected.latency, expected.leader,   expected.total};
    const double found[] = {s->work, s->late_own, s->late_other, s->latency, s->leader, s->total};
    for (int i = 0; i < 6; i++)
        if (!(fabs(found[i] - exact[i]) < 1e-6))
            fail_msg("share %d: %.3f ns, expected %.3f", i, found[i], exact[i]);
}

/* Thread 1 is 30 late; thread 3 of the other node is later still, which is nothing to node 0. */
static void test_late_in_own_node(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    set(&h, 0, 0, NODE_STEP, 0, 100, 135);
    set(&h, 0, 1, NODE_STEP, 0, 130, 132);
    set(&h, 0, 2, NODE_STEP, 0, 500, 500);
    set(&h, 0, 3, NODE_STEP, 0, 500, 500);
    struct trace_sum s = total_ns(&h, STEP_QKV);
    assert_sum(&s,
               (struct trace_sum){.work = 1230, .late_own = 30, .latency = 5 + 2, .total = 1267});
    trace_close(&h.trace);
}

/* All wait for thread 3: for those of node 0 it is another node, but thread 0 waits first for its
 * neighbour. */
static void test_late_in_other_node(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    set(&h, 0, 0, GLOBAL_STEP, 0, 100, 210); /* own 20, other 80, latency 10 */
    set(&h, 0, 1, GLOBAL_STEP, 0, 120, 205); /* own 0, other 80, latency 5 */
    set(&h, 0, 2, GLOBAL_STEP, 0, 150, 203); /* own 50, latency 3 */
    set(&h, 0, 3, GLOBAL_STEP, 0, 200, 201); /* latency 1 */
    struct trace_sum s = total_ns(&h, STEP_DOWN);
    assert_sum(&s,
               (struct trace_sum){
                   .work = 570, .late_own = 70, .late_other = 160, .latency = 19, .total = 819});
    trace_close(&h.trace);
}

/* A thread that comes when the barrier has been open for long had no work: the others waited for
 * thread 1, not for it. */
static void test_late_without_work(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    set(&h, 0, 0, GLOBAL_STEP, 0, 100, 125); /* own 20, latency 5 */
    set(&h, 0, 1, GLOBAL_STEP, 0, 120, 121); /* latency 1 */
    set(&h, 0, 2, GLOBAL_STEP, 0, 110, 126); /* other 10, latency 6 */
    set(&h, 0, 3, GLOBAL_STEP, 900, 900, 900);
    struct trace_sum s = total_ns(&h, STEP_DOWN);
    assert_sum(&s, (struct trace_sum){
                       .work = 330, .late_own = 20, .late_other = 10, .latency = 12, .total = 372});
    trace_close(&h.trace);
}

/* The leaders (threads 0 and 2) prepare for 80 and 40; nobody else can be late. */
static void test_leader(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    set(&h, 0, 0, LEADER_STEP, 1000, 1080, 1082);
    set(&h, 0, 1, LEADER_STEP, 1000, 1001, 1085);
    set(&h, 0, 2, LEADER_STEP, 1000, 1040, 1041);
    set(&h, 0, 3, LEADER_STEP, 1010, 1050, 1051); /* comes when the leader is done */
    struct trace_sum s = total_ns(&h, STEP_NORM);
    assert_sum(
        &s, (struct trace_sum){.work = 161, .leader = 79, .latency = 2 + 5 + 1 + 1, .total = 249});
    trace_close(&h.trace);
}

/* Without a barrier all is work, also what the clock shows between done and left. */
static void test_without_barrier(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    for (int i = 0; i < N_THREADS; i++)
        set(&h, 0, i, FREE_STEP, 10 * i, 10 * i + 50, 10 * i + 51);
    struct trace_sum s = total_ns(&h, STEP_FOLD);
    assert_sum(&s, (struct trace_sum){.work = 204, .total = 204});
    trace_close(&h.trace);
}

/* Any times: the shares are not negative, they sum to the time in the steps, and batches before
 * `first` don't count. */
static void test_shares_sum_to_total(void **state)
{
    (void)state;
    struct hand_made h;
    struct trace_sum kinds[N_STEP_KINDS], all;
    enum { N_BATCHES = 20, FIRST = 5 };
    make(&h, N_BATCHES);
    int64_t spent = 0, waited = 0;
    unsigned seed = 1;
    for (int batch = 0; batch < N_BATCHES; batch++) {
        for (int i = 0; i < N_THREADS; i++) {
            int64_t now = 0;
            for (int s = 0; s < N_STEPS; s++) {
                int64_t begun = now, done = begun + rand_r(&seed) % 1000;
                now = done + rand_r(&seed) % 1000;
                set(&h, batch, i, s, begun, done, now);
                spent += batch >= FIRST ? now - begun : 0;
                waited += batch >= FIRST && s != FREE_STEP ? now - done : 0;
            }
        }
    }
    trace_sums(&h.trace, &h.plan, FIRST, kinds, &all);
    double scale = 1e9 * (N_BATCHES - FIRST) * N_THREADS, sum = 0;
    for (int i = 0; i < N_TRACE_SHARES; i++) {
        assert_true(trace_share(&all, i) >= 0);
        sum += trace_share(&all, i);
    }
    assert_near(scale * sum, (double)spent, 1e-3);
    assert_near(scale * all.total, (double)spent, 1e-3);
    assert_near(scale * (sum - all.work), (double)waited, 1e-3);
    trace_close(&h.trace);
}

/* What a print wrote. The caller frees. */
static char *printed(void (*print)(FILE *, const struct trace_report *),
                     const struct trace_report *r)
{
    size_t size;
    const char *path = scratch_path("print");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    print(out, r);
    fclose(out);
    return read_whole(path, &size);
}

static void test_chrome(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 2);
    set(&h, 1, 2, GLOBAL_STEP, 5000, 7000, 7500);
    struct trace_report r = {.trace = &h.trace, .plan = &h.plan, .title = "", .token_s = 1};
    char *text = printed(trace_print_chrome, &r);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), 2 + N_THREADS + 2); /* names, and two slices */
    json_t *work = json_array_get(events, 6), *wait = json_array_get(events, 7);
    assert_string_equal(json_string_value(json_object_get(work, "name")), "down");
    assert_string_equal(json_string_value(json_object_get(wait, "name")), "wait down");
    assert_near(json_number_value(json_object_get(work, "ts")), 5, 1e-9);
    assert_near(json_number_value(json_object_get(work, "dur")), 2, 1e-9);
    assert_near(json_number_value(json_object_get(wait, "dur")), 0.5, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(work, "pid")), 1);
    assert_int_equal(json_integer_value(json_object_get(work, "tid")), 2);
    json_t *args = json_object_get(work, "args");
    assert_int_equal(json_integer_value(json_object_get(args, "layer")), 3);
    assert_int_equal(json_integer_value(json_object_get(args, "token")), 1);
    json_decref(root);
    free(text);
    trace_close(&h.trace);
}

static void test_table_and_page(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    for (int i = 0; i < N_THREADS; i++)
        set(&h, 0, i, GLOBAL_STEP, 0, 6000000, 8000000); /* ms: work 6, latency 2 of 10 */
    struct trace_report r = {.trace = &h.trace, .plan = &h.plan, .title = "a<b & c"};
    r.token_s = 0.010;
    r.median_s = 0.0102;
    r.plain_median_s = 0.010;
    trace_report_sum(&r);
    char *table = printed(trace_print_table, &r), *page = printed(trace_print_html, &r);
    assert_non_null(strstr(table, "6.000  60.0 %"));
    assert_non_null(strstr(table, "2.000  20.0 %"));
    assert_non_null(strstr(table, "outside of steps 2.000 ms (20.0 %), token 10.000 ms"));
    assert_non_null(strstr(table, "it costs 2.0 %"));
    assert_non_null(strstr(page, "a&lt;b &amp; c"));
    assert_non_null(strstr(page, "<td>6.000</td><td>60.0"));
    assert_null(strstr(page, "<script"));
    free(table);
    free(page);
    trace_close(&h.trace);
}

static int count_text(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* 6 ms of work and 2 of latency in a token of 10: 680 units of width are divided so; the page has the
 * same picture, and one of each thread. */
static void test_picture(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    for (int i = 0; i < N_THREADS; i++)
        set(&h, 0, i, GLOBAL_STEP, 0, 6000000, 8000000);
    struct trace_report r = {
        .trace = &h.trace, .plan = &h.plan, .title = "a<b & c", .token_s = 0.010};
    trace_report_sum(&r);
    char *picture = printed(trace_print_svg, &r), *page = printed(trace_print_html, &r);
    /* of the step and of the token */
    assert_int_equal(count_text(picture, "<rect x=\"110.00\""), 2);
    assert_int_equal(count_text(picture, "width=\"408.00\" height=\"20\" fill=\"#0072b2\""), 2);
    assert_int_equal(count_text(picture, "<rect x=\"518.00\""), 2);
    assert_int_equal(count_text(picture, "width=\"136.00\" height=\"20\" fill=\"#a6a6a6\""), 2);
    assert_int_equal(count_text(picture, "outside of steps: 2.000 ms"), 1);
    assert_int_equal(count_text(picture, ">60 %<"), 2);
    assert_int_equal(count_text(picture, "8.000 ms, 80.0 %"), 1);
    assert_int_equal(count_text(picture, "10.000 ms, 100.0 %"), 1);
    assert_non_null(strstr(picture, ">0 ms</text>"));
    assert_non_null(strstr(picture, "<path d=\"M246.0 ")); /* 2 ms: 110 and a fifth of 680 */
    assert_int_equal(count_text(picture, "stroke=\"#ccc\""), 6);
    assert_non_null(strstr(picture, "a&lt;b &amp; c"));
    assert_int_equal(count_text(page, picture), 1);
    assert_int_equal(count_text(page, "<svg "), 3); /* bars, a token, its middle layer */
    /* in the token and in its layer: work of 6 of 8 ms, then waiting, in the rows of four threads */
    assert_int_equal(count_text(page, "M110.00 40h510.00v22h-510.00z\" fill=\"#77ccee\""), 2);
    assert_int_equal(count_text(page, "h170.00v22h-170.00z\" fill=\"url(#wait)\""), 2 * N_THREADS);
    assert_int_equal(count_text(page, ">node 1, CPU 3<"), 2);
    free(picture);
    free(page);
    trace_close(&h.trace);
}

/* Without any time: no picture of a token, no division by zero. */
static void test_empty_picture(void **state)
{
    (void)state;
    struct hand_made h;
    make(&h, 1);
    h.trace.batch = 0;
    struct trace_report r = {.trace = &h.trace, .plan = &h.plan, .title = ""};
    trace_report_sum(&r);
    char *page = printed(trace_print_html, &r);
    assert_int_equal(count_text(page, "<svg "), 1);
    assert_null(strstr(page, "nan"));
    free(page);
    trace_close(&h.trace);
}

#define NAP_MS      300 /* more than a busy machine delays a token */
#define N_NAPS      2
#define MOST_TOKENS 40
static kernel *awake; /* what the kernel below stands in the place of */
static int n_naps;    /* of one thread only */

static void sleepy(const union job *job, int begin, int end)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000}, NULL);
    n_naps++;
    awake(job, begin, end);
}

/* The second thread sleeps once a token, when it prepares itself for the first step of gate and up. */
static void plant_nap(const struct plan *plan)
{
    struct program *second = &plan->programs[PROGRAM_FEW][1];
    struct step *step = second->steps;
    while (step->kind != STEP_GATE_UP)
        step++;
    assert_true(step < second->steps + second->n_steps);
    assert_true(step->n_each > 0 && step->each[0].n > 0);
    awake = step->each[0].run;
    step->each[0].run = sleepy;
    n_naps = 0;
}

/* Runs tokens on two threads until the second has slept twice: it may also come too late for
 * anything to do, and doesn't. Sums of all tokens: 1 is what one of two threads does in a nap. */
static void trace_with_nap(int n_nodes, bool is_static, struct trace_sum kinds[N_STEP_KINDS],
                           struct trace_sum *all)
{
    struct model model;
    struct trace trace;
    open_tiny(&model, "TQ2_0");
    struct engine_options options = {
        .n_threads = 2, .n_nodes = n_nodes, .n_ctx = 64, .is_static_rows = is_static};
    struct engine *engine = open_engine(&model, &options);
    struct session *session = open_session(engine);
    const struct plan *plan = engine_plan_of(engine);
    session_decode(session, 3);
    plant_nap(plan);
    assert_int_equal(trace_open(&trace, plan, PROGRAM_FEW, MOST_TOKENS, NULL), STATUS_OK);
    engine_set_trace(engine, &trace);
    while (trace_n_written(&trace) < MOST_TOKENS && n_naps < N_NAPS)
        session_decode(session, 4);
    assert_int_equal(n_naps, N_NAPS);
    trace_sums(&trace, plan, 0, kinds, all);
    double scale = 2 * trace_n_written(&trace) / (0.001 * NAP_MS * N_NAPS);
    for (int i = 0; i <= N_STEP_KINDS; i++) {
        struct trace_sum *sum = i < N_STEP_KINDS ? &kinds[i] : all;
        sum->work *= scale;
        sum->late_own *= scale;
        sum->late_other *= scale;
    }
    trace_close(&trace);
    session_close(session);
    engine_close(engine);
    model_close(&model);
}

/* A busy machine delays threads too, but not by half a nap. */
static void assert_share(const char *what, double found, double least, double most)
{
    if (!(found >= least && found <= most))
        fail_msg("%s: %.3f naps, expected %.1f to %.1f", what, found, least, most);
}

static void test_sleeper_of_own_node(void **state)
{
    (void)state;
    struct trace_sum kinds[N_STEP_KINDS], all;
    trace_with_nap(1, true, kinds, &all);
    assert_share("late at gate_up", kinds[STEP_GATE_UP].late_own, 0.5, 1.5);
    assert_share("late elsewhere", all.late_own - kinds[STEP_GATE_UP].late_own, 0, 0.5);
    assert_share("work", kinds[STEP_GATE_UP].work, 1, 1.5); /* it was busy, if only sleeping */
    assert_true(all.late_other == 0);
}

/* Nodes meet after the step that follows: down. */
static void test_sleeper_of_other_node(void **state)
{
    (void)state;
    struct trace_sum kinds[N_STEP_KINDS], all;
    trace_with_nap(2, true, kinds, &all);
    assert_share("late at down", kinds[STEP_DOWN].late_other, 0.5, 1.5);
    assert_share("late elsewhere", all.late_other - kinds[STEP_DOWN].late_other, 0, 0.5);
    assert_true(all.late_own == 0);
}

/* The other thread takes its rows: it holds up nobody, and is not called late. */
static void test_sleeper_without_work(void **state)
{
    (void)state;
    struct trace_sum kinds[N_STEP_KINDS], all;
    trace_with_nap(1, false, kinds, &all);
    assert_share("work", kinds[STEP_GATE_UP].work, 1, 1.5);
    assert_share("late", all.late_own, 0, 0.5);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_in_own_node),
        cmocka_unit_test(test_late_in_other_node),
        cmocka_unit_test(test_late_without_work),
        cmocka_unit_test(test_leader),
        cmocka_unit_test(test_without_barrier),
        cmocka_unit_test(test_shares_sum_to_total),
        cmocka_unit_test(test_chrome),
        cmocka_unit_test(test_table_and_page),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_empty_picture),
        cmocka_unit_test(test_sleeper_of_own_node),
        cmocka_unit_test(test_sleeper_of_other_node),
        cmocka_unit_test(test_sleeper_without_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
