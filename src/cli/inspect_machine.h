/* The machine part of `trine inspect`. */
#ifndef TRINE_CLI_INSPECT_MACHINE_H
#define TRINE_CLI_INSPECT_MACHINE_H

#include <stdbool.h>

#include "base/error.h"

/* Prints what this process may use of the machine, where threads run by default, and how fast they
 * read memory, which is measured for about a second. is_json: as one JSON object.
 * errors  of topology_read, team_layout_make, team_open and bandwidth_measure */
enum status inspect_machine(bool is_json, struct error *err);

#endif
