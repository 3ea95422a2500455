/* Multiple-choice items, answered by whichever ending a model finds most likely. Three kinds, told
 * apart line by line by their names:
 *
 *   HellaSwag   {"ctx": T or "ctx_a": T, "ctx_b": T; "endings": [T, ...], "label": N}; an
 *               "activity_label" stands before the context
 *   ARC         {"question": T, "choices": {"text": [T, ...], "label": [T, ...]}, "answerKey": T}
 *               or {"question": {"stem": T, "choices": [{"text": T, "label": T}, ...]},
 *               "answerKey": T}
 *   WinoGrande  {"sentence": T with _, "option1": T, "option2": T, "answer": "1" or "2"}: each
 *               option is put in the blank, and the text after it is scored
 *
 * Texts are prepared as lm-evaluation-harness does, zero-shot. */
#ifndef TRINE_MEASURE_CHOICE_TASKS_H
#define TRINE_MEASURE_CHOICE_TASKS_H

#include "base/memory.h"
#include "measure/mean.h"

enum choice_kind { CHOICE_HELLASWAG, CHOICE_ARC, CHOICE_WINOGRANDE, N_CHOICE_KINDS };

#define MAX_CHOICES 26

/* The model reads a context, a space and an ending; the likelihood of space and ending counts. An
 * empty context is the token for the beginning of text. */
struct choice_item {
    enum choice_kind kind;
    int n, answer; /* choices; index of the right one */
    long line;
    const char *contexts[MAX_CHOICES], *endings[MAX_CHOICES]; /* owned: arena of the list */
};

/* A zeroed list is empty. */
struct choice_tasks {
    struct choice_item *items; /* owned */
    size_t n, size;
    struct arena texts;
};

/* errors: IO; FORMAT with the number of a line that is none of the three; LIMIT without items;
 * MEMORY */
enum status choice_tasks_read(struct choice_tasks *tasks, const char *path, struct error *err);
void choice_tasks_done(struct choice_tasks *tasks);

const char *choice_kind_name(enum choice_kind kind);

/* Items answered, and how many rightly: by the likelihood of the ending, and by that divided by the
 * bytes of the ending without the space. Of equals the first is taken. */
struct choice_score {
    int64_t n, n_right, n_right_norm;
};

/* log_likelihoods: (item->n) */
void choice_score_add(struct choice_score *score, const struct choice_item *item,
                      const double *log_likelihoods);

#endif
