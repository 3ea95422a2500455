/* The option --i2s-layout: which of its byte orders I2_S has in a file, which does not tell. */
#ifndef TRINE_CLI_I2S_LAYOUT_H
#define TRINE_CLI_I2S_LAYOUT_H

#include "cli/options.h"
#include "tensor/formats.h"

/* The row of a table, for the int at `offset` of the command's options; 0: not given. */
#define I2S_LAYOUT_OPTION(offset)                                                                  \
    {                                                                                              \
        "--i2s-layout", "published|arm|4row", NULL,                                                \
            "byte order of I2_S tensors, of which a file does not tell: that of the published "    \
            "files (if not given), of bitnet.cpp's quantiser on ARM, or of four rows together",    \
            OPT_CHOICE, offset, 1, 0                                                               \
    }

/* How the types of a file are read then, for gguf_open and model_open_by. */
span_rule *i2s_layout_rule(int layout);

#endif
