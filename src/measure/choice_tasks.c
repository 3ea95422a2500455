#include "measure/choice_tasks.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "measure/json_lines.h"

struct item_parser {
    struct choice_item *item;
    struct arena *texts;
    const char *path;
    json_t *object;
};

static enum status fail_item(const struct item_parser *p, const char *what, struct error *err)
{
    return fail(err, STATUS_FORMAT, "%s: line %ld: %s", p->path, p->item->line, what);
}

/* NULL for what is no text or has a zero byte in it. */
static const char *text_value(json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static const char *text_at(json_t *object, const char *name)
{
    return text_value(json_object_get(object, name));
}

/* Three texts, one behind the other, in the arena. */
static enum status join(const struct item_parser *p, const char *a, const char *b, const char *c,
                        char **joined, struct error *err)
{
    size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
    *joined = arena_alloc(p->texts, na + nb + nc + 1, 1);
    if (!*joined)
        return fail_memory(err, p->path, na + nb + nc + 1);
    memcpy(*joined, a, na);
    memcpy(*joined + na, b, nb);
    memcpy(*joined + na + nb, c, nc);
    return STATUS_OK;
}

/* Replaces `from` by `to`, which is not longer, wherever it stands. */
static void replace(char *text, const char *from, const char *to)
{
    size_t n_from = strlen(from), n_to = strlen(to);
    char *out = text;
    for (const char *in = text; *in;) {
        if (strncmp(in, from, n_from) == 0) {
            memcpy(out, to, n_to);
            out += n_to;
            in += n_from;
        } else {
            *out++ = *in++;
        }
    }
    *out = 0;
}

/* Removes "[...]", where the bracket closes on the same line. */
static void remove_brackets(char *text)
{
    char *out = text;
    for (const char *in = text; *in;) {
        size_t length = *in == '[' ? strcspn(in, "]\n") : 0;
        if (length && in[length] == ']')
            in += length + 1;
        else
            *out++ = *in++;
    }
    *out = 0;
}

static char *strip(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    text[n] = 0;
    return text;
}

/* HellaSwag's marks of a how-to text: a title ends a sentence, other marks go. */
static char *plain_text(char *text)
{
    text = strip(text);
    replace(text, " [title]", ". ");
    remove_brackets(text);
    replace(text, "  ", " ");
    return text;
}

/* First letter large, the others small (ASCII). */
static void capitalise(char *text)
{
    for (char *c = text; *c; c++)
        *c = (char)(c == text ? toupper((unsigned char)*c) : tolower((unsigned char)*c));
}

/* The beginning of a HellaSwag item. */
static enum status hellaswag_context(const struct item_parser *p, const char **context,
                                     struct error *err)
{
    const char *a = text_at(p->object, "ctx_a"), *b = text_at(p->object, "ctx_b");
    const char *whole = text_at(p->object, "ctx"), *activity = text_at(p->object, "activity_label");
    char *text;
    if (a && b) {
        char *second;
        TRY(join(p, b, "", "", &second, err));
        capitalise(second);
        TRY(join(p, a, " ", second, &text, err));
        whole = text;
    }
    if (!whole && !a)
        return fail_item(p, "\"endings\" without a text \"ctx\" or \"ctx_a\"", err);
    TRY(join(p, activity ? activity : "", activity ? ": " : "", whole ? whole : a, &text, err));
    *context = plain_text(text);
    return STATUS_OK;
}

/* An index written as number or as text. */
static int index_of(json_t *value)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= MAX_CHOICES)
        return (int)json_integer_value(value);
    const char *text = text_value(value);
    bool is_number =
        text && *text && strlen(text) < 3 && strspn(text, "0123456789") == strlen(text);
    return is_number ? atoi(text) : -1;
}

static enum status check_count(const struct item_parser *p, json_t *list, struct error *err)
{
    size_t n = json_array_size(list);
    if (n < 2 || n > MAX_CHOICES)
        return fail_item(p, "expected a list of 2 to 26 choices", err);
    p->item->n = (int)n;
    return STATUS_OK;
}

/* A copy of choice i, in the arena, that may be changed. */
static enum status copy_ending(const struct item_parser *p, const char *ending, char **copy,
                               struct error *err)
{
    if (!ending)
        return fail_item(p, "a choice is no text", err);
    return join(p, ending, "", "", copy, err);
}

static enum status parse_hellaswag(const struct item_parser *p, struct error *err)
{
    json_t *endings = json_object_get(p->object, "endings");
    const char *context = NULL;
    TRY(check_count(p, endings, err));
    TRY(hellaswag_context(p, &context, err));
    for (int i = 0; i < p->item->n; i++) {
        char *ending;
        TRY(copy_ending(p, text_value(json_array_get(endings, (size_t)i)), &ending, err));
        p->item->endings[i] = plain_text(ending);
        p->item->contexts[i] = context;
    }
    p->item->answer = index_of(json_object_get(p->object, "label"));
    return STATUS_OK;
}

/* Choice i of ARC: its text and its letter, in either of the two forms. */
static const char *arc_field(json_t *choices, int i, const char *name)
{
    if (json_is_array(choices))
        return text_at(json_array_get(choices, (size_t)i), name);
    return text_value(json_array_get(json_object_get(choices, name), (size_t)i));
}

static enum status parse_arc(const struct item_parser *p, struct error *err)
{
    json_t *question = json_object_get(p->object, "question");
    bool is_nested = json_is_object(question);
    json_t *choices = json_object_get(is_nested ? question : p->object, "choices");
    const char *stem = is_nested ? text_at(question, "stem") : text_value(question);
    const char *key = text_at(p->object, "answerKey");
    char *context, *ending;
    if (!stem || !key)
        return fail_item(p, "expected texts \"question\" (or its \"stem\") and \"answerKey\"", err);
    TRY(check_count(p, is_nested ? choices : json_object_get(choices, "text"), err));
    TRY(join(p, "Question: ", stem, "\nAnswer:", &context, err));
    p->item->answer = -1;
    for (int i = 0; i < p->item->n; i++) {
        const char *label = arc_field(choices, i, "label");
        TRY(copy_ending(p, arc_field(choices, i, "text"), &ending, err));
        p->item->endings[i] = ending;
        p->item->contexts[i] = context;
        if (label && strcmp(label, key) == 0)
            p->item->answer = i;
    }
    return STATUS_OK;
}

static enum status parse_winogrande(const struct item_parser *p, struct error *err)
{
    const char *sentence = text_at(p->object, "sentence");
    const char *blank = sentence ? strchr(sentence, '_') : NULL;
    const char *fills[2] = {text_at(p->object, "option1"), text_at(p->object, "option2")};
    char *before, *after, *context;
    if (!blank || !fills[0] || !fills[1])
        return fail_item(p, "expected a \"sentence\" with _, \"option1\" and \"option2\"", err);
    TRY(join(p, sentence, "", "", &before, err));
    before[blank - sentence] = 0;
    TRY(join(p, blank + 1, "", "", &after, err));
    after = strip(after);
    p->item->n = 2;
    for (int i = 0; i < 2; i++) {
        TRY(join(p, before, fills[i], "", &context, err));
        p->item->contexts[i] = context;
        p->item->endings[i] = after;
    }
    p->item->answer = index_of(json_object_get(p->object, "answer")) - 1;
    return STATUS_OK;
}

static enum status parse_item(struct item_parser *p, struct error *err)
{
    if (json_object_get(p->object, "endings")) {
        p->item->kind = CHOICE_HELLASWAG;
        TRY(parse_hellaswag(p, err));
    } else if (json_object_get(p->object, "question")) {
        p->item->kind = CHOICE_ARC;
        TRY(parse_arc(p, err));
    } else if (json_object_get(p->object, "sentence")) {
        p->item->kind = CHOICE_WINOGRANDE;
        TRY(parse_winogrande(p, err));
    } else {
        return fail_item(p,
                         "no item of HellaSwag (\"endings\"), ARC (\"question\") or WinoGrande "
                         "(\"sentence\")",
                         err);
    }
    for (int i = 0; i < p->item->n; i++)
        if (!p->item->endings[i][0])
            return fail_item(p, "a choice is empty", err);
    if (p->item->answer < 0 || p->item->answer >= p->item->n)
        return fail_item(p,
                         "the answer (\"label\", \"answerKey\" or \"answer\") names none of the "
                         "choices; a test set without answers cannot be scored",
                         err);
    return STATUS_OK;
}

static enum status next_item(struct choice_tasks *tasks, const char *path, struct error *err)
{
    if (tasks->n < tasks->size)
        return STATUS_OK;
    size_t size = tasks->size ? 2 * tasks->size : 256;
    struct choice_item *grown = memory_resize(tasks->items, size, sizeof *grown);
    if (!grown)
        return fail_memory(err, path, size * sizeof *grown);
    tasks->items = grown;
    tasks->size = size;
    return STATUS_OK;
}

static enum status read_items(struct choice_tasks *tasks, struct json_lines *lines,
                              struct error *err)
{
    for (json_t *object;;) {
        TRY(json_lines_next(lines, &object, err));
        if (!object)
            return STATUS_OK;
        enum status status = next_item(tasks, lines->path, err);
        if (status == STATUS_OK) {
            struct choice_item *item = &tasks->items[tasks->n++];
            *item = (struct choice_item){.line = lines->number};
            struct item_parser parser = {item, &tasks->texts, lines->path, object};
            status = parse_item(&parser, err);
        }
        json_decref(object);
        TRY(status);
    }
}

enum status choice_tasks_read(struct choice_tasks *tasks, const char *path, struct error *err)
{
    struct json_lines lines;
    enum status status = json_lines_open(&lines, path, err);
    if (status == STATUS_OK)
        status = read_items(tasks, &lines, err);
    json_lines_close(&lines);
    if (status == STATUS_OK && tasks->n == 0)
        return fail(err, STATUS_LIMIT, "%s: has no items; expected one JSON object a line", path);
    return status;
}

void choice_tasks_done(struct choice_tasks *tasks)
{
    memory_free(tasks->items);
    arena_done(&tasks->texts);
    *tasks = (struct choice_tasks){0};
}

const char *choice_kind_name(enum choice_kind kind)
{
    static const char *const names[] = {"HellaSwag", "ARC", "WinoGrande"};
    return names[kind];
}

void choice_score_add(struct choice_score *score, const struct choice_item *item,
                      const double *log_likelihoods)
{
    int best = 0, best_norm = 0;
    for (int i = 1; i < item->n; i++) {
        double bytes = (double)strlen(item->endings[i]);
        double best_bytes = (double)strlen(item->endings[best_norm]);
        if (log_likelihoods[i] > log_likelihoods[best])
            best = i;
        if (log_likelihoods[i] / bytes > log_likelihoods[best_norm] / best_bytes)
            best_norm = i;
    }
    score->n++;
    score->n_right += best == item->answer;
    score->n_right_norm += best_norm == item->answer;
}
