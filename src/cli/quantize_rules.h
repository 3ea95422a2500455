/* --tensor-type of `trine quantize`: types for tensors whose names match expressions. */
#ifndef TRINE_CLI_QUANTIZE_RULES_H
#define TRINE_CLI_QUANTIZE_RULES_H

#include "base/error.h"
#include "base/text.h"
#include "tensor/formats.h"

struct quantize_rules {
    struct quantize_rule *rules; /* owned */
    int n;
};

/* The type of a name as a user writes it, if it is one that can be written. what: the option, for
 * the message. errors: USAGE, with the list */
enum status quantize_find_type(const char *what, const char *name, enum format_id *type,
                               struct error *err);

/* Reads "REGEX=TYPE,REGEX=TYPE"; NULL is no rule. errors: USAGE, MEMORY */
enum status quantize_rules_open(struct quantize_rules *rules, const char *list, struct error *err);

/* The type of the first rule that matches somewhere in the name; N_FORMATS if none does. */
enum format_id quantize_rules_find(const struct quantize_rules *rules, struct text name);

/* Accepts a zeroed object. */
void quantize_rules_close(struct quantize_rules *rules);

#endif
