/* What `trine convert` says of a folder: which tensors became what, and why. */
#ifndef TRINE_CLI_CONVERT_REPORT_H
#define TRINE_CLI_CONVERT_REPORT_H

#include "convert/hf_tensors.h"
#include "convert/hf_tokenizer.h"

struct convert_report {
    const char *out;
    const struct hf_config *config;
    const struct hf_tensors *tensors;
    const enum format_id *formats; /* per tensor, as written */
    const struct hf_tokenizer *tokenizer;
    bool is_fitted;        /* types were chosen by what holds a matrix exactly */
    uint64_t bytes;        /* of the file */
    double largest_change; /* of a value that was rounded to another float type */
};

/* Prints it to standard error. */
void convert_report_print(const struct convert_report *report);

#endif
