/* What commands that run the engine let the user choose: rows of their option tables. */
#ifndef TRINE_CLI_ENGINE_CHOICE_H
#define TRINE_CLI_ENGINE_CHOICE_H

#include "cli/cli.h"
#include "cli/i2s_layout.h"
#include "engine/engine.h"

struct engine_choice {
    int64_t n_threads, n_nodes, n_threads_a_node, n_extra, n_promoted, prefetch_kib;
    const char *isa;
    int dataflow, barrier, rows, quantise, act_scale, kv_placement, weights_placement;
    int row_scatter, row_attention, attention_split, head, trits;
    int i2s_layout; /* of the model: i2s_layout_rule */
    bool is_unpinned;
};

/* Rows for a command whose options struct has an engine_choice at BASE. */
#define ENGINE_AT(base, field) ((base) + offsetof(struct engine_choice, field))
#define ENGINE_NUMBER(base, names, initial, help, field, max)                                      \
    {                                                                                              \
        names, "N", initial, help, OPT_INT, ENGINE_AT(base, field), 0, max                         \
    }
#define ENGINE_WORD(base, names, words, initial, help, field)                                      \
    {                                                                                              \
        names, words, initial, help, OPT_CHOICE, ENGINE_AT(base, field), 0, 0                      \
    }
#define ENGINE_OPTIONS(base)                                                                       \
    {NULL, NULL, NULL, "Machine", OPT_FLAG, 0, 0, 0},                                              \
        ENGINE_NUMBER(base, "-t, --threads", "0", "threads; 0: one per core that may be used",     \
                      n_threads, 4096),                                                            \
        ENGINE_NUMBER(base, "--nodes", "0",                                                        \
                      "nodes to divide the model over; 0: those of the machine; more: virtual",    \
                      n_nodes, 256),                                                               \
        ENGINE_NUMBER(base, "--threads-per-node", "0", "that many on each node; 0: evenly",        \
                      n_threads_a_node, 4096),                                                     \
        {"--isa",                                                                                  \
         "NAME",                                                                                   \
         NULL,                                                                                     \
         "use no instruction set above: scalar; avx2, avxvnni, avx512, avx512vbmi, amx; neon, "    \
         "i8mm",                                                                                   \
         OPT_TEXT,                                                                                 \
         ENGINE_AT(base, isa),                                                                     \
         0,                                                                                        \
         0},                                                                                       \
        ENGINE_WORD(base, "--head", "keep|q8_0|q6_k|q4_k|q4_0", "keep",                            \
                    "type that the output matrix is converted to at load", head),                  \
        I2S_LAYOUT_OPTION(ENGINE_AT(base, i2s_layout)),                                            \
        {"--no-pin", NULL,                                                                         \
         NULL,       "let the system move threads between CPUs",                                   \
         OPT_FLAG,   ENGINE_AT(base, is_unpinned),                                                 \
         0,          0},                                                                           \
        {NULL, NULL, NULL, "Experiments (defaults are the fastest known)", OPT_FLAG, 0, 0, 0},     \
        ENGINE_WORD(base, "--trits", "auto|trits4|trits5", "auto",                                 \
                    "packing of ternary weights: the faster one here, or 4 or 5 a byte", trits),   \
        ENGINE_WORD(base, "--dataflow", "auto|column|row", "auto",                                 \
                    "how nodes divide a layer: partial sums, or outputs that all nodes get",       \
                    dataflow),                                                                     \
        ENGINE_WORD(base, "--barrier", "two-level|flat", "two-level",                              \
                    "global barriers: nodes first, or all threads at one counter", barrier),       \
        ENGINE_WORD(base, "--rows", "dynamic|static", "dynamic",                                   \
                    "whether threads help others of their node to finish a step", rows),           \
        ENGINE_WORD(base, "--quantise", "auto|each|leader|split", "auto",                          \
                    "activations: every thread for itself, one thread a node, or by tokens",       \
                    quantise),                                                                     \
        ENGINE_WORD(                                                                               \
            base, "--act-scale", "node|token|group", "node",                                       \
            "one scale per node's part of a vector, the same on all nodes, or one per 256 "        \
            "inputs (more exact, slower)",                                                         \
            act_scale),                                                                            \
        ENGINE_WORD(base, "--attention-split", "on|off", "on",                                     \
                    "divide the cache of one head over threads", attention_split),                 \
        ENGINE_WORD(base, "--kv-placement", "local|interleave|one-node", "local",                  \
                    "memory of the KV cache", kv_placement),                                       \
        ENGINE_WORD(base, "--weights-placement", "local|interleave|one-node", "local",             \
                    "memory of the weights", weights_placement),                                   \
        ENGINE_NUMBER(base, "--extra-barriers", "0", "empty global barriers added to a layer",     \
                      n_extra, 64),                                                                \
        ENGINE_NUMBER(base, "--promote-barriers", "0",                                             \
                      "node barriers of a layer that become global", n_promoted, 64),              \
        {"--prefetch-wait",                                                                        \
         "KIB",                                                                                    \
         "0",                                                                                      \
         "fetch that much of the next weights before waiting",                                     \
         OPT_INT,                                                                                  \
         ENGINE_AT(base, prefetch_kib),                                                            \
         0,                                                                                        \
         1024},                                                                                    \
        ENGINE_WORD(base, "--row-scatter", "direct|copy", "direct",                                \
                    "row-owned: outputs written to every node, or copied after the barrier",       \
                    row_scatter),                                                                  \
        ENGINE_WORD(base, "--row-attention", "head|position", "head",                              \
                    "row-owned: attention on the node of the head, or of the cached position",     \
                    row_attention)

/* The engine's options; sizes (context, batch, ...) stay as they are in *options.
 * errors  USAGE */
enum status engine_choice_resolve(const struct engine_choice *choice,
                                  struct engine_options *options, struct error *err);

/* The names of the first option that is not its default, --i2s-layout apart; NULL: there is none. */
const char *engine_choice_given(const struct engine_choice *choice);

/* With --reference none of these options has an effect. errors  USAGE for the first that is given */
enum status engine_choice_refuse(const struct engine_choice *choice, struct error *err);

/* Says on standard error which of the options that were given have no effect on this engine's plan:
 * for want of nodes, threads, memories or such weights. The same command may run on a machine where they
 * have, so none of them is refused. */
void engine_choice_note(const struct engine_choice *choice, const struct engine *engine);

/* The cap of instruction sets: --isa, or what the machine has. */
enum status engine_choice_isa(const char *name, enum isa *isa, struct error *err);

#endif
