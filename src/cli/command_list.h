/* One row per command, in the order of --help. */
COMMAND(inspect)
