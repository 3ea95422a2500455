#include "tiles_emulated.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { N_TILES = 8, MAX_ROWS = 16, ROW_BYTES = 64 };

static _Thread_local struct {
    bool is_configured;
    struct tile_config config;
    uint8_t data[N_TILES][MAX_ROWS][ROW_BYTES];
    int64_t n_products;
} tiles;

char tiles_problem[160];
jmp_buf *tiles_escape;

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(tiles_problem, sizeof tiles_problem, format, args);
    va_end(args);
    tiles.is_configured = false;
    if (tiles_escape)
        longjmp(*tiles_escape, 1);
    fprintf(stderr, "tiles: %s\n", tiles_problem);
    raise(SIGILL);
    __builtin_trap();
}

bool tiles_are_in_use(void)
{
    return tiles.is_configured;
}

int64_t tiles_n_products(void)
{
    return tiles.n_products;
}

/* What LDTILECFG refuses (#GP). */
void tile_configure(const struct tile_config *config)
{
    if (config->palette != 1)
        wrong("palette %d is not 1", config->palette);
    if (config->start_row)
        wrong("begins in row %d", config->start_row);
    for (size_t i = 0; i < sizeof config->reserved; i++)
        if (config->reserved[i])
            wrong("reserved byte %zu of the configuration is %d", i, config->reserved[i]);
    for (int t = 0; t < 16; t++) {
        int rows = config->rows[t], bytes = config->colsb[t];
        if (t >= N_TILES && (rows || bytes))
            wrong("tile %d does not exist and has %d rows of %d bytes", t, rows, bytes);
        if (rows > MAX_ROWS || bytes > ROW_BYTES)
            wrong("tile %d with %d rows of %d bytes is too large", t, rows, bytes);
        if (!rows != !bytes)
            wrong("tile %d has %d rows of %d bytes", t, rows, bytes);
    }
    tiles.is_configured = true;
    tiles.config = *config;
    memset(tiles.data, 0, sizeof tiles.data);
}

void tile_release(void)
{
    tiles.is_configured = false;
}

/* A register that an instruction may use. */
static void need(int t, const char *what)
{
    if (!tiles.is_configured)
        wrong("%s of tile %d without a configuration", what, t);
    if (t < 0 || t >= N_TILES)
        wrong("%s of tile %d", what, t);
    if (tiles.config.rows[t] == 0)
        wrong("%s of tile %d, which is not configured", what, t);
}

void tile_zero(int t)
{
    need(t, "zero");
    memset(tiles.data[t], 0, sizeof tiles.data[t]);
}

/* Row after row, so that guard pages see what the processor would touch. */
void tile_load(int t, const void *base, int64_t stride)
{
    need(t, "load");
    memset(tiles.data[t], 0, sizeof tiles.data[t]);
    for (int r = 0; r < tiles.config.rows[t]; r++)
        memcpy(tiles.data[t][r], (const uint8_t *)base + r * stride, tiles.config.colsb[t]);
}

void tile_store(int t, void *base, int64_t stride)
{
    need(t, "store");
    for (int r = 0; r < tiles.config.rows[t]; r++)
        memcpy((uint8_t *)base + r * stride, tiles.data[t][r], tiles.config.colsb[t]);
}

/* What TDPBxxD refuses (#UD). */
static void need_product(int sum, int a, int b)
{
    const struct tile_config *c = &tiles.config;
    need(sum, "sum");
    need(a, "left factor");
    need(b, "right factor");
    if (sum == a || sum == b || a == b)
        wrong("tiles %d, %d and %d of a product are not three", sum, a, b);
    if (c->colsb[sum] % 4 || c->colsb[a] % 4 || c->colsb[b] % 4)
        wrong("rows of a product have %d, %d and %d bytes, no multiples of 4", c->colsb[sum],
              c->colsb[a], c->colsb[b]);
    if (c->rows[sum] != c->rows[a])
        wrong("%d rows of sums, %d of the left factor", c->rows[sum], c->rows[a]);
    if (c->colsb[a] / 4 != c->rows[b])
        wrong("%d inputs of the left factor, %d of the right one", c->colsb[a], 4 * c->rows[b]);
    if (c->colsb[sum] != c->colsb[b])
        wrong("%d bytes of sums a row, %d of the right factor", c->colsb[sum], c->colsb[b]);
}

static void add_product(int sum, int a, int b, bool is_signed)
{
    need_product(sum, a, b);
    tiles.n_products++;
    for (int m = 0; m < tiles.config.rows[sum]; m++) {
        int32_t sums[ROW_BYTES / 4];
        memcpy(sums, tiles.data[sum][m], sizeof sums);
        for (int k = 0; k < tiles.config.rows[b]; k++)
            for (int n = 0; n < tiles.config.colsb[sum] / 4; n++)
                for (int j = 0; j < 4; j++) {
                    int left = (int8_t)tiles.data[a][m][4 * k + j];
                    int right = tiles.data[b][k][4 * n + j];
                    right = is_signed ? (int8_t)right : right;
                    sums[n] = (int32_t)((uint32_t)sums[n] + (uint32_t)(left * right));
                }
        memcpy(tiles.data[sum][m], sums, sizeof sums);
    }
}

void tile_add_su(int sum, int a, int b)
{
    add_product(sum, a, b, false);
}

void tile_add_ss(int sum, int a, int b)
{
    add_product(sum, a, b, true);
}
