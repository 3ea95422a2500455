/* Which format a type id of a GGUF file means. Most ids mean one; some mean different layouts in
 * different programs, and nothing in the file says which program wrote it. But the places of the
 * tensors do: a writer puts each tensor at the next multiple of the alignment behind the one
 * before, so only the true layout has the right size for all of them. */
#include "tensor/formats.h"

#include <assert.h>
#include <stdio.h>

/* How one reading of an ambiguous id was chosen. */
enum choice { ONLY_FIT, LAST_FITS, CURRENT_MEANING, N_CHOICES };

/* One meaning of an ambiguous id. */
struct reading {
    uint32_t type_id;
    enum format_id format; /* N_FORMATS: not supported; the geometry below tells it apart */
    int block, block_bytes, row_prefix, tail; /* block 0: geometry not known, never chosen */
    bool is_current;  /* the id's meaning in current llama.cpp: taken when sizes do not decide */
    const char *name; /* with the program, for messages */
    const char *reasons[N_CHOICES];
};

#define REASONS(what)                                                                              \
    {                                                                                              \
        [ONLY_FIT] = what ": only this meaning of the id fits the places of all its tensors",      \
        [LAST_FITS] = what ": only with this meaning the last tensor ends where the file ends",    \
        [CURRENT_MEANING] = what ": another meaning fits as well; this is the current one",        \
    }

/* clang-format off */
static const struct reading readings[] = {
    {41, FORMAT_Q1_0, .is_current = true, .name = "Q1_0 (llama.cpp, 18 bytes per 128 weights)",
     .reasons = REASONS("type id 41 read as Q1_0 of llama.cpp")},
    {41, N_FORMATS, 4, 1, 0, 32, .name = "TL1 (bitnet.cpp forks)"},
    {42, FORMAT_Q2_0, .is_current = true, .name = "Q2_0 (llama.cpp, 18 bytes per 64 weights)",
     .reasons = REASONS("type id 42 read as Q2_0 with 64 weights a block")},
    {42, FORMAT_Q2_0_G128, .name = "Q2_0 of older Prism files (34 bytes per 128 weights)",
     .reasons = REASONS("type id 42 read as the older Q2_0 with 128 weights a block, now PQ2_0")},
    {42, N_FORMATS, .name = "TL2 (bitnet.cpp forks)"},
    {142, FORMAT_PQ2_0, .name = "PQ2_0 (Prism, 34 bytes per 128 weights)",
     .reasons = REASONS("type id 142 read as PQ2_0 of Prism")},
    {142, N_FORMATS, .name = "IQ2_TN (ik_llama.cpp, deprecated)"},
    {143, FORMAT_PTQ1_0, .name = "PTQ1_0 (Prism, 28 bytes per 128 weights)",
     .reasons = REASONS("type id 143 read as PTQ1_0 of Prism")},
    {143, N_FORMATS, .name = "IQ1_TN (ik_llama.cpp, deprecated)"},
    {144, FORMAT_TQ2_T, .name = "TQ2_T (Agention, 34 bytes per 128 weights)",
     .reasons = REASONS("type id 144 read as TQ2_T of Agention")},
    {144, N_FORMATS, 256, 136, 4, 0, .name = "IQ4_KS (ik_llama.cpp)"},
    {145, FORMAT_TQK6, .name = "TQK6 (Agention, 26 bytes per 128 weights)",
     .reasons = REASONS("type id 145 read as TQK6 of Agention")},
    {145, N_FORMATS, 256, 70, 2, 0, .name = "IQ2_KS (ik_llama.cpp)"},
    {146, FORMAT_TQK7, .name = "TQK7 (Agention, 30 bytes per 128 weights)",
     .reasons = REASONS("type id 146 read as TQK7 of Agention")},
    {146, N_FORMATS, 256, 128, 4, 0, .name = "IQ4_KSS (ik_llama.cpp)"},
};

#define TILES "whose byte order depends on tile sizes that the file does not store"
#define REPACKED "a repacked type that llama.cpp has removed"

/* Ids whose meaning is known and not supported. */
static const struct { uint32_t type_id; const char *name; } refused[] = {
    {4, "Q4_2, removed from llama.cpp"}, {5, "Q4_3, removed from llama.cpp"},
    {9, "Q8_1, a type of activations"}, {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"}, {25, "I16"}, {26, "I32"},
    {27, "I64"}, {28, "F64"}, {29, "IQ1_M"}, {31, "Q4_0_4_4, " REPACKED},
    {32, "Q4_0_4_8, " REPACKED}, {33, "Q4_0_8_8, " REPACKED},
    {37, "I8_S of bitnet.cpp or " REPACKED}, {38, "TL1 of bitnet.cpp, " TILES ", or " REPACKED},
    {39, "MXFP4 of llama.cpp, or TL2 of bitnet.cpp, " TILES}, {40, "NVFP4"},
    {133, "Q6_0 of ik_llama.cpp"}, {137, "IQ2_K of ik_llama.cpp"},
    {138, "IQ3_K of ik_llama.cpp"}, {139, "IQ4_K of ik_llama.cpp"},
    {140, "IQ5_K of ik_llama.cpp"}, {141, "IQ6_K of ik_llama.cpp"},
    {152, "IQ5_KS of ik_llama.cpp"}, {153, "IQ2_KT of ik_llama.cpp"},
    {154, "IQ3_KT of ik_llama.cpp"}, {155, "IQ4_KT of ik_llama.cpp"},
    {156, "IQ3_KS of ik_llama.cpp"}, {157, "IQ2_KL of ik_llama.cpp"},
    {158, "IQ1_KT of ik_llama.cpp"},
};
/* clang-format on */

enum {
    N_READINGS = sizeof readings / sizeof *readings,
    N_REFUSED = sizeof refused / sizeof *refused
};

#define LOW_BIT                                                                                    \
    "TQ1_0, TQ2_0, I2_S, Q1_0, Q2_0, PQ2_0, PTQ1_0, IQ1_BN, IQ2_BN, TQ2_T, TQK6 and TQK7"

#define NOT_TOLD "; the file does not say which of three orders its writer used"

/* What is said of I2_S as a byte order; NULL for another format. */
static const char *i2_s_reason(enum format_id order)
{
    switch (order) {
    case FORMAT_I2_S:
        return "type id 36 read as I2_S in the byte order of the published files (32 bytes hold "
               "128 weights of a row)" NOT_TOLD " (--i2s-layout chooses)";
    case FORMAT_I2_S_ARM:
        return "type id 36 read as I2_S in the byte order of ARM builds (16 bytes hold 64 weights "
               "of a row), as --i2s-layout says" NOT_TOLD;
    case FORMAT_I2_S_4ROW:
        return "type id 36 read as I2_S with four rows together (a byte holds one column of "
               "them), as --i2s-layout says" NOT_TOLD;
    default: return NULL;
    }
}

const char *format_decision(enum format_id id)
{
    if (i2_s_reason(id))
        return i2_s_reason(id);
    for (int i = 0; i < N_READINGS; i++)
        if (readings[i].format == id)
            return readings[i].reasons[ONLY_FIT];
    return NULL;
}

static bool is_ambiguous(uint32_t type_id)
{
    for (int i = 0; i < N_READINGS; i++)
        if (readings[i].type_id == type_id)
            return true;
    return false;
}

/* ne[1] * ne[2] * ne[3]; false when it overflows. */
static bool count_rows(const struct tensor_span *s, uint64_t *n_rows)
{
    return !__builtin_mul_overflow(s->ne[1], s->ne[2], n_rows) &&
           !__builtin_mul_overflow(*n_rows, s->ne[3], n_rows);
}

/* Size of the tensor under a reading; false when it cannot have that layout. */
static bool reading_bytes(const struct reading *r, const struct tensor_span *s, uint64_t *bytes)
{
    uint64_t n_rows;
    if (!count_rows(s, &n_rows))
        return false;
    if (r->format != N_FORMATS)
        return format_bytes(r->format, n_rows, s->ne[0], "", bytes, NULL) == STATUS_OK;
    if (!r->block || s->ne[0] % r->block)
        return false;
    return !__builtin_mul_overflow(s->ne[0] / r->block, (uint64_t)r->block_bytes, bytes) &&
           !__builtin_add_overflow(*bytes, (uint64_t)r->row_prefix, bytes) &&
           !__builtin_mul_overflow(*bytes, n_rows, bytes) &&
           !__builtin_add_overflow(*bytes, (uint64_t)r->tail, bytes);
}

/* What to ask of the last tensor of a file, behind which anything may follow: nothing (the file may
 * be cut short), that it fits, or, as of all others, that less than one unit of alignment remains.
 */
enum ending { ENDING_ANY, ENDING_FITS, ENDING_EXACT };

static bool reading_fits(const struct reading *r, const struct tensor_span *s, enum ending ending)
{
    uint64_t bytes;
    if (!reading_bytes(r, s, &bytes))
        return false;
    if (s->is_last && ending == ENDING_ANY)
        return true;
    return bytes <= s->room &&
           (s->room - bytes < s->alignment || (s->is_last && ending == ENDING_FITS));
}

static bool reading_fits_all(const struct reading *r, const struct tensor_span *spans, size_t n,
                             enum ending ending)
{
    for (size_t i = 0; i < n; i++)
        if (spans[i].type_id == r->type_id && !reading_fits(r, &spans[i], ending))
            return false;
    return true;
}

/* Readings of type_id that fit all tensors: their number, and the first in *found. */
static int count_fits(uint32_t type_id, const struct tensor_span *spans, size_t n,
                      enum ending ending, const struct reading **found)
{
    int count = 0;
    for (int i = N_READINGS - 1; i >= 0; i--)
        if (readings[i].type_id == type_id && reading_fits_all(&readings[i], spans, n, ending)) {
            *found = &readings[i];
            count++;
        }
    return count;
}

/* The tensor that no reading fits; the first of its id where each fits one but none fits all. */
static const struct tensor_span *find_misfit(uint32_t type_id, const struct tensor_span *spans,
                                             size_t n)
{
    const struct tensor_span *misfit = NULL;
    const struct reading *found;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].type_id != type_id)
            continue;
        if (!misfit)
            misfit = &spans[i];
        if (!count_fits(type_id, &spans[i], 1, ENDING_FITS, &found))
            return &spans[i];
    }
    return misfit;
}

static enum status fail_undecided(uint32_t type_id, const struct tensor_span *spans, size_t n,
                                  const char *problem, const char *file, struct error *err)
{
    const char *names[3] = {NULL};
    int count = 0;
    for (int i = 0; i < N_READINGS; i++)
        if (readings[i].type_id == type_id)
            names[count++] = readings[i].name;
    assert(count == 2 || count == 3);
    const struct tensor_span *s = find_misfit(type_id, spans, n);
    return fail(err, STATUS_UNSUPPORTED,
                "%s: tensor '%.*s' has type id %u: %s, %s%s%s; its %llu weights a row and %llu "
                "bytes up to the next tensor fit %s; get a newer file of the model",
                file, TEXT(s->name), type_id, names[0], names[1], names[2] ? ", " : "",
                names[2] ? names[2] : "", (unsigned long long)s->ne[0], (unsigned long long)s->room,
                problem);
}

/* The reading of one ambiguous id. A tie goes to the one that leaves nothing over behind the last
 * tensor, then to the current meaning. */
static enum status decide(uint32_t type_id, const struct tensor_span *spans, size_t n,
                          const char *file, const struct reading **chosen, enum choice *choice,
                          struct error *err)
{
    const struct reading *exact = NULL;
    int n_fits = count_fits(type_id, spans, n, ENDING_FITS, chosen);
    if (n_fits == 0)
        n_fits = count_fits(type_id, spans, n, ENDING_ANY, chosen);
    if (n_fits == 0)
        return fail_undecided(type_id, spans, n, "none that is supported here", file, err);
    *choice = ONLY_FIT;
    if (n_fits == 1)
        return STATUS_OK;
    int n_exact = count_fits(type_id, spans, n, ENDING_EXACT, &exact);
    *chosen = exact ? exact : *chosen;
    *choice = n_exact == 1 ? LAST_FITS : CURRENT_MEANING;
    if (n_exact == 1 || (*chosen)->is_current)
        return STATUS_OK;
    return fail_undecided(type_id, spans, n, "more than one of these", file, err);
}

static enum status fail_unknown(const struct tensor_span *s, const char *file, struct error *err)
{
    for (int i = 0; i < N_REFUSED; i++)
        if (refused[i].type_id == s->type_id)
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: tensor '%.*s' has type id %u: %s; not supported here, convert from "
                        "another file of the model",
                        file, TEXT(s->name), s->type_id, refused[i].name);
    return fail(err, STATUS_UNSUPPORTED,
                "%s: tensor '%.*s' has type id %u, which is not known here; the low-bit types read "
                "here are " LOW_BIT,
                file, TEXT(s->name), s->type_id);
}

/* Format and reason of an id with one meaning, but for the byte order of I2_S. */
static enum status look_up(struct tensor_span *s, enum format_id i2_s, const char *file,
                           struct error *err)
{
    for (int id = 0; id < N_FORMATS; id++)
        if (format_of((enum format_id)id)->type_id == s->type_id) {
            s->format = id == FORMAT_I2_S ? (int)i2_s : id;
            s->reason = i2_s_reason((enum format_id)s->format);
            return STATUS_OK;
        }
    return fail_unknown(s, file, err);
}

/* Bytes of a span whose format is known, and what the format asks of its shape. */
static enum status size_span(struct tensor_span *s, const char *file, struct error *err)
{
    char what[512];
    const struct format *f = format_of((enum format_id)s->format);
    uint64_t n_rows;
    snprintf(what, sizeof what, "%.250s: tensor '%.*s'", file, TEXT(s->name));
    if (!count_rows(s, &n_rows))
        return fail(err, STATUS_FORMAT, "%s: the number of its rows overflows", what);
    if (f->tensor_tail && n_rows != s->ne[1])
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: %s has one scale for the whole tensor and only two dimensions; this one "
                    "has %llu matrices",
                    what, f->name, (unsigned long long)(n_rows / s->ne[1]));
    if (s->ne[1] % f->row_group)
        return fail(err, STATUS_FORMAT, "%s: %llu rows; %s needs a multiple of %d; use another %s",
                    what, (unsigned long long)s->ne[1], f->name, f->row_group,
                    s->format == FORMAT_I2_S_4ROW ? "--i2s-layout" : "type");
    return format_bytes((enum format_id)s->format, n_rows, s->ne[0], what, &s->bytes, err);
}

static enum status resolve(struct tensor_span *spans, size_t n, enum format_id i2_s,
                           const char *file, struct error *err)
{
    const struct reading *known[N_READINGS] = {NULL}; /* by index of the first reading of the id */
    enum choice choices[N_READINGS] = {ONLY_FIT};
    for (size_t i = 0; i < n; i++) {
        struct tensor_span *s = &spans[i];
        int k = 0;
        if (!is_ambiguous(s->type_id)) {
            TRY(look_up(s, i2_s, file, err));
            TRY(size_span(s, file, err));
            continue;
        }
        while (readings[k].type_id != s->type_id)
            k++;
        if (!known[k])
            TRY(decide(s->type_id, spans, n, file, &known[k], &choices[k], err));
        if (known[k]->format == N_FORMATS)
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: tensor '%.*s' has type id %u: by the sizes of its tensors this is %s, "
                        "not supported here; convert from another file of the model",
                        file, TEXT(s->name), s->type_id, known[k]->name);
        s->format = known[k]->format;
        s->reason = known[k]->reasons[choices[k]];
        TRY(size_span(s, file, err));
    }
    return STATUS_OK;
}

enum status format_resolve(struct tensor_span *spans, size_t n, const char *file, struct error *err)
{
    return resolve(spans, n, FORMAT_I2_S, file, err);
}

/* In a byte order that the user chose, which would have no effect on a file without I2_S. */
static enum status resolve_chosen(struct tensor_span *spans, size_t n, enum format_id i2_s,
                                  const char *file, struct error *err)
{
    for (size_t i = 0; i < n; i++)
        if (spans[i].type_id == format_of(FORMAT_I2_S)->type_id)
            return resolve(spans, n, i2_s, file, err);
    return fail(err, STATUS_USAGE,
                "%s: none of its tensors is I2_S (type id 36), so --i2s-layout has no effect; "
                "leave it out",
                file);
}

enum status format_resolve_i2_s_published(struct tensor_span *spans, size_t n, const char *file,
                                          struct error *err)
{
    return resolve_chosen(spans, n, FORMAT_I2_S, file, err);
}

enum status format_resolve_i2_s_arm(struct tensor_span *spans, size_t n, const char *file,
                                    struct error *err)
{
    return resolve_chosen(spans, n, FORMAT_I2_S_ARM, file, err);
}

enum status format_resolve_i2_s_4row(struct tensor_span *spans, size_t n, const char *file,
                                     struct error *err)
{
    return resolve_chosen(spans, n, FORMAT_I2_S_4ROW, file, err);
}
