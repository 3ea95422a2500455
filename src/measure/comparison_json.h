/* The record of a comparison as JSON. */
#ifndef TRINE_MEASURE_COMPARISON_JSON_H
#define TRINE_MEASURE_COMPARISON_JSON_H

#include "measure/comparison.h"

/* Writes the record; the file is replaced as a whole, so it is valid at any time.
 * errors  IO, MEMORY */
enum status comparison_write(const struct comparison *c, const char *path, struct error *err);

/* Reads a record. The caller calls comparison_done, also after a failure.
 * errors  IO; FORMAT: no record, with the first thing that is wrong and where; LIMIT, MEMORY */
enum status comparison_read(struct comparison *c, const char *path, struct error *err);

/* What the analysis found, as a new object; NULL without memory. */
json_t *comparison_analysis_json(const struct comparison *c, const struct comparison_analysis *a);

#endif
