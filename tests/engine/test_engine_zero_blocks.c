/* Blocks of zeros say nothing about the scale of their row. A node whose part of a row is such a block
 * must not decide the scale by which the sums of all nodes are multiplied. */
#include "engine_run.h"

#include "../fixture.h"
#include "engine/plan.h"
#include "machine/cpu_features.h"

#define N_TOKENS    6
#define ROWS        256 /* of ffn_down of the last layer, the last tensor of the file */
#define BLOCK_BYTES 66  /* TQ2_0: 64 of codes, then the f16 scale */

/* Row r of ffn_down is two blocks; of every second row the scale of the first is made zero. */
static void write_model(const char *path)
{
    size_t size;
    char *bytes =
        fixture_bytes(&(struct fixture){.format = FORMAT_TQ2_0, .real_output = true}, &size);
    char *down = bytes + size - ROWS * 2 * BLOCK_BYTES;
    for (int row = 0; row < ROWS; row++) {
        char *first = down + row * 2 * BLOCK_BYTES + 64, *second = first + BLOCK_BYTES;
        memcpy(first, second, 2); /* one scale a row */
        if (row % 2 == 0)
            first[0] = first[1] = 0;
    }
    write_whole(path, bytes, size);
    free(bytes);
}

static void logits_on(const struct model *model, int n_nodes, float *logits)
{
    struct engine_options options = {.n_threads = 2,
                                     .n_nodes = n_nodes,
                                     .isa = cpu_best_isa(),
                                     .n_ctx = 64,
                                     .n_batch = N_TOKENS,
                                     .n_logits = N_TOKENS,
                                     .act_scale = ACT_SCALE_TOKEN};
    struct engine *engine = open_engine(model, &options);
    const struct node_slices *first = &engine_plan_of(engine)->slices.nodes[0];
    const struct weight_slice *down = &first->layers[model->config.n_layer - 1].down;
    assert_int_equal(down->w.group, 0); /* or there is nothing to see here */
    assert_true((down->row_scale != NULL) == (n_nodes > 1));
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens, N_TOKENS, model->config.n_vocab, 3);
    struct session *session = open_session(engine);
    run_pieces(engine, session, model->config.n_vocab, tokens, N_TOKENS, 4, logits);
    session_close(session);
    engine_close(engine);
}

static void test_two_nodes_give_the_bits_of_one(void **state)
{
    (void)state;
    const char *path = scratch_path("zero_blocks.gguf");
    write_model(path);
    struct model model;
    open_model(&model, path);
    size_t bytes = (size_t)N_TOKENS * (size_t)model.config.n_vocab * sizeof(float);
    float *one = test_alloc(bytes, 1), *two = test_alloc(bytes, 1);
    logits_on(&model, 1, one);
    logits_on(&model, 2, two);
    assert_memory_equal(one, two, bytes);
    free(one);
    free(two);
    model_close(&model);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_nodes_give_the_bits_of_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
