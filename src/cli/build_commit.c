#include "cli/build_commit.h"

/* The Makefile says both, and compiles this file again whenever they change. */
#ifndef TRINE_COMMIT
#define TRINE_COMMIT "unknown"
#endif
#ifndef TRINE_BUILD_NUMBER
#define TRINE_BUILD_NUMBER 0
#endif

const char *build_commit(void)
{
    return TRINE_COMMIT;
}

int build_number(void)
{
    return TRINE_BUILD_NUMBER;
}
