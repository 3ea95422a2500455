#include "check.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *const fill_names[] = {"zero", "min", "max", "ones", "random"};

/* Guarded memory: MAX_BLOCKS slots, each followed by an inaccessible page. Blocks lie at the end
 * of their slot. */
#define PAGE       ((size_t)4096)
#define SLOT_BYTES ((size_t)16 << 20)
#define CANARY     256
#define HUGE_BYTES ((size_t)2 << 20)

static uint8_t *slots;

static uint8_t *slot_end(int slot)
{
    return slots + (size_t)slot * (SLOT_BYTES + PAGE) + SLOT_BYTES;
}

static void out_of_memory(void)
{
    fprintf(stderr, "kernel check: out of memory\n");
    exit(1);
}

static void map_slots(void)
{
    slots = mmap(NULL, MAX_BLOCKS * (SLOT_BYTES + PAGE), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slots == MAP_FAILED)
        out_of_memory();
    for (int slot = 0; slot < MAX_BLOCKS; slot++)
        mprotect(slot_end(slot), PAGE, PROT_NONE);
}

/* Where a crashing kernel returns to. */
static sigjmp_buf crash_return;
static volatile sig_atomic_t is_running;

static void on_crash(int signal_number)
{
    if (!is_running) { /* a crash of the check itself */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    siglongjmp(crash_return, signal_number);
}

/* For every row anew: cmocka has handlers of its own around each test. */
static void catch_crashes(void)
{
    struct sigaction action = {.sa_handler = on_crash};
    sigemptyset(&action.sa_mask);
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}

void check_failed(struct check *c, const char *format, ...)
{
    if (c->failed)
        return;
    c->failed = true;
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(c->message, sizeof c->message, "%s: %s (%s, --seed %llu)", c->row->name, text,
             c->title, (unsigned long long)c->seed);
}

bool check_call(struct check *c, const struct kernel_row *row, const union job *job, int begin,
                int end)
{
    int signal_number = sigsetjmp(crash_return, 1);
    if (signal_number == 0) {
        is_running = 1;
        row->run(job, begin, end);
        is_running = 0;
        return true;
    }
    is_running = 0;
    check_failed(c, "%s%s in [%d, %d)",
                 row == c->row ? "" : "the reference: ", strsignal(signal_number), begin, end);
    return false;
}

bool check_passes_over(struct check *c)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return c->n_cases > 0 && check_below(c, 5) != 0;
#else
    (void)c;
    return false;
#endif
}

static void protect_inputs(struct check *c, int protection)
{
    for (int i = 0; i < c->n_blocks; i++) {
        const struct block *b = &c->blocks[i];
        if (b->role != ROLE_INPUT)
            continue;
        size_t bytes = (b->bytes + CANARY + PAGE - 1) / PAGE * PAGE;
        mprotect(slot_end(i) - bytes, bytes, protection);
    }
}

void check_begin(struct check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->title, sizeof c->title, format, args);
    va_end(args);
    if (!c->is_large)
        protect_inputs(c, PROT_READ | PROT_WRITE);
    arena_done(&c->arena);
    c->n_blocks = 0;
    c->job = (union job){0};
    c->n_cases++;
}

void *check_memory(struct check *c, size_t n, size_t size)
{
    void *memory = arena_alloc(&c->arena, n, size);
    if (!memory)
        out_of_memory();
    return memory;
}

/* Huge pages, because so do weights and the probe of the bandwidth. */
static void *large_block(size_t bytes)
{
    size_t mapped = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES + HUGE_BYTES;
    uint8_t *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        out_of_memory();
    uint8_t *aligned = (uint8_t *)(((uintptr_t)at + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    if (aligned > at)
        munmap(at, (size_t)(aligned - at));
    size_t kept = mapped - HUGE_BYTES;
    if (at + mapped > aligned + kept)
        munmap(aligned + kept, (size_t)(at + mapped - aligned - kept));
    madvise(aligned, kept, MADV_HUGEPAGE);
    return aligned;
}

void *check_block(struct check *c, const char *name, size_t bytes, enum role role)
{
    int slot = c->n_blocks++;
    if (slot >= MAX_BLOCKS || (!c->is_large && bytes > SLOT_BYTES - PAGE))
        out_of_memory();
    struct block *b = &c->blocks[slot];
    *b = (struct block){.name = name, .role = role, .bytes = bytes};
    if (c->is_large)
        return b->data = large_block(bytes ? bytes : 1);
    b->data = slot_end(slot) - bytes;
    memset(b->data - CANARY, 0xa5, CANARY);
    if (role == ROLE_OUTPUT) {
        for (size_t i = 0; i < bytes; i++)
            b->data[i] = (uint8_t)(random_bits(&c->random) >> 40);
        b->initial = check_memory(c, bytes + 1, 1);
        b->expected = check_memory(c, bytes + 1, 1);
        b->part = check_memory(c, bytes + 1, 1);
    }
    return b->data;
}

void *check_rows(struct check *c, const char *name, int64_t n_rows, size_t row_bytes,
                 size_t used_bytes)
{
    void *data = check_block(c, name, (size_t)n_rows * row_bytes, ROLE_OUTPUT);
    struct block *b = &c->blocks[c->n_blocks - 1];
    b->row_bytes = row_bytes;
    b->used_bytes = used_bytes;
    return data;
}

/* Copies between the outputs and their copies. */
static void save_outputs(struct check *c, size_t to)
{
    for (struct block *b = c->blocks; b < c->blocks + c->n_blocks; b++)
        if (b->role == ROLE_OUTPUT)
            memcpy(*(uint8_t **)((uint8_t *)b + to), b->data, b->bytes);
}

static void restore_outputs(struct check *c)
{
    for (struct block *b = c->blocks; b < c->blocks + c->n_blocks; b++)
        if (b->role == ROLE_OUTPUT)
            memcpy(b->data, b->initial, b->bytes);
}

static bool canaries_live(struct check *c)
{
    for (const struct block *b = c->blocks; b < c->blocks + c->n_blocks; b++) {
        for (int i = 1; i <= CANARY; i++)
            if (b->data[-i] != 0xa5) {
                check_failed(c, "wrote %d bytes before %s", i, b->name);
                return false;
            }
        if (b->role != ROLE_OUTPUT || !b->row_bytes)
            continue;
        for (size_t i = 0; i < b->bytes; i++)
            if (i % b->row_bytes >= b->used_bytes && b->data[i] != b->initial[i]) {
                check_failed(c, "wrote byte %zu of row %zu of %s, of which %zu are its own",
                             i % b->row_bytes, i / b->row_bytes, b->name, b->used_bytes);
                return false;
            }
    }
    return true;
}

static void say_difference(struct check *c, const struct block *b, size_t at, const char *when)
{
    size_t word = at / 4 * 4, n = b->bytes - word < 4 ? b->bytes - word : 4;
    uint32_t want = 0, got = 0;
    float want_float, got_float;
    memcpy(&want, b->expected + word, n);
    memcpy(&got, b->data + word, n);
    memcpy(&want_float, &want, 4);
    memcpy(&got_float, &got, 4);
    size_t row_bytes = b->row_bytes ? b->row_bytes : b->bytes;
    check_failed(c, "%s: %s differs at row %zu byte %zu: got %08x (%g), want %08x (%g)", when,
                 b->name, at / row_bytes, at % row_bytes, got, got_float, want, want_float);
}

static bool same_outputs(struct check *c, const char *when)
{
    for (const struct block *b = c->blocks; b < c->blocks + c->n_blocks; b++)
        if (b->role == ROLE_OUTPUT && memcmp(b->data, b->expected, b->bytes) != 0) {
            size_t at = 0;
            while (b->data[at] == b->expected[at])
                at++;
            say_difference(c, b, at, when);
            return false;
        }
    return canaries_live(c);
}

/* The outputs hold what the ranges around [begin, end) wrote, `part` what that range wrote: no byte
 * may belong to both, and together they must be the whole. */
static bool parts_make_whole(struct check *c, int begin, int end)
{
    for (const struct block *b = c->blocks; b < c->blocks + c->n_blocks; b++) {
        if (b->role != ROLE_OUTPUT)
            continue;
        for (size_t i = 0; i < b->bytes; i++) {
            bool in_part = b->part[i] != b->initial[i], in_rest = b->data[i] != b->initial[i];
            if (in_part && in_rest) {
                check_failed(c, "[%d, %d) and the rest both wrote byte %zu of %s", begin, end, i,
                             b->name);
                return false;
            }
            if (in_part)
                b->data[i] = b->part[i];
        }
    }
    char when[64];
    snprintf(when, sizeof when, "in parts around [%d, %d)", begin, end);
    return same_outputs(c, when);
}

static bool run_parts(struct check *c, int n_units)
{
    int grain = c->row->grain, n_grains = (n_units + grain - 1) / grain;
    if (n_grains < 2)
        return true;
    int first = check_below(c, n_grains), begin = first * grain;
    int end = (first + 1 + check_below(c, n_grains - first)) * grain;
    if (end > n_units)
        end = n_units;
    restore_outputs(c);
    if (!check_call(c, c->row, &c->job, begin, end) || !canaries_live(c))
        return false;
    save_outputs(c, offsetof(struct block, part));
    restore_outputs(c);
    return (begin == 0 || check_call(c, c->row, &c->job, 0, begin)) &&
           (end == n_units || check_call(c, c->row, &c->job, end, n_units)) &&
           parts_make_whole(c, begin, end);
}

bool check_run(struct check *c, int n_units, check_verify *verify, const void *context)
{
    if (c->failed)
        return false;
    save_outputs(c, offsetof(struct block, initial));
    protect_inputs(c, PROT_READ);
    if (!check_call(c, c->reference, &c->job, 0, n_units) || !canaries_live(c))
        return false;
    save_outputs(c, offsetof(struct block, expected));
    if (c->row == c->reference) {
        if (verify)
            verify(c, context);
    } else {
        restore_outputs(c);
        if (!check_call(c, c->row, &c->job, 0, n_units) || !same_outputs(c, "all"))
            return false;
    }
    return !c->failed && run_parts(c, n_units);
}

bool check_near(struct check *c, const char *what, int64_t at, double got, double want,
                double bound)
{
    if (fabs(got - want) <= bound)
        return true;
    check_failed(c, "%s[%lld] is %.9g, in double precision %.9g, bound %.3g", what, (long long)at,
                 got, want, bound);
    return false;
}

static void start(struct check *c, const struct kernel_row *row)
{
    const struct kernel_row *reference = row;
    for (int i = n_kernel_rows - 1; i >= 0; i--)
        if (kernel_rows[i].op == row->op && kernel_rows[i].packing == row->packing)
            reference = &kernel_rows[i];
    c->row = row;
    c->reference = reference;
    random_init(&c->random, c->seed);
}

void check_kernel(struct check *c, const struct kernel_row *row, uint64_t seed)
{
#define CHECK_OF(name) check_##name,
    static void (*const checks[])(struct check *) = {OP_LIST(CHECK_OF)};
#undef CHECK_OF
    *c = (struct check){.seed = seed};
    start(c, row);
    catch_crashes();
    if (!slots)
        map_slots();
    checks[row->op](c);
    protect_inputs(c, PROT_READ | PROT_WRITE);
    arena_done(&c->arena);
}

bool check_large(struct check *c, const struct kernel_row *row, const struct large *large)
{
#define LARGE_OF(name) large_##name,
    static bool (*const builders[])(struct check *, const struct large *) = {OP_LIST(LARGE_OF)};
#undef LARGE_OF
    *c = (struct check){.seed = 1, .is_large = true};
    start(c, row);
    return builders[row->op](c, large);
}

void check_done(struct check *c)
{
    if (c->is_large)
        for (const struct block *b = c->blocks; b < c->blocks + c->n_blocks; b++)
            munmap(b->data, (b->bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    c->n_blocks = 0;
    arena_done(&c->arena);
}
