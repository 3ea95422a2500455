/* Numbers in JSON, which has neither NaN nor infinities. */
#ifndef TRINE_MEASURE_JSON_FINITE_H
#define TRINE_MEASURE_JSON_FINITE_H

#include <jansson.h>

/* The number, or null for one that is not finite: not known. NULL when there is no memory. */
json_t *json_finite(double number);

#endif
