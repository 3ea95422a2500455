/* A tiny model of the oracle's folder with the logits that other programs computed. */
#ifndef TRINE_TESTS_ORACLE_FILE_H
#define TRINE_TESTS_ORACLE_FILE_H

#include "engine_run.h"

#define ORACLE_MAX_TOKENS 512

struct oracle {
    const char *name;
    json_t *index;
    char *arrays;
    struct model model;
    int n_tokens;
    int32_t tokens[ORACLE_MAX_TOKENS];
};

/* Takes the ids of the index, or of its long run. */
static inline void oracle_take_tokens(struct oracle *o, bool is_long)
{
    const json_t *run = is_long ? json_object_get(o->index, "long") : o->index;
    const json_t *tokens = json_object_get(run, "tokens");
    o->n_tokens = (int)json_array_size(tokens);
    assert_in_range(o->n_tokens, 1, ORACLE_MAX_TOKENS);
    for (int i = 0; i < o->n_tokens; i++)
        o->tokens[i] = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
}

static inline void oracle_open(struct oracle *o, const char *name)
{
    char file[96];
    *o = (struct oracle){.name = name};
    snprintf(file, sizeof file, "%s.json", name);
    o->index = json_load_file(oracle_path(file), 0, NULL);
    snprintf(file, sizeof file, "%s.bin", name);
    o->arrays = read_whole(oracle_path(file), NULL);
    if (!o->index || !o->arrays)
        fail_msg("%s: cannot read the oracle's files", name);
    snprintf(file, sizeof file, "%s.gguf", name);
    open_model(&o->model, oracle_path(file));
    oracle_take_tokens(o, false);
}

static inline void oracle_close(struct oracle *o)
{
    model_close(&o->model);
    json_decref(o->index);
    free(o->arrays);
}

/* The row of an array that is of position pos, or -1. */
static inline int oracle_row_at(const json_t *array, int pos)
{
    const json_t *positions = json_object_get(array, "positions");
    if (json_is_string(positions))
        return pos; /* "all" */
    for (size_t k = 0; k < json_array_size(positions); k++)
        if (json_integer_value(json_array_get(positions, k)) == pos)
            return (int)k;
    return -1;
}

/* Logits of array `array_name` at position pos, or NULL where the oracle has none. */
static inline const float *oracle_row(const struct oracle *o, const char *array_name, int pos)
{
    const json_t *arrays = json_object_get(o->index, "arrays"), *array;
    size_t i;
    json_array_foreach(arrays, i, array)
    {
        if (strcmp(json_string_value(json_object_get(array, "name")), array_name) != 0)
            continue;
        int row = oracle_row_at(array, pos);
        json_int_t offset = json_integer_value(json_object_get(array, "offset"));
        const float *first = (const float *)(o->arrays + offset);
        return row < 0 ? NULL : first + (size_t)row * (size_t)o->model.config.n_vocab;
    }
    return NULL;
}

#endif
