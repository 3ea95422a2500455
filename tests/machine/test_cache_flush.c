/* What was flushed is read more slowly than what was not, and is the same. */
#include <string.h>

#include "../support.h"
#include "base/clock.h"
#include "base/random.h"
#include "machine/cache_flush.h"

enum { N_LINES = 4096, LINE = 64, ROUNDS = 20 };

/* A ring through all lines in an order that prefetchers do not guess: each load waits for the one before. */
static unsigned char *ring;

static void make_ring(void)
{
    unsigned order[N_LINES];
    struct random random;
    random_init(&random, 1);
    for (int i = 0; i < N_LINES; i++) {
        int j = (int)(random_bits(&random) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = (unsigned)i * LINE;
    }
    for (int i = 0; i < N_LINES; i++)
        memcpy(ring + order[i], &order[(i + 1) % N_LINES], sizeof order[0]);
}

static double walk_ns(void)
{
    int64_t begin = clock_ns();
    unsigned at = 0;
    for (int i = 0; i < N_LINES; i++)
        memcpy(&at, ring + at, sizeof at);
    double ns = (double)(clock_ns() - begin) / N_LINES;
    assert_int_equal(at, 0); /* once around */
    return ns;
}

static void flush_all(void)
{
    cache_flush(ring, N_LINES * LINE);
}

/* Every line by its last byte. */
static void flush_ends(void)
{
    for (int i = 0; i < N_LINES; i++)
        cache_flush(ring + i * LINE + LINE - 1, 1);
}

/* Two lines by two bytes. */
static void flush_pairs(void)
{
    for (int i = 0; i < N_LINES; i += 2)
        cache_flush(ring + i * LINE + LINE - 1, 2);
}

/* Memory is 40 ns away and more, the second cache some 5. */
static void expect_far(void (*flush)(void))
{
    double warm = 1e9, cold = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        flush();
        double ns = walk_ns();
        cold = ns < cold ? ns : cold;
        ns = walk_ns();
        warm = ns < warm ? ns : warm;
    }
    print_message("flushed %.1f ns, not flushed %.1f ns a load\n", cold, warm);
    if (cold < 3 * warm)
        fail_msg("flushed %.1f ns, not flushed %.1f ns a load", cold, warm);
}

static void test_flushed_lines_are_far(void **state)
{
    (void)state;
    expect_far(flush_all);
}

static void test_a_byte_flushes_its_line(void **state)
{
    (void)state;
    expect_far(flush_ends);
    expect_far(flush_pairs);
}

static void test_content_stays(void **state)
{
    (void)state;
    unsigned char bytes[3 * LINE];
    for (int from = 0; from < LINE; from++) {
        memset(bytes, from, sizeof bytes);
        cache_flush(bytes + from, LINE + 1);
        for (size_t i = 0; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], from);
    }
    cache_flush(bytes, 0);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    ring = aligned_alloc(LINE, N_LINES * LINE);
    assert_non_null(ring);
    make_ring();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flushed_lines_are_far),
        cmocka_unit_test(test_a_byte_flushes_its_line),
        cmocka_unit_test(test_content_stays),
    };
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    free(ring);
    return status;
}
