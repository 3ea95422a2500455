#include "measure/json_finite.h"

#include <math.h>

json_t *json_finite(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}
