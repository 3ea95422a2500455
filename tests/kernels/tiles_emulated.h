/* The tile instructions in software, for kernels of AMX on machines without it: what the processor
 * would fault on, and shapes that don't fit each other, end the kernel with a message. */
#ifndef TRINE_TESTS_KERNELS_TILES_EMULATED_H
#define TRINE_TESTS_KERNELS_TILES_EMULATED_H

#include <setjmp.h>
#include <stdbool.h>

#define TILES_EMULATED
#include "kernels/x86/tiles_amx.h"

void tile_configure(const struct tile_config *config);
void tile_release(void);
void tile_zero(int t);
void tile_load(int t, const void *base, int64_t stride);
void tile_store(int t, void *base, int64_t stride);
void tile_add_su(int sum, int a, int b);
void tile_add_ss(int sum, int a, int b);

/* Tiles are configured: a kernel has not released them. */
bool tiles_are_in_use(void);

/* Instructions so far that multiplied. */
int64_t tiles_n_products(void);

/* What was wrong last. Then the emulation jumps to *tiles_escape; without one it prints the message and
 * raises SIGILL, as the processor would. */
extern char tiles_problem[160];
extern jmp_buf *tiles_escape;

#endif
