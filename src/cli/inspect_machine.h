/* The machine part of `trine inspect`. */
#ifndef TRINE_CLI_INSPECT_MACHINE_H
#define TRINE_CLI_INSPECT_MACHINE_H

#include <stdbool.h>

#include "base/error.h"

/* Prints what this process may use of the machine, where threads run by default, how fast they read
 * memory, which is measured for about a second, and what it counts. xml: a file of hwloc that tells of
 * another machine, of which neither is known; NULL: this one. is_json: as one JSON object.
 * errors  of topology_read, counters_open, team_layout_make, team_open and bandwidth_measure */
enum status inspect_machine(const char *xml, bool is_json, struct error *err);

#endif
