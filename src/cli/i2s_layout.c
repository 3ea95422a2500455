#include "cli/i2s_layout.h"

span_rule *i2s_layout_rule(int layout)
{
    static span_rule *const rules[] = {format_resolve, format_resolve_i2_s_published,
                                       format_resolve_i2_s_arm, format_resolve_i2_s_4row};
    return rules[layout];
}
