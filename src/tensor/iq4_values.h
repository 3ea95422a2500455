/* What the 4-bit codes of IQ4_NL and IQ4_XS stand for, ascending. */
#ifndef TRINE_TENSOR_IQ4_VALUES_H
#define TRINE_TENSOR_IQ4_VALUES_H

#include <stdint.h>

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

#endif
