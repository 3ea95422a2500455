/* The sources that this program was built from. */
#ifndef TRINE_CLI_BUILD_COMMIT_H
#define TRINE_CLI_BUILD_COMMIT_H

/* "1a2b3c4", with "-dirty" behind it when files that git knows were changed; "unknown" outside git. */
const char *build_commit(void);

/* Commits up to that one; 0 when it is unknown. */
int build_number(void);

#endif
