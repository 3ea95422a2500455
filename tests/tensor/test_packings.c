/* Packings: sizes, the trits5 code, which packing is chosen, and for each packing and each format
 * that maps to it: packed values are the format's own, and all instruction sets write the same
 * bytes. */
#include "pack_run.h"
#include "tensor/format_fill.h"

/* How scales vary in a ternary tensor. */
enum scales {
    SCALES_SAME,
    SCALES_ROW,   /* another one for each row */
    SCALES_256,   /* another one for each 256 inputs, where the format can */
    SCALES_128,   /* each 128 */
    SCALES_64,    /* each block */
    SCALES_ZEROS, /* one per row, but every other block has scale 0 or holds only zeros */
    N_SCALES
};

/* Exact in f16, never 0. */
static float random_scale(void)
{
    float scale = (float)(1 + pick(1000)) * 0x1p-12f;
    return pick(4) ? scale : -scale;
}

/* Random codes, any byte; the caller sets scales. Small codes: no 2-bit field holds 3. */
static void fill_bytes(uint8_t *bytes, uint64_t n, bool has_code3)
{
    for (uint64_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)random_bits(&source);
        if (!has_code3)
            byte = (uint8_t)(byte & ~(byte & byte >> 1 & 0x55));
        bytes[i] = byte;
    }
}

static int scale_inputs(enum scales scales, int64_t n_cols)
{
    return scales == SCALES_256 ? 256 : scales == SCALES_128 ? 128 : (int)n_cols;
}

/* Scales in the blocks of one row. */
static void set_block_scales(const struct format *f, enum scales scales, int64_t n_cols, float same,
                             uint8_t *row)
{
    int each = scales == SCALES_64 ? f->block : scale_inputs(scales, n_cols);
    float scale = scales == SCALES_SAME ? same : random_scale();
    int parity = pick(2);
    for (int64_t col = 0; col < n_cols; col += f->block, row += f->block_bytes) {
        if (col > 0 && col % each == 0 && scales != SCALES_SAME)
            scale = random_scale();
        bool is_odd = (col / f->block + parity) % 2 && scales == SCALES_ZEROS;
        if (is_odd && pick(2) && 4 * f->block_bytes >= f->block) {
            memset(row, 0x55, (size_t)f->block_bytes); /* code 1 everywhere */
            store_u16(row + f->scale_at, f32_to_f16(random_scale()));
        } else {
            store_u16(row + f->scale_at, is_odd ? 0 : f32_to_f16(scale));
        }
    }
}

/* Sets scales of a tensor whose other bytes are there. */
static void set_scales(enum format_id id, enum scales scales, int64_t n_rows, int64_t n_cols,
                       uint8_t *bytes)
{
    const struct format *f = format_of(id);
    int64_t row_bytes = (int64_t)format_row_bytes(id, (uint64_t)n_cols);
    float same = random_scale();
    if (f->tensor_tail)
        store_f32(bytes + n_rows * n_cols / 4, same);
    for (int64_t row = 0; row < n_rows; row++) {
        uint8_t *p = bytes + row / f->row_group * f->row_group * row_bytes +
                     f->row_prefix * (row % f->row_group);
        float scale = scales == SCALES_SAME                    ? same
                      : scales == SCALES_ZEROS && row % 3 == 1 ? 0
                                                               : random_scale() * 1.0625f;
        if (f->row_prefix == 4)
            store_f32(p, scale);
        else if (f->row_prefix == 2)
            store_u16(p, f32_to_f16(scale));
        else if (!f->tensor_tail)
            set_block_scales(f, scales, n_cols, same, bytes + row * row_bytes);
    }
}

/* A tensor in memory of exactly its size, so that a sanitizer sees reads beyond. */
static struct tensor make_tensor(enum format_id id, enum scales scales, bool has_code3,
                                 int64_t n_rows, int64_t n_cols)
{
    struct tensor t = {id, n_cols, n_rows, NULL, 0};
    struct error err;
    if (format_bytes(id, (uint64_t)n_rows, (uint64_t)n_cols, "test", &t.bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    uint8_t *bytes = malloc(t.bytes);
    assert_non_null(bytes);
    if (format_of(id)->is_ternary) {
        fill_bytes(bytes, t.bytes, has_code3);
        set_scales(id, scales, n_rows, n_cols, bytes);
    } else {
        format_fill_random(id, n_rows, n_cols, 0.5f, &source, bytes);
    }
    t.data = bytes;
    return t;
}

static bool fits(enum format_id id, int64_t n_rows, int64_t n_cols)
{
    uint64_t bytes;
    return format_bytes(id, (uint64_t)n_rows, (uint64_t)n_cols, "", &bytes, NULL) == STATUS_OK;
}

static const int row_counts[] = {1, 15, 16, 17, 48};
enum { N_WIDTHS = 11 };
static const int widths[N_WIDTHS] = {64, 96, 128, 192, 256, 320, 544, 640, 1280, 1344, 2560};

/* All packings that a tensor can take; f32 of ternary ones is test_parts_of_matrices. */
static void check_tensor(const struct tensor *t)
{
    struct pack_job job = {.source = {t, NULL}, .n_sources = 1};
    struct packing_choice choice = choose(t, true);
    job.w = (struct packed){choice.packing, choice.group, t->n_rows, t->n_cols, NULL};
    if (format_of(t->format)->is_ternary) {
        check_trits(&job, PACKING_trits4, choice);
        if (!choice.has_code3)
            check_trits(&job, PACKING_trits5, choice);
        return;
    }
    if (choice.packing != PACKING_none)
        check_job(&job);
    job.w.packing = PACKING_f32;
    check_job(&job);
}

static void check_format(enum format_id id)
{
    int n_scales = format_of(id)->is_ternary ? N_SCALES : 1;
    int n_code3 = format_of(id)->is_ternary ? 2 : 1;
    for (int rows = 0; rows < 5; rows++)
        for (int width = 0; width < N_WIDTHS; width++)
            for (int scales = 0; scales < n_scales; scales++)
                for (int code3 = 0; code3 < n_code3; code3++) {
                    int n_rows = row_counts[rows], n_cols = widths[width];
                    if (format_of(id)->row_group == 4)
                        n_rows = (n_rows + 3) / 4 * 4;
                    if (!fits(id, n_rows, n_cols) || (n_rows == 48 && scales > SCALES_ROW) ||
                        (IS_SANITISED && (rows + width) % 3))
                        continue;
                    struct tensor t = make_tensor(id, (enum scales)scales, code3, n_rows, n_cols);
                    check_tensor(&t);
                    free((void *)t.data);
                }
}

static void test_every_format_keeps_its_values(void **state)
{
    (void)state;
    random_init(&source, 1);
    for (int id = 0; id < N_FORMATS; id++)
        check_format((enum format_id)id);
}

/* Floats have rows of any length. */
static void test_floats_of_odd_lengths(void **state)
{
    (void)state;
    static const enum format_id ids[] = {FORMAT_F16, FORMAT_BF16, FORMAT_F32};
    random_init(&source, 2);
    for (int i = 0; i < 3; i++)
        for (int n_cols = 1; n_cols < 70; n_cols++) {
            struct tensor t = make_tensor(ids[i], SCALES_SAME, false, 1 + n_cols % 18, n_cols);
            check_tensor(&t);
            free((void *)t.data);
        }
}

/* Ranges of columns, a map of rows, two interleaved sources. */
static void check_parts(enum format_id id, enum scales scales, enum packing packing, int group)
{
    enum { N_ROWS = 20, N_COLS = 2560 };
    static const int columns[][2] = {{0, 1280}, {1280, 1280}, {512, 768}, {256, 2304}, {2304, 256},
                                     {64, 192}, {320, 2240},  {16, 48},   {7, 33},     {32, 2500}};
    int32_t row_of[N_ROWS];
    struct tensor gate = make_tensor(id, scales, false, N_ROWS, N_COLS);
    struct tensor up = make_tensor(id, scales, false, N_ROWS, N_COLS);
    for (int i = 0; i < N_ROWS; i++)
        row_of[i] = i % 2 ? N_ROWS - i : (i + 6) % N_ROWS;
    for (int i = 0; i < (int)(sizeof columns / sizeof *columns); i++)
        for (int n_sources = 1; n_sources <= 2; n_sources++)
            for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
                int step = group > 0 ? group : packing_group(packing) ? packing_group(packing) : 1;
                if (columns[i][0] % step || columns[i][1] % step)
                    continue;
                struct pack_job job = {.source = {&gate, n_sources == 2 ? &up : NULL},
                                       .n_sources = n_sources,
                                       .row_of = is_mapped ? row_of : NULL,
                                       .col0 = columns[i][0]};
                job.w = (struct packed){packing, group, n_sources * (is_mapped ? 19 : N_ROWS),
                                        columns[i][1], NULL};
                check_job(&job);
            }
    free((void *)gate.data);
    free((void *)up.data);
}

static void test_parts_of_matrices(void **state)
{
    (void)state;
    random_init(&source, 3);
    for (int id = 0; id < N_FORMATS; id++) {
        const struct format *f = format_of((enum format_id)id);
        for (enum packing p = PACKING_trits4; f->is_ternary && p <= PACKING_trits5; p++) {
            check_parts((enum format_id)id, SCALES_ROW, p, 0);
            if (f->scale_group > 0)
                check_parts((enum format_id)id, SCALES_64, p, f->scale_group);
            if (f->scale_group > 0)
                check_parts((enum format_id)id, SCALES_64, p, 64);
            if (f->scale_group == 64)
                check_parts((enum format_id)id, SCALES_128, p, 128);
        }
    }
    check_parts(FORMAT_Q4_0, SCALES_SAME, PACKING_q4_0, 0);
    check_parts(FORMAT_Q8_0, SCALES_SAME, PACKING_q8_0, 0);
    check_parts(FORMAT_Q6_K, SCALES_SAME, PACKING_q6_k, 0);
    check_parts(FORMAT_F16, SCALES_SAME, PACKING_f16, 0);
    check_parts(FORMAT_BF16, SCALES_SAME, PACKING_bf16, 0);
    check_parts(FORMAT_F32, SCALES_SAME, PACKING_f32, 0);
    check_parts(FORMAT_Q4_K, SCALES_SAME, PACKING_q4_k, 0);
    check_parts(FORMAT_Q5_K, SCALES_SAME, PACKING_q5_k, 0);
    check_parts(FORMAT_Q2_K, SCALES_SAME, PACKING_q2_k, 0);
    check_parts(FORMAT_Q4_1, SCALES_SAME, PACKING_q4_1, 0);
    check_parts(FORMAT_Q5_0, SCALES_SAME, PACKING_q5_0, 0);
    check_parts(FORMAT_Q5_1, SCALES_SAME, PACKING_q5_1, 0);
    check_parts(FORMAT_IQ4_NL, SCALES_SAME, PACKING_iq4_nl, 0);
    check_parts(FORMAT_Q3_K, SCALES_SAME, PACKING_q3_k, 0);
    check_parts(FORMAT_IQ4_XS, SCALES_SAME, PACKING_iq4_xs, 0);
    check_parts(FORMAT_Q4_K, SCALES_SAME, PACKING_f32, 0);
    check_parts(FORMAT_TQ1_0, SCALES_SAME, PACKING_f32, 0);
}

/* Two interleaved sources whose blocks are not of one size, from within a block of one. */
static void test_sources_of_two_formats(void **state)
{
    (void)state;
    static const struct {
        enum format_id formats[2];
        int group;
    } pairs[] = {{{FORMAT_IQ2_BN, FORMAT_I2_S}, 0},
                 {{FORMAT_I2_S, FORMAT_IQ1_BN}, 0},
                 {{FORMAT_TQ2_0, FORMAT_Q2_0}, 64},
                 {{FORMAT_Q2_0, FORMAT_TQ1_0}, 64},
                 {{FORMAT_PTQ1_0, FORMAT_TQ2_0}, 128}};
    random_init(&source, 6);
    for (int i = 0; i < 5; i++)
        for (enum packing p = PACKING_trits4; p <= PACKING_trits5; p++)
            for (int col0 = 0; col0 < 512; col0 += 128) {
                struct tensor even = make_tensor(pairs[i].formats[0], SCALES_64, false, 9, 512);
                struct tensor odd = make_tensor(pairs[i].formats[1], SCALES_64, false, 9, 512);
                struct pack_job job = {.source = {&even, &odd}, .n_sources = 2, .col0 = col0};
                job.w = (struct packed){p, pairs[i].group, 18, 512 - col0, NULL};
                check_job(&job);
                free((void *)even.data);
                free((void *)odd.data);
            }
}

/* The bytes of rows and inputs beyond the last, and of weights under scale 0. */
static void test_padding_is_canonical(void **state)
{
    (void)state;
    random_init(&source, 7);
    struct tensor t = make_tensor(FORMAT_Q2_0, SCALES_ZEROS, true, 1, 128);
    struct pack_job job = {.source = {&t, NULL}, .n_sources = 1};
    job.w = (struct packed){PACKING_trits4, 64, 1, 128, NULL};
    memset((uint8_t *)t.data + 18, 0, 2); /* the scale of the second block */
    uint8_t *data = pack(kernel_select(OP_pack, PACKING_trits4, isa_cap), &job, 0xa5);
    for (int i = 2; i < 64; i++)
        assert_int_equal(data[i], 0);
    for (int step = 0; step < 8; step++)
        for (int i = step < 4 ? 4 : 0; i < 64; i++)
            assert_int_equal(data[64 + 64 * step + i], 0x55);
    free(data);
    job.w = (struct packed){PACKING_trits5, 64, 1, 64, NULL};
    memset((uint8_t *)t.data, 0, 2);
    data = pack(kernel_select(OP_pack, PACKING_trits5, isa_cap), &job, 0xa5);
    for (int i = 0; i < 640; i++)
        assert_int_equal(data[i], 0);
    for (int i = 640; i < 640 + 3 * 64; i++)
        assert_int_equal(data[i], trits5_code((const uint8_t[]){1, 1, 1, 1, 1}));
    for (int i = 640 + 3 * 64; i < 640 + 4 * 64; i++)
        assert_int_equal(data[i], trits5_code((const uint8_t[]){1, 0, 0, 0, 0}));
    free(data);
    free((void *)t.data);
}

/* Whether one scale per `group` inputs can hold all values of a tensor: by its floats alone. */
static bool can_hold(const struct tensor *t, int64_t group)
{
    struct ternary_rows rows = {malloc((size_t)(t->n_rows * t->n_cols)),
                                malloc((size_t)(t->n_rows * t->n_cols / 64 * 4)), 0};
    assert_true(rows.codes && rows.scales);
    ternary_extract(t, 0, t->n_rows, &rows);
    bool can = true;
    for (int64_t begin = 0; begin < t->n_rows * t->n_cols; begin += group) {
        float scale = 0;
        for (int64_t i = begin; i < begin + group; i++) {
            float own = rows.codes[i] == 1 ? 0 : rows.scales[i / rows.group];
            if (own != 0 && scale != 0 && own != scale)
                can = false;
            scale = own != 0 ? own : scale;
        }
    }
    free(rows.codes);
    free(rows.scales);
    return can;
}

static bool holds_code3(const struct tensor *t)
{
    float *values = malloc((size_t)t->n_cols * sizeof *values);
    uint8_t *codes = malloc((size_t)t->n_cols);
    float *scales = malloc((size_t)t->n_cols / 64 * 4);
    struct ternary_rows rows = {codes, scales, 0};
    bool is_found = false;
    assert_true(values && codes && scales);
    for (int64_t row = 0; row < t->n_rows; row++) {
        ternary_extract(t, row, row + 1, &rows);
        tensor_decode(t, row, row + 1, values);
        for (int64_t i = 0; i < t->n_cols; i++)
            is_found |= values[i] != 0 && codes[i] == 3;
    }
    free(values);
    free(codes);
    free(scales);
    return is_found;
}

/* The coarsest grouping that changes nothing. */
static int expected_group(const struct tensor *t)
{
    static const int groups[] = {256, 128, 64};
    if (can_hold(t, t->n_cols))
        return 0;
    for (int i = 0; i < 3; i++)
        if (t->n_cols % groups[i] == 0 && can_hold(t, groups[i]))
            return groups[i];
    return -1;
}

static void test_scales_are_as_coarse_as_values_allow(void **state)
{
    (void)state;
    int n_of_group[257] = {0}, n_code3 = 0;
    random_init(&source, 4);
    for (int id = 0; id < N_FORMATS; id++)
        for (int width = 0; width < N_WIDTHS; width++)
            for (int i = 0; i < N_SCALES * 2; i++) {
                int n_cols = widths[width];
                if (!format_of((enum format_id)id)->is_ternary ||
                    !fits((enum format_id)id, 8, n_cols))
                    continue;
                struct tensor t =
                    make_tensor((enum format_id)id, (enum scales)(i / 2), i % 2, 8, n_cols);
                struct packing_choice choice = choose(&t, true), four = choose(&t, false);
                assert_int_equal(choice.group, expected_group(&t));
                assert_int_equal(choice.has_code3, holds_code3(&t));
                assert_int_equal(choice.packing,
                                 choice.has_code3 ? PACKING_trits4 : PACKING_trits5);
                assert_int_equal(four.packing, PACKING_trits4);
                assert_int_equal(four.group, choice.group);
                n_of_group[choice.group]++;
                n_code3 += choice.has_code3;
                free((void *)t.data);
            }
    assert_true(n_of_group[0] && n_of_group[64] && n_of_group[128] && n_of_group[256] && n_code3);
}

/* A single weight of another scale, of each kind, in the last block of the last row. */
static void test_one_weight_decides(void **state)
{
    (void)state;
    enum { N_ROWS = 3, N_COLS = 512 };
    random_init(&source, 5);
    struct tensor t = make_tensor(FORMAT_Q2_0, SCALES_SAME, false, N_ROWS, N_COLS);
    uint8_t *last = (uint8_t *)t.data + t.bytes - 18;
    memset(last, 0x55, 18);
    store_u16(last, f32_to_f16(7));
    assert_int_equal(choose(&t, true).group, 0);
    last[9] = 0x56; /* +1 */
    assert_int_equal(choose(&t, true).group, 64);
    memcpy(last - 18, last, 18);
    assert_int_equal(choose(&t, true).group, 128);
    memcpy(last - 36, last, 18);
    memcpy(last - 54, last, 18);
    assert_int_equal(choose(&t, true).group, 256);
    assert_false(choose(&t, true).has_code3);
    last[17] = 0xd5; /* +2 */
    assert_true(choose(&t, true).has_code3);
    assert_int_equal(choose(&t, true).packing, PACKING_trits4);
    store_u16(last, 0);
    assert_false(choose(&t, true).has_code3);
    free((void *)t.data);
}

static void test_other_formats_map_by_their_type(void **state)
{
    (void)state;
    static const struct {
        enum format_id id;
        enum packing packing;
    } known[] = {{FORMAT_F32, PACKING_f32},       {FORMAT_F16, PACKING_f16},
                 {FORMAT_BF16, PACKING_bf16},     {FORMAT_Q4_0, PACKING_q4_0},
                 {FORMAT_Q8_0, PACKING_q8_0},     {FORMAT_Q6_K, PACKING_q6_k},
                 {FORMAT_Q4_K, PACKING_q4_k},     {FORMAT_Q5_K, PACKING_q5_k},
                 {FORMAT_Q2_K, PACKING_q2_k},     {FORMAT_Q4_1, PACKING_q4_1},
                 {FORMAT_Q5_0, PACKING_q5_0},     {FORMAT_Q5_1, PACKING_q5_1},
                 {FORMAT_Q3_K, PACKING_q3_k},     {FORMAT_IQ4_NL, PACKING_iq4_nl},
                 {FORMAT_IQ4_XS, PACKING_iq4_xs}, {FORMAT_TQ2_T, PACKING_none}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct packing_choice choice = packing_of_format(known[i].id);
        assert_int_equal(choice.packing, known[i].packing);
        assert_false(choice.has_code3);
    }
}

static void test_trits5_codes_are_all_different(void **state)
{
    (void)state;
    bool is_taken[256] = {false};
    uint8_t data[64 + 64] = {0};
    struct packed w = {PACKING_trits5, 0, 1, 20, data};
    store_f32(data, 1);
    for (int number = 0; number < 243; number++) {
        uint8_t t[5];
        float values[20];
        for (int i = 0, rest = number; i < 5; i++, rest /= 3)
            t[i] = (uint8_t)(rest % 3);
        uint8_t code = trits5_code(t);
        assert_false(is_taken[code]);
        is_taken[code] = true;
        data[64 + 2] = code;
        packed_decode(&w, 0, 1, values);
        for (int i = 0; i < 5; i++)
            assert_true(values[4 * i + 2] == (float)(t[i] - 1));
    }
    for (int code = 0; code < 256; code++)
        assert_int_equal(is_taken[code], code < 243);
}

static uint64_t file_bytes(enum format_id id, int64_t n_rows, int64_t n_cols)
{
    return (uint64_t)n_rows * format_row_bytes(id, (uint64_t)n_cols);
}

static void check_block_sizes(enum packing packing, enum format_id id, int n_cols)
{
    uint64_t packed = packed_bytes(packing, 0, 64, n_cols), file = file_bytes(id, 64, n_cols);
    assert_true((double)packed <= (double)file * 1.02);
}

static void test_packings_are_as_small_as_they_say(void **state)
{
    (void)state;
    for (int n_cols = 64; n_cols <= 20480; n_cols += 64) {
        uint64_t n_weights = 64 * (uint64_t)n_cols;
        assert_int_equal(packed_bytes(PACKING_trits4, 0, 64, n_cols), n_weights / 4 + 64 * 4);
        uint64_t bytes = packed_bytes(PACKING_trits5, 0, 64, n_cols);
        assert_true(bytes * 5 <= n_weights + 5 * (64 * 4 + 4 * STEP_BYTES));
        for (int group = 64; group <= 256; group *= 2) {
            if (n_cols % group)
                continue;
            /* f16 scales, but for one unit of scales and one step per tile of 16 rows. */
            uint64_t scales = n_weights / group * 2, unit = 64;
            bytes = packed_bytes(PACKING_trits4, group, 64, n_cols);
            assert_true(bytes <= n_weights / 4 + scales + 4 * unit);
            unit = packed_unit_header(PACKING_trits5, group);
            uint64_t n_units = (n_cols + 1279) / 1280;
            uint64_t gaps = group == 256 ? n_units * 32 : 0;
            bytes = packed_bytes(PACKING_trits5, group, 64, n_cols);
            assert_true(bytes * 5 <= n_weights + 5 * (scales + 4 * (unit + gaps + STEP_BYTES)));
        }
        assert_int_equal(packed_bytes(PACKING_f16, 0, 64, n_cols), n_weights * 2);
        assert_int_equal(packed_bytes(PACKING_f32, 0, 64, n_cols), n_weights * 4);
    }
    for (int n_cols = 1024; n_cols <= 20480; n_cols += 64) {
        check_block_sizes(PACKING_q4_0, FORMAT_Q4_0, n_cols);
        check_block_sizes(PACKING_q8_0, FORMAT_Q8_0, n_cols);
        check_block_sizes(PACKING_iq4_nl, FORMAT_IQ4_NL, n_cols);
    }
    for (int n_cols = 64; n_cols <= 20480; n_cols += 64) { /* every bit of the file, no more */
        assert_int_equal(packed_bytes(PACKING_q4_1, 0, 64, n_cols),
                         file_bytes(FORMAT_Q4_1, 64, n_cols));
        assert_int_equal(packed_bytes(PACKING_q5_0, 0, 64, n_cols),
                         file_bytes(FORMAT_Q5_0, 64, n_cols));
        assert_int_equal(packed_bytes(PACKING_q5_1, 0, 64, n_cols),
                         file_bytes(FORMAT_Q5_1, 64, n_cols));
    }
    for (int n_cols = 512; n_cols <= 20480; n_cols += n_cols < 2048 ? 512 : 256)
        check_block_sizes(PACKING_q6_k, FORMAT_Q6_K, n_cols);
    for (int n_cols = 256; n_cols <= 20480; n_cols += 256) { /* every bit of the file, no more */
        assert_int_equal(packed_bytes(PACKING_q4_k, 0, 64, n_cols),
                         file_bytes(FORMAT_Q4_K, 64, n_cols));
        assert_int_equal(packed_bytes(PACKING_q5_k, 0, 64, n_cols),
                         file_bytes(FORMAT_Q5_K, 64, n_cols));
        assert_int_equal(packed_bytes(PACKING_q2_k, 0, 64, n_cols),
                         file_bytes(FORMAT_Q2_K, 64, n_cols));
        assert_int_equal(packed_bytes(PACKING_iq4_xs, 0, 64, n_cols),
                         file_bytes(FORMAT_IQ4_XS, 64, n_cols));
        check_block_sizes(PACKING_q3_k, FORMAT_Q3_K, n_cols); /* half a line of zeros a block */
    }
    for (enum packing p = PACKING_trits4; p < N_PACKINGS; p++)
        for (int n_rows = 1; n_rows < 50; n_rows++)
            assert_int_equal(packed_bytes(p, 0, n_rows, 512),
                             (n_rows + 15) / 16 * packed_tile_bytes(p, 0, 512));
}

static void test_needs_follow_the_scales(void **state)
{
    (void)state;
    static const struct {
        enum packing packing;
        int group;
        bool is_float;
        int act_group, sum_group;
    } known[] = {{PACKING_trits4, 0, false, 0, 0},    {PACKING_trits5, 0, false, 0, 0},
                 {PACKING_trits4, 64, false, 64, 64}, {PACKING_trits5, 256, false, 256, 256},
                 {PACKING_q4_0, 0, false, 32, 32},    {PACKING_q8_0, 0, false, 32, 32},
                 {PACKING_q6_k, 0, false, 256, 16},   {PACKING_q4_k, 0, false, 256, 32},
                 {PACKING_q5_k, 0, false, 256, 32},   {PACKING_q2_k, 0, false, 256, 16},
                 {PACKING_q3_k, 0, false, 256, 16},   {PACKING_iq4_xs, 0, false, 256, 32},
                 {PACKING_f16, 0, true, 0, 0},        {PACKING_bf16, 0, true, 0, 0},
                 {PACKING_q4_1, 0, false, 32, 32},    {PACKING_q5_0, 0, false, 32, 32},
                 {PACKING_q5_1, 0, false, 32, 32},    {PACKING_iq4_nl, 0, false, 32, 32},
                 {PACKING_f32, 0, true, 0, 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct packing_needs needs = packing_needs(known[i].packing, known[i].group);
        assert_int_equal(needs.is_float, known[i].is_float);
        assert_int_equal(needs.act_group, known[i].act_group);
        assert_int_equal(needs.sum_group, known[i].sum_group);
    }
    assert_string_equal(packing_name(PACKING_trits5), "trits5");
    assert_string_equal(packing_name(PACKING_none), "none");
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    isa_cap = cpu_best_isa();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trits5_codes_are_all_different),
        cmocka_unit_test(test_packings_are_as_small_as_they_say),
        cmocka_unit_test(test_needs_follow_the_scales),
        cmocka_unit_test(test_other_formats_map_by_their_type),
        cmocka_unit_test(test_one_weight_decides),
        cmocka_unit_test(test_scales_are_as_coarse_as_values_allow),
        cmocka_unit_test(test_every_format_keeps_its_values),
        cmocka_unit_test(test_floats_of_odd_lengths),
        cmocka_unit_test(test_parts_of_matrices),
        cmocka_unit_test(test_sources_of_two_formats),
        cmocka_unit_test(test_padding_is_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
