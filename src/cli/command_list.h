/* One row per command, in the order of --help. */
COMMAND(run)
COMMAND(logits)
COMMAND(trace)
COMMAND(inspect)
COMMAND(quantize)
COMMAND(synth)
COMMAND(bench)
