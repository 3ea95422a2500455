#include "convert/hf_tokenizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_map.h"
#include "convert/hf_files.h"
#include "convert/hf_templates.h"

void hf_tokenizer_note(struct hf_tokenizer *t, const char *format, ...)
{
    size_t n = strlen(t->notes), room = sizeof t->notes - n;
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!strstr(t->notes, text))
        snprintf(t->notes + n, room, "%s%s", n ? "; " : "", text);
}

enum status hf_tokenizer_reserve(struct hf_tokenizer *t, uint32_t n_tokens, struct error *err)
{
    *t = (struct hf_tokenizer){.n_tokens = n_tokens, .bos = -1, .unknown = -1, .padding = -1};
    for (int i = 0; i < HF_N_ENDS; i++)
        t->ends[i] = -1;
    t->texts = arena_alloc(&t->arena, n_tokens, sizeof *t->texts);
    t->types = arena_alloc(&t->arena, n_tokens, sizeof *t->types);
    t->scores = arena_alloc(&t->arena, n_tokens, sizeof *t->scores);
    if (t->texts && t->types && t->scores)
        return STATUS_OK;
    hf_tokenizer_close(t);
    return fail_memory(err, "vocabulary", (size_t)n_tokens * sizeof *t->texts);
}

enum status hf_tokenizer_name(struct hf_tokenizer *t, const char *path, int64_t id,
                              struct text text, int type, struct error *err)
{
    if (id < 0 || id >= t->n_tokens)
        return fail(err, STATUS_FORMAT,
                    "%s: token '%.*s' has id %lld, but the embedding has rows for 0 to %lld", path,
                    TEXT(text), (long long)id, (long long)t->n_tokens - 1);
    if (t->types[id] && !text_equal(t->texts[id], text))
        return fail(err, STATUS_FORMAT, "%s: id %lld stands for '%.*s' and for '%.*s'", path,
                    (long long)id, TEXT(t->texts[id]), TEXT(text));
    t->n_named += t->types[id] == 0;
    t->texts[id] = text;
    t->types[id] = type;
    return STATUS_OK;
}

enum status hf_tokenizer_add(struct hf_tokenizer *t, const char *path, int64_t id, struct text text,
                             int type, struct error *err)
{
    bool is_piece = t->is_spm && id >= 0 && id < t->n_tokens && t->types[id];
    return hf_tokenizer_name(t, path, id, text, is_piece ? t->types[id] : type, err);
}

int64_t hf_tokenizer_find(const struct hf_tokenizer *t, struct text text)
{
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (t->types[id] && text_equal(t->texts[id], text))
            return id;
    return -1;
}

/* The files of a folder while they are read. */
struct folder {
    struct hf_tokenizer *t;
    const char *dir;
    struct json_object config, generation, tokenizer, special; /* json NULL: absent */
    struct json_object beside; /* a tokenizer.json of which only the added tokens count */
    struct error *err;
};

static enum status path_of(struct folder *f, const char *name, char **path)
{
    size_t n = strlen(f->dir) + strlen(name) + 2;
    *path = arena_alloc(&f->t->arena, n, 1);
    if (!*path)
        return fail_memory(f->err, f->dir, n);
    snprintf(*path, n, "%s/%s", f->dir, name);
    return STATUS_OK;
}

/* Reads a file that may be absent and keeps it. */
static enum status read_document(struct folder *f, enum hf_file file, struct json_object *o)
{
    char *path;
    json_t *root;
    TRY(path_of(f, hf_file_names[file], &path));
    TRY(json_read_file(path, true, &root, f->err));
    *o = (struct json_object){root, path};
    if (root)
        f->t->documents[f->t->n_documents++] = root;
    return STATUS_OK;
}

static enum status read_pieces(struct folder *f, const char *path)
{
    struct hf_tokenizer *t = f->t;
    TRY(file_map(path, "a SentencePiece model", &t->pieces, &t->pieces_bytes, f->err));
    return hf_tokenizer_read_pieces(t, t->pieces, t->pieces_bytes, path, f->err);
}

/* Chooses the kind of vocabulary by the files that are there. */
static enum status read_vocabulary(struct folder *f, const char *pre_tokenizer)
{
    char *json_path, *pieces_path;
    json_t *root;
    TRY(path_of(f, hf_file_names[HF_FILE_TOKENIZER], &json_path));
    TRY(path_of(f, hf_file_names[HF_FILE_PIECES], &pieces_path));
    TRY(json_read_file(json_path, true, &root, f->err));
    bool has_pieces = access(pieces_path, F_OK) == 0;
    if (root && (!has_pieces || hf_tokenizer_is_byte_level(root)))
        return hf_tokenizer_read_json(f->t, root, json_path, pre_tokenizer, f->err);
    if (root)
        f->t->documents[f->t->n_documents++] = root;
    f->beside = (struct json_object){root, json_path};
    if (!has_pieces)
        return fail(f->err, STATUS_IO,
                    "%s: neither tokenizer.json nor tokenizer.model is there; load and save the "
                    "tokenizer with transformers to get one",
                    f->dir);
    if (pre_tokenizer)
        return fail(f->err, STATUS_UNSUPPORTED,
                    "--pre-tokenizer %s: %s has a SentencePiece vocabulary, which is not cut "
                    "before merging; leave the option out",
                    pre_tokenizer, f->dir);
    return read_pieces(f, pieces_path);
}

/* A key that is the id of a token. */
static bool read_id(const char *key, int64_t *id)
{
    size_t n = strlen(key);
    *id = strtoll(key, NULL, 10);
    return n >= 1 && n <= 10 && strspn(key, "0123456789") == n;
}

/* Tokens that were added to a SentencePiece vocabulary. */
static enum status read_added(struct folder *f)
{
    const json_t *list = json_member(f->tokenizer, "added_tokens_decoder");
    const char *key;
    json_t *value;
    if (list && !json_is_object(list))
        return fail(f->err, STATUS_FORMAT, "%s: 'added_tokens_decoder' is %s, expected an object",
                    f->tokenizer.name, json_kind(list));
    json_object_foreach((json_t *)(uintptr_t)list, key, value)
    {
        struct json_object o = {value, f->tokenizer.name};
        const char *content = NULL;
        bool is_special = false;
        int64_t id;
        if (!read_id(key, &id))
            return fail(f->err, STATUS_FORMAT,
                        "%s: 'added_tokens_decoder' has the key '%s', expected the id of a token",
                        f->tokenizer.name, key);
        TRY(json_take_text(o, "content", &content, f->err));
        TRY(json_take_bool(o, "special", &is_special, f->err));
        if (!content)
            return fail(f->err, STATUS_FORMAT, "%s: added token '%s' has no content",
                        f->tokenizer.name, key);
        TRY(hf_tokenizer_add(f->t, f->tokenizer.name, id, text_of(content),
                             is_special ? HF_CONTROL : HF_USER_DEFINED, f->err));
    }
    return STATUS_OK;
}

static enum status read_old_added(struct folder *f)
{
    struct json_object o;
    const char *key;
    json_t *value;
    TRY(read_document(f, HF_FILE_ADDED, &o));
    json_object_foreach((json_t *)(uintptr_t)o.json, key, value)
    {
        int64_t id;
        if (!json_whole(value, &id))
            return fail(f->err, STATUS_FORMAT, "%s: token '%s' has %s for its id", o.name, key,
                        json_kind(value));
        TRY(hf_tokenizer_add(f->t, o.name, id, text_of(key), HF_USER_DEFINED, f->err));
    }
    return STATUS_OK;
}

/* The text that a file gives a special token: a text, or an object with one. */
static const char *special_text(struct json_object o, const char *key)
{
    const json_t *value = json_member(o, key);
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

/* *id by text; stays when neither file names one. */
static enum status find_by_text(struct folder *f, const char *key, int64_t *id)
{
    const char *text = special_text(f->tokenizer, key);
    const char *path = f->tokenizer.name;
    if (!text) {
        text = special_text(f->special, key);
        path = f->special.name;
    }
    if (!text)
        return STATUS_OK;
    *id = hf_tokenizer_find(f->t, text_of(text));
    if (*id < 0)
        return fail(f->err, STATUS_FORMAT, "%s: '%s' is '%s', which is no token", path, key, text);
    if (f->t->types[*id] != HF_UNKNOWN)
        f->t->types[*id] = HF_CONTROL;
    return STATUS_OK;
}

static enum status check_id(struct folder *f, struct json_object o, const char *key, int64_t id)
{
    if (id >= 0 && id < f->t->n_tokens && f->t->types[id])
        return STATUS_OK;
    return fail(f->err, STATUS_FORMAT, "%s: '%s' is %lld, which is no token", o.name, key,
                (long long)id);
}

/* Takes the first id of a number or list when *id is not known yet; others to the list of ends. */
static enum status find_by_number(struct folder *f, struct json_object o, const char *key,
                                  int64_t *id, bool is_end)
{
    const json_t *value = json_member(o, key);
    size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        int64_t found;
        if (!json_whole(item, &found))
            return fail(f->err, STATUS_FORMAT, "%s: '%s' is %s, expected a whole number", o.name,
                        key, json_kind(item));
        if (found < 0)
            continue;
        TRY(check_id(f, o, key, found));
        int64_t *place = id;
        for (int k = 0; is_end && *place >= 0 && *place != found && k < HF_N_ENDS; k++)
            place = &f->t->ends[k];
        if (*place < 0)
            *place = found;
        else if (is_end && *place != found)
            hf_tokenizer_note(f->t, "end token %lld is one more than GGUF has keys for",
                              (long long)found);
    }
    return STATUS_OK;
}

/* What SentencePiece itself does not say. */
static enum status read_spm_rules(struct folder *f)
{
    struct hf_tokenizer *t = f->t;
    bool is_legacy = true;
    t->add_bos = true;
    TRY(json_take_bool(f->tokenizer, "add_bos_token", &t->add_bos, f->err));
    TRY(json_take_bool(f->tokenizer, "add_eos_token", &t->add_eos, f->err));
    TRY(json_take_bool(f->tokenizer, "legacy", &is_legacy, f->err));
    if (!is_legacy)
        hf_tokenizer_note(t, "a text behind a special token begins with a space here, which "
                             "'legacy': false leaves out");
    return STATUS_OK;
}

/* The template of tokenizer.json decides; another file may say otherwise. */
static enum status note_bos(struct folder *f)
{
    bool adds = f->t->add_bos;
    TRY(json_take_bool(f->tokenizer, "add_bos_token", &adds, f->err));
    if (adds != f->t->add_bos)
        hf_tokenizer_note(f->t,
                          "a beginning of text is %s, as tokenizer.json has it, though "
                          "tokenizer_config.json says 'add_bos_token': %s",
                          f->t->add_bos ? "added" : "not added", adds ? "true" : "false");
    return STATUS_OK;
}

static enum status read_ids(struct folder *f)
{
    struct hf_tokenizer *t = f->t;
    struct {
        const char *text_key, *id_key;
        int64_t *id;
    } rows[] = {{"bos_token", "bos_token_id", &t->bos},
                {"eos_token", "eos_token_id", &t->ends[0]},
                {"unk_token", "unk_token_id", &t->unknown},
                {"pad_token", "pad_token_id", &t->padding}};
    for (int i = 0; i < 4; i++) {
        bool is_end = i == 1;
        if (*rows[i].id < 0)
            TRY(find_by_text(f, rows[i].text_key, rows[i].id));
        TRY(find_by_number(f, f->generation, rows[i].id_key, rows[i].id, is_end));
        TRY(find_by_number(f, f->config, rows[i].id_key, rows[i].id, is_end));
    }
    return t->is_spm ? read_spm_rules(f) : note_bos(f);
}

static enum status read_templates(struct folder *f)
{
    char *path, *more;
    TRY(path_of(f, hf_file_names[HF_FILE_TEMPLATE], &path));
    TRY(path_of(f, "additional_chat_templates", &more));
    if (access(more, F_OK) == 0)
        hf_tokenizer_note(f->t, "the templates in additional_chat_templates are left out");
    return hf_templates_read(f->t, f->tokenizer, path, f->err);
}

/* "[PADn]" that is the text of another token, where n is a row without one. */
static enum status check_pads(const struct hf_tokenizer *t, const char *dir, struct error *err)
{
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        int64_t row;
        char digits[12] = "";
        struct text text = t->texts[id];
        if (!t->types[id] || !text_starts(text, "[PAD") || !text_ends(text, "]") || text.n < 6 ||
            text.n > 5 + 10)
            continue;
        memcpy(digits, text.bytes + 4, text.n - 5);
        if (read_id(digits, &row) && row < t->n_tokens && !t->types[row])
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: token %u is '%.*s', the name that row %lld of the embedding would "
                        "get, which has no token",
                        dir, id, TEXT(text), (long long)row);
    }
    return STATUS_OK;
}

/* Rows of the embedding without a token get a text that no other one has. */
static enum status pad(struct hf_tokenizer *t, const char *dir, struct error *err)
{
    TRY(check_pads(t, dir, err));
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        if (t->types[id])
            continue;
        char text[24];
        int n = snprintf(text, sizeof text, "[PAD%u]", id);
        const char *copy = arena_text(&t->arena, text, (size_t)n);
        if (!copy)
            return fail_memory(err, "vocabulary", (size_t)n);
        t->texts[id] = (struct text){copy, (size_t)n};
        t->types[id] = HF_UNUSED;
    }
    return STATUS_OK;
}

static enum status read_folder(struct folder *f, const char *pre_tokenizer)
{
    TRY(read_document(f, HF_FILE_TOKENIZER_CONFIG, &f->tokenizer));
    TRY(read_document(f, HF_FILE_SPECIAL, &f->special));
    TRY(read_document(f, HF_FILE_GENERATION, &f->generation));
    TRY(read_vocabulary(f, pre_tokenizer));
    if (f->t->is_spm) {
        TRY(read_added(f));
        TRY(read_old_added(f));
        TRY(hf_tokenizer_read_added(f->t, f->beside.json, f->beside.name, f->err));
    }
    TRY(read_ids(f));
    TRY(read_templates(f));
    return pad(f->t, f->dir, f->err);
}

enum status hf_tokenizer_open(struct hf_tokenizer *t, const char *dir, uint32_t n_tokens,
                              const char *pre_tokenizer, const json_t *config, struct error *err)
{
    struct folder f = {
        .t = t, .dir = dir, .config = {config, hf_file_names[HF_FILE_CONFIG]}, .err = err};
    TRY(hf_tokenizer_reserve(t, n_tokens, err));
    enum status status = read_folder(&f, pre_tokenizer);
    if (status != STATUS_OK)
        hf_tokenizer_close(t);
    return status;
}

void hf_tokenizer_close(struct hf_tokenizer *t)
{
    for (int i = 0; i < t->n_documents; i++)
        json_decref(t->documents[i]);
    file_unmap(t->pieces, t->pieces_bytes);
    arena_done(&t->arena);
    *t = (struct hf_tokenizer){0};
}

static enum status put_id(struct gguf_writer *w, const char *key, int64_t id, struct error *err)
{
    return id < 0 ? STATUS_OK : gguf_put_u32(w, key, (uint32_t)id, err);
}

enum status hf_tokenizer_put(const struct hf_tokenizer *t, struct gguf_writer *w, struct error *err)
{
    TRY(gguf_put_string(w, "tokenizer.ggml.model", text_of(t->is_spm ? "llama" : "gpt2"), err));
    TRY(gguf_put_string(w, "tokenizer.ggml.pre", text_of(t->is_spm ? "default" : t->pre), err));
    TRY(gguf_put_strings(w, "tokenizer.ggml.tokens", t->texts, t->n_tokens, err));
    TRY(gguf_put_i32s(w, "tokenizer.ggml.token_type", t->types, t->n_tokens, err));
    if (t->is_spm)
        TRY(gguf_put_f32s(w, "tokenizer.ggml.scores", t->scores, t->n_tokens, err));
    else
        TRY(gguf_put_strings(w, "tokenizer.ggml.merges", t->merges, t->n_merges, err));
    TRY(put_id(w, "tokenizer.ggml.bos_token_id", t->bos, err));
    TRY(put_id(w, "tokenizer.ggml.eos_token_id", t->ends[0], err));
    TRY(put_id(w, "tokenizer.ggml.eot_token_id", t->ends[1], err));
    TRY(put_id(w, "tokenizer.ggml.eom_token_id", t->ends[2], err));
    TRY(put_id(w, "tokenizer.ggml.unknown_token_id", t->unknown, err));
    TRY(put_id(w, "tokenizer.ggml.padding_token_id", t->padding, err));
    TRY(gguf_put_bool(w, "tokenizer.ggml.add_bos_token", t->add_bos, err));
    TRY(gguf_put_bool(w, "tokenizer.ggml.add_eos_token", t->add_eos, err));
    if (t->is_spm)
        TRY(gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", t->add_space_prefix, err));
    return hf_templates_put(t, w, err);
}
