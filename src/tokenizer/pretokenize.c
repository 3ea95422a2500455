#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenize.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

#define MAX_STAGES 4

/* The inside of a class of Unicode White_Space. Not \s, which in PCRE2 also holds U+180E. */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define SPACES_NOT_BEFORE_TEXT "[" SPACE "]+(?![^" SPACE "])"

/* Any case, but of ASCII only. */
#define CONTRACTIONS           "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"

/* The family of Llama 3: how letters and digits gather differs. */
#define LLAMA_LIKE(letters, digits)                                                                \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[" letters "]+|" digits "| ?[^" SPACE letters             \
                 "\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" SPACES_NOT_BEFORE_TEXT "|[" SPACE "]+"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE                                       \
    "\\p{L}\\p{N}]+|" SPACES_NOT_BEFORE_TEXT

#define THREE_DIGITS "[0-9][0-9][0-9]"

enum { SET_LLAMA3, SET_QWEN2, SET_QWEN35, SET_GPT2, SET_SMOLLM, SET_FALCON, SET_DEFAULT, N_SETS };

/* Each expression cuts the pieces that the one before it left. */
static const char *const sets[N_SETS][MAX_STAGES] = {
    [SET_LLAMA3] = {LLAMA_LIKE("\\p{L}", "\\p{N}{1,3}")},
    [SET_QWEN2] = {LLAMA_LIKE("\\p{L}", "\\p{N}")},
    [SET_QWEN35] = {LLAMA_LIKE("\\p{L}\\p{M}", "\\p{N}")},
    [SET_GPT2] = {GPT2},
    [SET_SMOLLM] = {"\\p{N}", GPT2},
    [SET_FALCON] = {"[\\p{P}$+<=>^~|`]+", GPT2, THREE_DIGITS},
    [SET_DEFAULT] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", THREE_DIGITS},
};

static const struct pretokenizer_row rows[] = {
    {"llama-bpe", SET_LLAMA3, true, true},   {"llama3", SET_LLAMA3, true, true},
    {"llama-v3", SET_LLAMA3, true, true},    {"falcon3", SET_LLAMA3, true, true},
    {"falcon-h1", SET_LLAMA3, true, true},   {"pixtral", SET_LLAMA3, true, true},
    {"qwen2", SET_QWEN2, false, false},      {"deepseek-r1-qwen", SET_QWEN2, false, false},
    {"megrez", SET_QWEN2, false, false},     {"stablelm2", SET_QWEN2, false, false},
    {"qwen35", SET_QWEN35, false, false},    {"gpt-2", SET_GPT2, false, false},
    {"phi-2", SET_GPT2, false, false},       {"olmo", SET_GPT2, false, false},
    {"mpt", SET_GPT2, false, false},         {"smollm", SET_SMOLLM, false, false},
    {"starcoder", SET_SMOLLM, false, false}, {"refact", SET_SMOLLM, false, false},
    {"command-r", SET_SMOLLM, false, false}, {"codeshell", SET_SMOLLM, false, false},
    {"falcon", SET_FALCON, false, false},    {"default", SET_DEFAULT, false, false},
};

struct pretokenizer {
    pcre2_general_context *memory;  /* owned */
    pcre2_code *stages[MAX_STAGES]; /* owned */
    int n_stages;
};

struct splitter {
    const struct pretokenizer *pre; /* borrowed */
    pcre2_match_data *match;        /* owned */
    pcre2_match_context *context;   /* owned */
    piece_visit *visit;
    void *user; /* borrowed */
};

const struct pretokenizer_row *pretokenizer_find(struct text name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (text_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}

void pretokenizer_names(char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", rows[i].name);
}

static void *pcre_alloc(size_t bytes, void *unused)
{
    (void)unused;
    return memory_alloc(bytes, 1);
}

static void pcre_free(void *block, void *unused)
{
    (void)unused;
    memory_free(block);
}

static enum status compile(struct pretokenizer *pre, const char *expression, struct error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(pre->memory);
    if (!context)
        return fail_memory(err, "pre-tokenizer", strlen(expression));
    int problem;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                     &problem, &offset, context);
    pcre2_compile_context_free(context);
    if (!code && problem == PCRE2_ERROR_HEAP_FAILED)
        return fail_memory(err, "pre-tokenizer", strlen(expression));
    if (!code)
        return fail(err, STATUS_UNSUPPORTED,
                    "pre-tokenizer: this PCRE2 library rejects '%s' (error %d at %zu); install "
                    "PCRE2 10.30 or newer with Unicode",
                    expression, problem, offset);
    /* without a JIT compiler pcre2_match interprets: slower, same result */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pre->stages[pre->n_stages++] = code;
    return STATUS_OK;
}

enum status pretokenizer_open(struct pretokenizer **pre, const struct pretokenizer_row *row,
                              struct error *err)
{
    *pre = memory_alloc(1, sizeof **pre);
    if (!*pre)
        return fail_memory(err, "pre-tokenizer", sizeof **pre);
    (*pre)->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    enum status status = (*pre)->memory ? STATUS_OK : fail_memory(err, "pre-tokenizer", 64);
    for (int i = 0; i < MAX_STAGES && sets[row->set][i] && status == STATUS_OK; i++)
        status = compile(*pre, sets[row->set][i], err);
    if (status != STATUS_OK) {
        pretokenizer_close(*pre);
        *pre = NULL;
    }
    return status;
}

void pretokenizer_close(struct pretokenizer *pre)
{
    if (!pre)
        return;
    for (int i = 0; i < pre->n_stages; i++)
        pcre2_code_free(pre->stages[i]);
    pcre2_general_context_free(pre->memory);
    memory_free(pre);
}

enum status splitter_open(struct splitter **splitter, const struct pretokenizer *pre,
                          piece_visit *visit, void *user, struct error *err)
{
    struct splitter *s = memory_alloc(1, sizeof *s);
    *splitter = NULL;
    if (!s)
        return fail_memory(err, "pre-tokenizer", sizeof *s);
    *s = (struct splitter){.pre = pre, .visit = visit, .user = user};
    s->match = pcre2_match_data_create(1, pre->memory);
    s->context = pcre2_match_context_create(pre->memory);
    if (!s->match || !s->context) {
        splitter_close(s);
        return fail_memory(err, "pre-tokenizer", sizeof *s);
    }
    /* Long runs of spaces are backtracked byte by byte; the work is linear, so no limit applies. */
    pcre2_set_match_limit(s->context, UINT32_MAX);
    pcre2_set_depth_limit(s->context, UINT32_MAX);
    pcre2_set_heap_limit(s->context, UINT32_MAX);
    *splitter = s;
    return STATUS_OK;
}

void splitter_close(struct splitter *splitter)
{
    if (!splitter)
        return;
    pcre2_match_data_free(splitter->match);
    pcre2_match_context_free(splitter->context);
    memory_free(splitter);
}

/* Finds the next match at or after `at`; *found is false when there is none. */
static enum status find(struct splitter *s, int stage, struct text piece, size_t at, bool *found,
                        struct error *err)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)piece.bytes;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int result =
        pcre2_match(s->pre->stages[stage], subject, piece.n, at, options, s->match, s->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
        result = pcre2_match(s->pre->stages[stage], subject, piece.n, at, options | PCRE2_NO_JIT,
                             s->match, s->context);
    *found = result > 0;
    if (result > 0 || result == PCRE2_ERROR_NOMATCH)
        return STATUS_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return fail_memory(err, "pre-tokenizer", piece.n);
    return fail(err, STATUS_LIMIT,
                "pre-tokenizer: PCRE2 gave up on a piece of %zu bytes (error %d); split the text",
                piece.n, result);
}

static enum status cut_stage(struct splitter *s, int stage, struct text piece, struct error *err);

static enum status pass_on(struct splitter *s, int stage, const char *bytes, size_t n,
                           struct error *err)
{
    return n ? cut_stage(s, stage + 1, (struct text){bytes, n}, err) : STATUS_OK;
}

/* Passes matches, and what lies between them, to the next stage. */
static enum status cut_stage(struct splitter *s, int stage, struct text piece, struct error *err)
{
    if (stage == s->pre->n_stages)
        return s->visit(s->user, piece, err);
    size_t at = 0;
    while (at < piece.n) {
        bool found;
        TRY(find(s, stage, piece, at, &found, err));
        if (!found)
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
        size_t begin = range[0], end = range[1];
        TRY(pass_on(s, stage, piece.bytes + at, begin - at, err));
        TRY(pass_on(s, stage, piece.bytes + begin, end - begin, err));
        at = end; /* no expression matches nothing, so this always advances */
    }
    return pass_on(s, stage, piece.bytes + at, piece.n - at, err);
}

/* Length of the run of valid (or invalid) UTF-8 at the beginning. */
static size_t run_length(struct text text, bool is_valid)
{
    size_t n = 0;
    while (n < text.n) {
        int length = utf8_decode(text.bytes + n, text.n - n, NULL);
        if ((length > 0) != is_valid)
            break;
        n += length ? (size_t)length : 1;
    }
    return n;
}

enum status splitter_cut(struct splitter *s, struct text text, struct error *err)
{
    for (bool is_valid = true; text.n; is_valid = !is_valid) {
        size_t n = run_length(text, is_valid);
        struct text run = {text.bytes, n};
        if (n)
            TRY(is_valid ? cut_stage(s, 0, run, err) : s->visit(s->user, run, err));
        text.bytes += n;
        text.n -= n;
    }
    return STATUS_OK;
}
