/* The kernels of AMX a second time, on emulated tiles: linked before the library, they take the place
 * of the real ones. */
#if defined(__x86_64__)
#include "tiles_emulated.h"

#include "kernels/x86/matmul_amx.c"
#endif
