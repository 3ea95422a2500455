/* Many tokens on the tile registers of AMX: every packing of integers. As many tiles of weights as half of
 * L2 holds are unpacked to one byte per code by what unpacks the panels of AVX-512; 64 bytes of codes
 * are a row of a register (16 outputs by 4 inputs), 16 of them 64 inputs in order. Then all blocks of
 * 16 tokens pass over them, two at a time, two tiles at a time: four registers of sums, two of
 * activations as they lie in memory, two of codes.
 *
 * K packings have a scale for every 16 or 32 inputs: codes are multiplied by them as they are unpacked,
 * into 16 bits, of which low and high bytes are codes of their own (q2_k, q3_k: one byte is enough); so sums leave
 * the registers once every 256 inputs. Integers are the same as with VNNI, and so is the order of floats. */
#include <assert.h>

#include "kernels/x86/matmul_panel_avx512.h"
#include "kernels/x86/sub_sums.h"
#include "kernels/x86/tiles_amx.h"

enum { BLOCK_TOKENS = 16, SUM_BYTES = BLOCK_TOKENS * STEP_BYTES, MAX_PAIRS = 8 };

/* Bytes of a tile's codes in a panel, at most: 7680 inputs, or 3584 of two planes. Longer rows are
 * several panels, whose sums wait in memory: then each costs a load and a store of a register. */
#define CODES_BYTES (120 * 1024)

/* Registers: sums of a block of tokens and a tile (or plane) of codes, activations, codes. */
#define SUM_00      0
#define SUM_01      1
#define SUM_10      2
#define SUM_11      3
#define ACTS_0      4
#define ACTS_1      5
#define CODES_0     6
#define CODES_1     7

struct tiles_ops {
    kernel *few; /* for fewer tokens than a register has rows */
    panel_unpack *unpack;
    int unit;   /* inputs: panels are multiples of it */
    int step;   /* inputs of a register of codes: 64, or a group of 32 */
    int zero;   /* code of value 0 */
    int planes; /* 2: low and high bytes of code times sub-scale */
    /* K packings: inputs per sub-scale that codes are still to be multiplied by, or 0; pairs for every
     * two sub-scales that come behind them, or 0 */
    int sub_inputs, n_pairs;
    bool
        has_min; /* those pairs are minimums; without pairs each group has a minimum beside its scale */
};

/* A panel: inputs [col0, col0 + n) of tiles [tile0, tile0 + n_tiles). */
struct tiles {
    struct panel panel; /* for unpacking */
    const struct tiles_ops *ops;
    int64_t tile0, n_tiles;
    int64_t n_inputs;                              /* of a panel, the last may have fewer */
    int64_t codes_bytes, scales_bytes, subs_bytes; /* of a tile: both planes; d and dmin; ... */
    uint8_t *codes, *scales, *subs;
    uint8_t *sums;  /* what comes out of four registers */
    uint8_t *state; /* (blocks, n_tiles) sums or floats of groups; of one panel: one pass */
    bool is_kept;   /* several panels */
};

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static int n_blocks_of(const struct matmul_job *job)
{
    return (job->n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

/* The first token of a block. The last block is a whole one too: some of its tokens were in the block
 * before it, and are finished there. */
static int first_token(const struct matmul_job *job, int block)
{
    int last = job->n_tokens - BLOCK_TOKENS;
    return block * BLOCK_TOKENS < last ? block * BLOCK_TOKENS : last;
}

/* Sizes of panels, and what is where in scratch. */
static void place(struct tiles *t)
{
    const struct matmul_job *job = t->panel.job;
    const struct tiles_ops *ops = t->ops;
    int64_t n_cols = job->w.n_cols, planes = ops->planes, group = job->w.group;
    int64_t most = CODES_BYTES / (TILE_ROWS * planes) / ops->unit * ops->unit;
    int64_t n_panels = (n_cols + most - 1) / most;
    t->is_kept = n_panels > 1;
    t->n_inputs = round_up((n_cols + n_panels - 1) / n_panels, ops->unit);
    int64_t n = t->n_inputs < n_cols ? t->n_inputs : n_cols;
    int64_t n_groups = group ? n / group : 0;
    /* trits5 unpacks whole steps of 20 */
    t->codes_bytes = round_up(n + 19, 64) * TILE_ROWS * planes;
    t->scales_bytes = n_groups * STEP_BYTES * (1 + ops->has_min);
    t->subs_bytes = ops->sub_inputs ? n / ops->sub_inputs * STEP_BYTES : 0;
    t->subs_bytes += n_groups * ops->n_pairs * STEP_BYTES;
    int64_t state_bytes = t->is_kept ? n_blocks_of(job) * SUM_BYTES : 0;
    int64_t tile_bytes = t->codes_bytes + t->scales_bytes + t->subs_bytes + state_bytes;
    t->n_tiles = ((int64_t)MATMUL_SCRATCH_BYTES - 8 * SUM_BYTES) / tile_bytes / 2 * 2;
    assert(t->n_tiles > 0); /* no more tokens than the contract has */
    t->sums = job->scratch;
    t->state = t->sums + 4 * SUM_BYTES;
    t->scales = t->state + 4 * SUM_BYTES + t->n_tiles * state_bytes;
    t->subs = t->scales + t->n_tiles * t->scales_bytes;
    t->codes = t->subs + t->n_tiles * t->subs_bytes;
}

static uint8_t *codes_of(const struct tiles *t, int64_t tile, int plane)
{
    return t->codes + tile * t->codes_bytes + plane * (t->codes_bytes / t->ops->planes);
}

/* Codes of a quad (0 to 255) minus zero, times the scales of their rows (low 16 bits of each lane): even and
 * odd bytes of the result are its low ones, the rest its high ones. */
INLINE void scale_quad(uint8_t *low, uint8_t *high, __m512i codes, __m512i scale, int zero)
{
    const __m512i low_bytes = _mm512_set1_epi16(255);
    scale = _mm512_mask_blend_epi16(0xaaaaaaaa, scale, _mm512_slli_epi32(scale, 16));
    __m512i less = _mm512_mullo_epi16(scale, _mm512_set1_epi16((short)zero));
    __m512i even = _mm512_mullo_epi16(_mm512_and_si512(codes, low_bytes), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(codes, 8), scale);
    even = _mm512_sub_epi16(even, less);
    odd = _mm512_sub_epi16(odd, less);
    __m512i lows = _mm512_or_si512(_mm512_and_si512(even, low_bytes), _mm512_slli_epi16(odd, 8));
    __m512i highs =
        _mm512_or_si512(_mm512_srli_epi16(even, 8), _mm512_andnot_si512(low_bytes, odd));
    _mm512_storeu_si512(high, highs);
    _mm512_storeu_si512(low, lows);
}

/* Codes of one tile, which lie in its second plane, by their sub-scales. */
static void scale_codes(const struct tiles *t, int64_t tile)
{
    const struct tiles_ops *ops = t->ops;
    uint8_t *low = codes_of(t, tile, 0), *high = codes_of(t, tile, 1);
    const uint8_t *sub = t->subs + tile * t->subs_bytes;
    for (int64_t i = 0; i < t->panel.n; i += ops->sub_inputs, sub += STEP_BYTES) {
        __m512i scale = _mm512_loadu_si512(sub);
        for (int k = 0; k < ops->sub_inputs / 4; k++, low += STEP_BYTES, high += STEP_BYTES)
            scale_quad(low, high, _mm512_loadu_si512(high), scale, ops->zero);
        if ((i + ops->sub_inputs) % 256 == 0)
            sub += ops->n_pairs * STEP_BYTES;
    }
}

static void unpack_panel(const struct tiles *t)
{
    for (int64_t k = 0; k < t->n_tiles; k++) {
        t->ops->unpack(&t->panel, t->tile0 + k, 1, codes_of(t, k, t->ops->planes - 1),
                       (float *)(t->scales + k * t->scales_bytes),
                       (int16_t *)(t->subs + k * t->subs_bytes));
        if (t->ops->sub_inputs)
            scale_codes(t, k);
    }
}

/* What a pass multiplies: activations of one or two blocks, codes of one or two tiles or planes. */
struct operands {
    const int8_t *q[2];
    const uint8_t *codes[2];
    int64_t stride, step;
    int n_blocks, n_codes;
    bool is_signed; /* the second codes */
};

/* All sums += n_steps steps. */
INLINE void add_steps(const struct operands *o, int64_t n_steps, const int n_blocks,
                      const int n_codes, const bool is_signed)
{
    const int8_t *q0 = o->q[0], *q1 = o->q[1];
    const uint8_t *codes0 = o->codes[0], *codes1 = o->codes[1];
    for (int64_t i = 0; i < n_steps; i++) {
        tile_load(ACTS_0, q0 + i * o->step, o->stride);
        tile_load(CODES_0, codes0 + i * o->step * TILE_ROWS, STEP_BYTES);
        tile_add_su(SUM_00, ACTS_0, CODES_0);
        if (n_codes == 2)
            tile_load(CODES_1, codes1 + i * o->step * TILE_ROWS, STEP_BYTES);
        if (n_codes == 2 && is_signed)
            tile_add_ss(SUM_01, ACTS_0, CODES_1);
        else if (n_codes == 2)
            tile_add_su(SUM_01, ACTS_0, CODES_1);
        if (n_blocks == 1)
            continue;
        tile_load(ACTS_1, q1 + i * o->step, o->stride);
        tile_add_su(SUM_10, ACTS_1, CODES_0);
        if (n_codes == 2 && is_signed)
            tile_add_ss(SUM_11, ACTS_1, CODES_1);
        else if (n_codes == 2)
            tile_add_su(SUM_11, ACTS_1, CODES_1);
    }
}

static void multiply(struct operands *o, int64_t n_steps)
{
    bool has_blocks = o->n_blocks == 2;
    if (o->is_signed && has_blocks)
        add_steps(o, n_steps, 2, 2, true);
    else if (o->is_signed)
        add_steps(o, n_steps, 1, 2, true);
    else if (o->n_codes == 2 && has_blocks)
        add_steps(o, n_steps, 2, 2, false);
    else if (o->n_codes == 2)
        add_steps(o, n_steps, 1, 2, false);
    else if (has_blocks)
        add_steps(o, n_steps, 2, 1, false);
    else
        add_steps(o, n_steps, 1, 1, false);
    for (int i = 0; i < 2; i++) {
        o->q[i] += n_steps * o->step;
        o->codes[i] += n_steps * o->step * TILE_ROWS;
    }
}

static void zero_sums(void)
{
    tile_zero(SUM_00);
    tile_zero(SUM_01);
    tile_zero(SUM_10);
    tile_zero(SUM_11);
}

/* at: (blocks, codes) sums. */
static void store_sums(const struct operands *o, uint8_t *at)
{
    tile_store(SUM_00, at, STEP_BYTES);
    if (o->n_codes == 2)
        tile_store(SUM_01, at + SUM_BYTES, STEP_BYTES);
    if (o->n_blocks == 2)
        tile_store(SUM_10, at + 2 * SUM_BYTES, STEP_BYTES);
    if (o->n_blocks == 2 && o->n_codes == 2)
        tile_store(SUM_11, at + 3 * SUM_BYTES, STEP_BYTES);
}

/* One pass: blocks [block, block + o->n_blocks), tiles [tile, tile + n_tiles) of the panel. */
struct pass {
    const struct tiles *tiles;
    int block, n_tiles;
    int64_t tile;
    struct operands operands;
};

/* 16 tokens by 16 rows that are carried from panel to panel. */
static __m512i *state_of(const struct pass *pass, int block, int tile)
{
    const struct tiles *t = pass->tiles;
    int64_t at =
        t->is_kept ? (pass->block + block) * t->n_tiles + pass->tile + tile : 2 * block + tile;
    return (__m512i *)(t->state + at * SUM_BYTES);
}

/* Finishes what the pass has summed up; the sums of a token are zero * sum of activations too large. */
static void finish(const struct pass *pass)
{
    const struct matmul_job *job = pass->tiles->panel.job;
    for (int b = 0; b < pass->operands.n_blocks; b++) {
        int token0 = first_token(job, pass->block + b);
        int own = (pass->block + b) * BLOCK_TOKENS - token0;
        for (int k = 0; k < pass->n_tiles; k++) {
            int64_t tile = pass->tiles->tile0 + pass->tile + k;
            const __m512i *state = state_of(pass, b, k);
            const uint8_t *scales = tile_at(job, tile);
            for (int i = own; i < BLOCK_TOKENS; i++) {
                int token = token0 + i;
                __m512i s = _mm512_loadu_si512(state + i);
                if (job->w.group) {
                    finish_floats(job, tile, token, _mm512_castsi512_ps(s));
                    continue;
                }
                int32_t sum = pass->tiles->ops->zero * job->a.sum[(int64_t)token * job->a.n_sums];
                finish_sums(job, tile, scales, token, _mm512_sub_epi32(s, _mm512_set1_epi32(sum)));
            }
        }
    }
}

static void add_state(const struct pass *pass)
{
    for (int b = 0; b < pass->operands.n_blocks; b++)
        for (int k = 0; k < pass->n_tiles; k++) {
            __m512i *state = state_of(pass, b, k);
            const uint8_t *sums = pass->tiles->sums + (2 * b + k) * SUM_BYTES;
            for (int i = 0; i < BLOCK_TOKENS; i++) {
                __m512i s = _mm512_loadu_si512(sums + i * STEP_BYTES);
                _mm512_storeu_si512(state + i, _mm512_add_epi32(_mm512_loadu_si512(state + i), s));
            }
        }
}

/* One scale per row: integers. Beyond the last input activations are zeros. */
static void run_row(struct pass *pass)
{
    zero_sums();
    multiply(&pass->operands, (pass->tiles->panel.n + 63) / 64);
    store_sums(&pass->operands, pass->tiles->sums);
    add_state(pass);
}

/* Sum over the pairs of a block of minimum * sum of activations. */
INLINE __m512i min_sum(const uint8_t *mins, const int32_t *act_sums, int n_pairs)
{
    int32_t pairs[MAX_PAIRS];
    __m512i sum = _mm512_setzero_si512();
    store_pair_sums(act_sums, 2 * n_pairs, pairs);
    for (int i = 0; i < n_pairs; i++)
        sum = _mm512_dpwssd_epi32(sum, _mm512_loadu_si512(mins + i * STEP_BYTES),
                                  _mm512_set1_epi32(pairs[i]));
    return sum;
}

/* Of n sums of activations, 1 to 16. */
INLINE int32_t sum_of_sums(const int32_t *act_sums, int n)
{
    if (n == 1)
        return *act_sums;
    __mmask16 all = (__mmask16)((1u << n) - 1);
    return _mm512_reduce_add_epi32(_mm512_maskz_loadu_epi32(all, act_sums));
}

/* y += what group g of the panel's inputs gives a block of tokens and a tile. sums: of its codes. */
static void add_sums(const struct pass *pass, int64_t g, int block, int k, const uint8_t *sums)
{
    const struct tiles *t = pass->tiles;
    const struct tiles_ops *ops = t->ops;
    const struct activations *a = &t->panel.job->a;
    const int n_pairs = ops->n_pairs, n_subs = ops->sub_inputs ? 256 / ops->sub_inputs : 0;
    const uint8_t *scales = t->scales + (pass->tile + k) * t->scales_bytes;
    const uint8_t *mins = t->subs + (pass->tile + k) * t->subs_bytes;
    scales += g * STEP_BYTES * (1 + ops->has_min);
    mins += ((g + 1) * n_subs + g * n_pairs) * STEP_BYTES;
    __m512 scale = _mm512_loadu_ps(scales), low = _mm512_setzero_ps();
    if (ops->has_min)
        low = _mm512_loadu_ps(scales + STEP_BYTES);
    int token = first_token(t->panel.job, pass->block + block);
    int64_t group = t->panel.col0 / t->panel.group + g;
    const int n_sums = t->panel.group / a->sum_group;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + group;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums + group * n_sums;
    int zero = ops->sub_inputs ? 0 : ops->zero; /* else it is in the codes already */
    __m512 *y = (__m512 *)state_of(pass, block, k);
    for (int i = 0; i < BLOCK_TOKENS; i++, sums += STEP_BYTES) {
        __m512 x = _mm512_set1_ps(*act_scale);
        __m512i s = _mm512_loadu_si512(sums);
        if (ops->planes == 2)
            s = _mm512_add_epi32(s, _mm512_slli_epi32(_mm512_loadu_si512(sums + SUM_BYTES), 8));
        if (zero)
            s = _mm512_sub_epi32(s, _mm512_set1_epi32(zero * sum_of_sums(act_sum, n_sums)));
        __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(scale, x), y[i]);
        if (ops->has_min && n_pairs)
            sum = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min_sum(mins, act_sum, n_pairs)),
                                   _mm512_mul_ps(low, x), sum);
        else if (ops->has_min)
            sum = _mm512_fmadd_ps(low, _mm512_set1_ps(*act_scale * (float)*act_sum), sum);
        y[i] = sum;
        act_scale += a->n_scales;
        act_sum += a->n_sums;
    }
}

/* Scales of groups: floats. */
static void run_grouped(struct pass *pass)
{
    const struct tiles *t = pass->tiles;
    int planes = t->ops->planes;
    for (int64_t g = 0; g < t->panel.n / t->panel.group; g++) {
        zero_sums();
        multiply(&pass->operands, t->panel.group / t->ops->step);
        store_sums(&pass->operands, t->sums);
        for (int b = 0; b < pass->operands.n_blocks; b++)
            for (int k = 0; k < pass->n_tiles; k++)
                add_sums(pass, g, b, k, t->sums + (2 * b + k * (planes == 1)) * SUM_BYTES);
    }
}

static void run_pass(const struct tiles *t, int block, int n_blocks, int64_t tile, int n_tiles)
{
    const struct matmul_job *job = t->panel.job;
    bool has_planes = t->ops->planes == 2;
    struct pass pass = {.tiles = t, .block = block, .n_tiles = n_tiles, .tile = tile};
    struct operands *o = &pass.operands;
    *o = (struct operands){.stride = job->a.stride, .step = t->ops->step, .n_blocks = n_blocks};
    o->n_codes = has_planes ? 2 : n_tiles;
    o->is_signed = has_planes;
    for (int i = 0; i < 2; i++) {
        int b = block + (i < n_blocks ? i : 0);
        int64_t k = has_planes ? tile : tile + (i < n_tiles ? i : 0);
        o->q[i] = job->a.q + first_token(job, b) * job->a.stride + t->panel.col0;
        o->codes[i] = codes_of(t, k, has_planes ? i : 0);
    }
    for (int b = 0; t->panel.col0 == 0 && b < n_blocks; b++)
        for (int k = 0; k < n_tiles; k++)
            memset(state_of(&pass, b, k), 0, SUM_BYTES);
    if (job->w.group)
        run_grouped(&pass);
    else
        run_row(&pass);
    if (t->panel.col0 + t->panel.n == job->w.n_cols)
        finish(&pass);
}

/* All blocks of tokens over the panel. */
static void run_panel(const struct tiles *t)
{
    int n_blocks = n_blocks_of(t->panel.job), most = t->ops->planes == 2 ? 1 : 2;
    for (int b = 0; b < n_blocks; b += 2)
        for (int64_t k = 0; k < t->n_tiles; k += most)
            run_pass(t, b, b + 1 < n_blocks ? 2 : 1, k, k + most <= t->n_tiles ? most : 1);
}

static void configure(int step)
{
    struct tile_config config = {.palette = 1};
    for (int i = SUM_00; i <= CODES_1; i++) {
        bool is_codes = i == CODES_0 || i == CODES_1, is_acts = i == ACTS_0 || i == ACTS_1;
        config.rows[i] = (uint8_t)(is_codes ? step / 4 : BLOCK_TOKENS);
        config.colsb[i] = (uint16_t)(is_acts ? step : STEP_BYTES);
    }
    tile_configure(&config);
}

/* Fewer tokens than fill a register are left to AVX-512: a tile instruction takes as long for them. */
static void tiles_matmul(const union job *j, const struct tiles_ops *ops, int begin, int end)
{
    const struct matmul_job *job = &j->matmul;
    if (job->n_tokens < BLOCK_TOKENS) {
        ops->few(j, begin, end);
        return;
    }
    struct tiles t = {.ops = ops, .panel = {.job = job, .group = job->w.group}};
    place(&t);
    configure(ops->step);
    int64_t last = (end + TILE_ROWS - 1) / TILE_ROWS, most = t.n_tiles;
    for (t.tile0 = begin / TILE_ROWS; t.tile0 < last; t.tile0 += most) {
        t.n_tiles = last - t.tile0 < most ? last - t.tile0 : most;
        for (int64_t col = 0; col < job->w.n_cols; col += t.n_inputs) {
            int64_t left = job->w.n_cols - col;
            t.panel.col0 = col;
            t.panel.n = left < t.n_inputs ? left : t.n_inputs;
            unpack_panel(&t);
            run_panel(&t);
        }
    }
    tile_release();
}

/* Name, the kernel and what unpacks on AVX-512, and the rest of struct tiles_ops. */
#define TILES_KERNEL(name, isa, ...)                                                               \
    void matmul_##name##_amx(const union job *job, int begin, int end)                             \
    {                                                                                              \
        static const struct tiles_ops ops = {matmul_##name##_##isa, unpack_##name##_##isa,         \
                                             __VA_ARGS__};                                         \
        tiles_matmul(job, &ops, begin, end);                                                       \
    }
TILES_KERNEL(trits4, avx512, 512, 64, 1, 1, 0, 0, false)
TILES_KERNEL(trits5, avx512vbmi, 1280, 64, 1, 1, 0, 0, false)
TILES_KERNEL(q4_0, avx512, 512, 32, 8, 1, 0, 0, false)
TILES_KERNEL(q4_1, avx512, 512, 32, 0, 1, 0, 0, true)
TILES_KERNEL(q5_0, avx512, 512, 32, 16, 1, 0, 0, false)
TILES_KERNEL(q5_1, avx512, 512, 32, 0, 1, 0, 0, true)
TILES_KERNEL(q8_0, avx512, 512, 32, 128, 1, 0, 0, false)
TILES_KERNEL(iq4_nl, avx512, 512, 32, 127, 1, 0, 0, false)
TILES_KERNEL(q6_k, avx512, 512, 64, 32, 2, 16, 0, false)
TILES_KERNEL(q4_k, avx512, 512, 64, 0, 2, 32, 4, true)
TILES_KERNEL(q5_k, avx512, 512, 64, 0, 2, 32, 4, true)
TILES_KERNEL(q2_k, avx512, 512, 64, 0, 1, 0, 8, true)    /* unpacked as scale * code */
TILES_KERNEL(q3_k, avx512, 512, 64, 127, 1, 0, 0, false) /* as scale * (code - 4) + 127 */
TILES_KERNEL(iq4_xs, avx512, 512, 64, 128, 2, 32, 4, false)
