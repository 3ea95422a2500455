/* tokenizer.json of byte-level BPE: tokens, merges, added tokens, what is put before a text. */
#include <stdio.h>
#include <string.h>

#include "convert/hf_pre_tokenizer.h"
#include "convert/hf_tokenizer.h"

bool hf_tokenizer_is_byte_level(const json_t *root)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *list = json_object_get(pre, "pretokenizers");
    const json_t *last = list ? json_array_get(list, json_array_size(list) - 1) : pre;
    const char *type = json_string_value(json_object_get(last, "type"));
    return type && strcmp(type, "ByteLevel") == 0;
}

static enum status fail_part(const char *path, const char *part, const json_t *value,
                             struct error *err)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    fail(err, STATUS_UNSUPPORTED, "%s: %s is %.400s, which cannot be stored in GGUF", path, part,
         text ? text : "(none)");
    free(text);
    return STATUS_UNSUPPORTED;
}

/* Members of the model that would merge otherwise. */
static enum status check_model(struct json_object model, const char *path, struct error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = "(absent)";
    bool has_fallback = false;
    TRY(json_take_text(model, "type", &type, err));
    if (strcmp(type, "BPE") != 0)
        return fail(err, STATUS_UNSUPPORTED, "%s: a model of type %s; only BPE is known", path,
                    type);
    for (int i = 0; i < 2; i++) {
        const char *affix = "";
        TRY(json_take_text(model, affixes[i], &affix, err));
        if (affix[0])
            return fail_part(path, affixes[i], json_member(model, affixes[i]), err);
    }
    TRY(json_take_bool(model, "byte_fallback", &has_fallback, err));
    if (has_fallback || json_member(model, "dropout"))
        return fail_part(path, has_fallback ? "byte_fallback" : "dropout",
                         json_member(model, has_fallback ? "byte_fallback" : "dropout"), err);
    return STATUS_OK;
}

/* Texts reach Trine as they are written. */
static enum status check_normalizer(struct hf_tokenizer *t, struct json_object root,
                                    struct error *err)
{
    const json_t *normalizer = json_member(root, "normalizer");
    const char *type = json_string_value(json_object_get(normalizer, "type"));
    const json_t *steps = json_object_get(normalizer, "normalizers");
    if (!normalizer || (json_is_array(steps) && json_array_size(steps) == 0))
        return STATUS_OK;
    if (!type || strcmp(type, "NFC") != 0)
        return fail_part(root.name, "normalizer", normalizer, err);
    hf_tokenizer_note(t, "texts are not brought to Unicode form NFC, as transformers does");
    return STATUS_OK;
}

static enum status read_tokens(struct hf_tokenizer *t, struct json_object model, const char *path,
                               struct error *err)
{
    const json_t *vocab = json_member(model, "vocab");
    const char *key;
    json_t *value;
    if (!json_is_object(vocab))
        return fail(err, STATUS_FORMAT, "%s: 'vocab' is %s, expected an object", path,
                    json_kind(vocab));
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
    {
        int64_t id;
        if (!json_whole(value, &id))
            return fail(err, STATUS_FORMAT, "%s: token '%s' has %s for its id", path, key,
                        json_kind(value));
        TRY(hf_tokenizer_name(t, path, id, text_of(key), HF_NORMAL, err));
    }
    return STATUS_OK;
}

enum status hf_tokenizer_read_added(struct hf_tokenizer *t, const json_t *json, const char *path,
                                    struct error *err)
{
    struct json_object root = {json, path};
    const json_t *list = NULL;
    TRY(json_take_list(root, "added_tokens", &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct json_object o = {json_array_get(list, i), root.name};
        const char *content = NULL;
        bool is_special = false, left = false, right = false, is_word = false;
        int64_t id;
        TRY(json_need_whole(o, "id", 0, INT32_MAX, &id, err));
        TRY(json_take_text(o, "content", &content, err));
        TRY(json_take_bool(o, "special", &is_special, err));
        TRY(json_take_bool(o, "lstrip", &left, err));
        TRY(json_take_bool(o, "rstrip", &right, err));
        TRY(json_take_bool(o, "single_word", &is_word, err));
        if (!content)
            return fail(err, STATUS_FORMAT, "%s: added token %lld has no content", root.name,
                        (long long)id);
        TRY(hf_tokenizer_add(t, path, id, text_of(content),
                             is_special ? HF_CONTROL : HF_USER_DEFINED, err));
        if (left || right || is_word)
            hf_tokenizer_note(t, "token '%s' %s in transformers, not here", content,
                              is_word ? "stands between words only"
                                      : "swallows the spaces beside it");
    }
    return STATUS_OK;
}

/* The two parts of a rule, which is a list of two texts or one text with a space between them. */
static bool split_merge(const json_t *rule, struct text *a, struct text *b)
{
    const char *pair = json_string_value(rule), *space = pair ? strchr(pair, ' ') : NULL;
    const char *first = json_string_value(json_array_get(rule, 0));
    const char *second = json_string_value(json_array_get(rule, 1));
    if (space) {
        *a = (struct text){pair, (size_t)(space - pair)};
        *b = text_of(space + 1);
    } else if (first && second && json_array_size(rule) == 2) {
        *a = text_of(first);
        *b = text_of(second);
    } else {
        return false;
    }
    return a->n && b->n && !memchr(a->bytes, ' ', a->n) && !memchr(b->bytes, ' ', b->n);
}

/* One rule as "a b"; both parts and what they give must be tokens. */
static enum status read_merge(struct hf_tokenizer *t, const json_t *vocab, const char *path,
                              size_t i, const json_t *rule, struct error *err)
{
    struct text a, b;
    if (!split_merge(rule, &a, &b))
        return fail(err, STATUS_FORMAT, "%s: merge %zu is %s, expected two texts without spaces",
                    path, i, json_string_value(rule) ? json_string_value(rule) : json_kind(rule));
    size_t n = a.n + 1 + b.n;
    char *text = arena_alloc(&t->arena, n + 1, 1);
    if (!text)
        return fail_memory(err, path, n);
    memcpy(text, a.bytes, a.n);
    memcpy(text + a.n, b.bytes, b.n);
    bool is_known = json_object_getn(vocab, a.bytes, a.n) &&
                    json_object_getn(vocab, b.bytes, b.n) && json_object_getn(vocab, text, n - 1);
    text[a.n] = ' ';
    memcpy(text + a.n + 1, b.bytes, b.n);
    t->merges[i] = (struct text){text, n};
    if (is_known)
        return STATUS_OK;
    return fail(err, STATUS_FORMAT,
                "%s: merge %zu, '%s', has a part or a result that is no token; the file is damaged",
                path, i, text);
}

static enum status read_merges(struct hf_tokenizer *t, struct json_object model, const char *path,
                               struct error *err)
{
    const json_t *list = json_member(model, "merges"), *vocab = json_member(model, "vocab");
    if (!json_is_array(list))
        return fail(err, STATUS_FORMAT, "%s: 'merges' is %s, expected a list", path,
                    json_kind(list));
    t->n_merges = json_array_size(list);
    t->merges = arena_alloc(&t->arena, t->n_merges, sizeof *t->merges);
    if (!t->merges)
        return fail_memory(err, path, t->n_merges * sizeof *t->merges);
    for (size_t i = 0; i < t->n_merges; i++)
        TRY(read_merge(t, vocab, path, i, json_array_get(list, i), err));
    return STATUS_OK;
}

/* The id of a special token in a template; what it says beside the text itself. */
static enum status read_template(struct hf_tokenizer *t, const json_t *template, const char *path,
                                 struct error *err)
{
    const json_t *single = json_object_get(template, "single");
    bool is_behind = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const char *name =
            json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (json_object_get(item, "Sequence")) {
            is_behind = true;
            continue;
        }
        int64_t id = name ? hf_tokenizer_find(t, text_of(name)) : -1;
        int64_t *place = is_behind ? &t->ends[0] : &t->bos;
        bool *adds = is_behind ? &t->add_eos : &t->add_bos;
        if (id < 0 || *adds)
            return fail_part(path, "post_processor", template, err);
        *place = id;
        *adds = true;
    }
    return STATUS_OK;
}

static enum status read_post_processor(struct hf_tokenizer *t, const json_t *post, const char *path,
                                       struct error *err)
{
    const json_t *steps = json_object_get(post, "processors");
    const char *type = json_string_value(json_object_get(post, "type"));
    if (!post || json_is_null(post))
        return STATUS_OK;
    if (steps) {
        for (size_t i = 0; i < json_array_size(steps); i++) {
            if (json_object_get(json_array_get(steps, i), "processors"))
                return fail_part(path, "post_processor", post, err);
            TRY(read_post_processor(t, json_array_get(steps, i), path, err));
        }
        return STATUS_OK;
    }
    if (type && strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, post, path, err);
    if (type && strcmp(type, "ByteLevel") == 0)
        return STATUS_OK;
    return fail_part(path, "post_processor", post, err);
}

enum status hf_tokenizer_read_json(struct hf_tokenizer *t, json_t *json, const char *path,
                                   const char *pre_tokenizer, struct error *err)
{
    struct json_object root = {json, path}, model = {json_object_get(json, "model"), path};
    t->documents[t->n_documents++] = json;
    if (!hf_tokenizer_is_byte_level(json))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: no byte-level BPE; a SentencePiece vocabulary needs tokenizer.model "
                    "beside it",
                    path);
    TRY(check_model(model, path, err));
    TRY(check_normalizer(t, root, err));
    TRY(read_tokens(t, model, path, err));
    TRY(hf_tokenizer_read_added(t, json, path, err));
    TRY(read_merges(t, model, path, err));
    t->pre = pre_tokenizer;
    if (!pre_tokenizer)
        TRY(hf_pre_tokenizer_find(json, path, &t->pre, err));
    return read_post_processor(t, json_member(root, "post_processor"), path, err);
}
