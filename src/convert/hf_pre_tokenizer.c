#include "convert/hf_pre_tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "convert/hf_tokenizer.h"

#define ENDINGS       "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define BREAKS_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* How a text is cut: by an expression, or (NULL) by the one that ByteLevel has of its own, behind a
 * step that sets digits apart or not. */
struct cut {
    const char *name, *expression;
    bool has_digits;
    bool ignore_merges; /* the name also stands for this member of the model */
};

static const struct cut cuts[] = {
    {"llama-bpe",
     ENDINGS
     "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BREAKS_SPACES,
     false, true},
    {"qwen2",
     ENDINGS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BREAKS_SPACES,
     false, false},
    {"qwen35",
     ENDINGS "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
             "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BREAKS_SPACES,
     false, false},
    {"gpt-2", NULL, false, false},
    {"smollm", NULL, true, false},
};
#define N_CUTS (sizeof cuts / sizeof cuts[0])

const char *hf_pre_tokenizer_name(size_t i, bool *ignore_merges)
{
    if (i >= N_CUTS)
        return NULL;
    *ignore_merges = cuts[i].ignore_merges;
    return cuts[i].name;
}

/* What the steps of tokenizer.json amount to. */
struct steps {
    const char *expression; /* of a Split; NULL: none */
    bool has_digits, has_bytes, uses_own_expression;
};

static enum status fail_step(const char *path, const json_t *step, struct error *err)
{
    char *text = json_dumps(step, JSON_COMPACT | JSON_ENCODE_ANY);
    fail(err, STATUS_UNSUPPORTED,
         "%s: step %s of the pre-tokenizer is not known; choose a name that cuts alike with "
         "--pre-tokenizer NAME",
         path, text ? text : "(none)");
    free(text);
    return STATUS_UNSUPPORTED;
}

static bool is_true(const json_t *o, const char *key, bool absent)
{
    const json_t *value = json_object_get(o, key);
    return value ? json_is_true(value) : absent;
}

static enum status add_step(struct steps *s, const json_t *step, const char *path,
                            struct error *err)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    const char *behavior = json_string_value(json_object_get(step, "behavior"));
    const char *expression =
        json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    if (!type || s->has_bytes)
        return fail_step(path, step, err);
    if (strcmp(type, "Split") == 0 && expression && !s->expression && behavior &&
        strcmp(behavior, "Isolated") == 0 && !is_true(step, "invert", false)) {
        s->expression = expression;
    } else if (strcmp(type, "Digits") == 0 && is_true(step, "individual_digits", false) &&
               !s->expression) {
        s->has_digits = true;
    } else if (strcmp(type, "ByteLevel") == 0 && !is_true(step, "add_prefix_space", true)) {
        s->has_bytes = true;
        s->uses_own_expression = is_true(step, "use_regex", true);
    } else {
        return fail_step(path, step, err);
    }
    return STATUS_OK;
}

static enum status read_steps(struct steps *s, const json_t *pre, const char *path,
                              struct error *err)
{
    const json_t *list = json_object_get(pre, "pretokenizers");
    if (!list)
        return add_step(s, pre, path, err);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add_step(s, json_array_get(list, i), path, err));
    return STATUS_OK;
}

static bool fits(const struct cut *cut, const struct steps *s)
{
    if (cut->has_digits != s->has_digits || !cut->expression != !s->expression)
        return false;
    return cut->expression ? !s->uses_own_expression && strcmp(cut->expression, s->expression) == 0
                           : s->uses_own_expression;
}

enum status hf_pre_tokenizer_find(const json_t *root, const char *path, const char **name,
                                  struct error *err)
{
    struct steps s = {0};
    bool ignore_merges = is_true(json_object_get(root, "model"), "ignore_merges", false);
    TRY(read_steps(&s, json_object_get(root, "pre_tokenizer"), path, err));
    for (size_t i = 0; i < N_CUTS; i++) {
        if (!fits(&cuts[i], &s))
            continue;
        *name = cuts[i].name;
        if (cuts[i].ignore_merges == ignore_merges)
            return STATUS_OK;
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: cuts like %s, but with ignore_merges %s, where that name stands for %s; "
                    "choose a name with --pre-tokenizer NAME",
                    path, *name, ignore_merges ? "true" : "false",
                    ignore_merges ? "false" : "true");
    }
    return fail(err, STATUS_UNSUPPORTED,
                "%s: the pre-tokenizer cuts by '%s'%s%s, which no known name stands for; choose "
                "one that cuts alike with --pre-tokenizer NAME",
                path, s.expression ? s.expression : "(no expression)",
                s.has_digits ? " behind single digits" : "",
                s.expression && s.uses_own_expression ? " and then by that of GPT-2" : "");
}
