/* How every matrix of a model is best packed: the first time that its weights are read, by all threads. */
#ifndef TRINE_ENGINE_PACKING_SCAN_H
#define TRINE_ENGINE_PACKING_SCAN_H

#include "machine/thread_team.h"
#include "model/model_load.h"
#include "tensor/packings.h"

/* Of a layer, in the order of the list; then the output matrix. */
enum matrix {
    MATRIX_Q,
    MATRIX_K,
    MATRIX_V,
    MATRIX_O,
    MATRIX_GATE,
    MATRIX_UP,
    MATRIX_DOWN,
    N_MATRICES
};

static inline int packing_scan_count(const struct model_config *c)
{
    return N_MATRICES * c->n_layer + 1;
}

/* best: (packing_scan_count), as packing_choose says for each; with_output: the last one, too. team: NULL:
 * the caller alone. The same for any number of threads.
 * errors  MEMORY */
enum status packing_scan(struct packing_choice *best, const struct model *model, bool with_output,
                         bool allow_trits5, struct thread_team *team, struct error *err);

#endif
