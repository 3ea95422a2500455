/* The tile instructions of AMX, by the numbers of registers: literals 0 to 7. Eight registers hold up
 * to 16 rows of 64 bytes each, as configured. Written as assembly, because intrinsics of some compilers
 * don't say that a load reads memory.
 * tests/kernels/tiles_emulated.h puts functions in their place.
 * source  Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18 */
#ifndef TRINE_KERNELS_X86_TILES_AMX_H
#define TRINE_KERNELS_X86_TILES_AMX_H

#include <assert.h>
#include <stdint.h>

/* Register t has rows[t] rows of colsb[t] bytes; those that aren't used 0 of 0. */
struct tile_config {
    uint8_t palette; /* 1 */
    uint8_t start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};
static_assert(sizeof(struct tile_config) == 64, "as LDTILECFG reads it");

#ifndef TILES_EMULATED
/* Sets the shapes of all registers, and their contents to zero. */
#define tile_configure(config)      __asm__ volatile("ldtilecfg %0" : : "m"(*(config)))
/* Registers have no shape any more: a context switch need not save them. */
#define tile_release()              __asm__ volatile("tilerelease")
#define tile_zero(t)                TILE_ASM_ZERO(t)
/* Rows from `base` on, `stride` bytes apart. */
#define tile_load(t, base, stride)  TILE_ASM_LOAD(t, base, stride)
#define tile_store(t, base, stride) TILE_ASM_STORE(t, base, stride)
/* Dwords of sum: sum[m][n] += over k, j of a[m][4 k + j] * b[k][4 n + j]; bytes of a are signed, those
 * of b unsigned or signed. */
#define tile_add_su(sum, a, b)      TILE_ASM_ADD("tdpbsud", sum, a, b)
#define tile_add_ss(sum, a, b)      TILE_ASM_ADD("tdpbssd", sum, a, b)

/* Once more, so that a name for a number becomes the number before it becomes text. */
#define TILE_ASM_ZERO(t)            __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_ASM_LOAD(t, base, stride)                                                             \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                               \
                     :                                                                             \
                     : "r"(base), "r"((int64_t)(stride))                                           \
                     : "memory")
#define TILE_ASM_STORE(t, base, stride)                                                            \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"(base), "r"((int64_t)(stride))                                           \
                     : "memory")
#define TILE_ASM_ADD(name, sum, a, b)                                                              \
    __asm__ volatile(name " %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)
#endif

#endif
