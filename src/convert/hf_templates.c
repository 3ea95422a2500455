#include "convert/hf_templates.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_map.h"
#include "convert/hf_files.h"

/* Bytes of a name, which becomes a part of a key. */
#define MAX_NAME 100

static const char stored_key[] = "chat_template";

/* The name under which transformers keeps the one that has none in GGUF. */
static const char default_name[] = "default";

static enum status add(struct hf_tokenizer *t, const char *path, const char *name, struct text text,
                       struct error *err)
{
    for (size_t i = 0; i < t->n_templates; i++)
        if (strcmp(t->templates[i].name, name) == 0)
            return fail(err, STATUS_FORMAT,
                        "%s: '%s' has two templates of the name '%s'; leave one out", path,
                        stored_key, name);
    t->templates[t->n_templates++] = (struct hf_template){name, text};
    return STATUS_OK;
}

/* Item i of the list. */
static enum status add_item(struct hf_tokenizer *t, const char *path, const json_t *item, size_t i,
                            struct error *err)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    const char *text = json_string_value(json_object_get(item, "template"));
    if (!name || !text)
        return fail(err, STATUS_FORMAT,
                    "%s: entry %zu of '%s' is %s, expected an object with a 'name' and a "
                    "'template', both texts",
                    path, i, stored_key,
                    !json_is_object(item) ? json_kind(item)
                    : name                ? "one without a template"
                                          : "one without a name");
    if (!name[0] || strlen(name) > MAX_NAME)
        return fail(err, STATUS_FORMAT,
                    "%s: entry %zu of '%s' has a name of %zu bytes, expected 1 to %d", path, i,
                    stored_key, strlen(name), MAX_NAME);
    return add(t, path, name, text_of(text), err);
}

static enum status add_stored(struct hf_tokenizer *t, struct json_object config, struct error *err)
{
    const json_t *stored = json_member(config, stored_key);
    size_t n = json_is_array(stored) ? json_array_size(stored) : 0;
    t->templates = arena_alloc(&t->arena, n + 1, sizeof *t->templates);
    if (!t->templates)
        return fail_memory(err, "chat templates", (n + 1) * sizeof *t->templates);
    if (stored && !json_is_array(stored) && !json_is_string(stored))
        return fail(err, STATUS_FORMAT, "%s: '%s' is %s, expected a text or a list of templates",
                    config.name, stored_key, json_kind(stored));
    for (size_t i = 0; i < n; i++)
        TRY(add_item(t, config.name, json_array_get(stored, i), i, err));
    return json_is_string(stored)
               ? add(t, config.name, default_name, text_of(json_string_value(stored)), err)
               : STATUS_OK;
}

/* Puts the text of chat_template.jinja in the place of the one without a name. */
static void replace_default(struct hf_tokenizer *t, struct text text)
{
    size_t i = 0;
    while (i < t->n_templates && strcmp(t->templates[i].name, default_name) != 0)
        i++;
    if (i < t->n_templates && !text_equal(t->templates[i].text, text))
        hf_tokenizer_note(t, "the chat template of %s is left out, as %s has another one",
                          hf_file_names[HF_FILE_TOKENIZER_CONFIG], hf_file_names[HF_FILE_TEMPLATE]);
    t->templates[i] = (struct hf_template){default_name, text};
    t->n_templates += i == t->n_templates;
}

enum status hf_templates_read(struct hf_tokenizer *t, struct json_object config, const char *path,
                              struct error *err)
{
    TRY(add_stored(t, config, err));
    if (access(path, F_OK) != 0)
        return STATUS_OK;
    const uint8_t *bytes;
    size_t size;
    TRY(file_map(path, "a template", &bytes, &size, err));
    if (size == 0) {
        hf_tokenizer_note(t, "%s is empty and left out", hf_file_names[HF_FILE_TEMPLATE]);
        return STATUS_OK;
    }
    const char *text = arena_text(&t->arena, (const char *)bytes, size);
    file_unmap(bytes, size);
    if (!text)
        return fail_memory(err, path, size);
    replace_default(t, (struct text){text, size});
    return STATUS_OK;
}

static enum status put_names(const struct hf_tokenizer *t, struct gguf_writer *w, struct error *err)
{
    size_t n = 0;
    struct text *names = memory_alloc(t->n_templates, sizeof *names);
    if (!names)
        return fail_memory(err, "chat templates", t->n_templates * sizeof *names);
    for (size_t i = 0; i < t->n_templates; i++)
        if (strcmp(t->templates[i].name, default_name) != 0)
            names[n++] = text_of(t->templates[i].name);
    enum status status =
        n ? gguf_put_strings(w, "tokenizer.chat_templates", names, n, err) : STATUS_OK;
    memory_free(names);
    return status;
}

enum status hf_templates_put(const struct hf_tokenizer *t, struct gguf_writer *w, struct error *err)
{
    TRY(put_names(t, w, err));
    for (size_t i = 0; i < t->n_templates; i++) {
        char key[32 + MAX_NAME];
        bool is_default = strcmp(t->templates[i].name, default_name) == 0;
        snprintf(key, sizeof key, "tokenizer.chat_template%s%s", is_default ? "" : ".",
                 is_default ? "" : t->templates[i].name);
        TRY(gguf_put_string(w, key, t->templates[i].text, err));
    }
    return STATUS_OK;
}
