#include "base/text.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

struct text text_of(const char *terminated)
{
    return (struct text){terminated, strlen(terminated)};
}

bool text_equal(struct text a, struct text b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.bytes, b.bytes, a.n) == 0);
}

bool text_is(struct text a, const char *terminated)
{
    return text_equal(a, text_of(terminated));
}

bool text_starts(struct text a, const char *prefix)
{
    size_t n = strlen(prefix);
    return a.n >= n && memcmp(a.bytes, prefix, n) == 0;
}

bool text_ends(struct text a, const char *suffix)
{
    size_t n = strlen(suffix);
    return a.n >= n && memcmp(a.bytes + a.n - n, suffix, n) == 0;
}

/* One number for the life of the process. */
static uint64_t hash_seed(void)
{
    static _Atomic uint64_t seed;
    uint64_t value = seed;
    if (value)
        return value;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
        value = (uint64_t)(uintptr_t)&value ^ (uint64_t)clock_ns();
    uint64_t unset = 0;
    value |= 1; /* never the mark of an unset seed */
    return atomic_compare_exchange_strong(&seed, &unset, value) ? value : unset;
}

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Eight bytes per multiplication; the seed enters both factors, so that no names collide for every
 * seed. */
uint64_t text_hash(struct text t)
{
    uint64_t seed = hash_seed(), hash = seed ^ t.n;
    for (size_t i = 0; i < t.n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, t.bytes + i, t.n - i < 8 ? t.n - i : 8);
        hash = fold(hash ^ word, seed ^ 0x9e3779b97f4a7c14u);
    }
    return fold(hash, 0xd6e8feb86659fd93u);
}

uint64_t number_hash(uint64_t number)
{
    uint64_t seed = hash_seed();
    return fold(fold(number ^ seed, seed ^ 0x9e3779b97f4a7c14u), 0xd6e8feb86659fd93u);
}

/* Length that the first byte announces, and the bits it carries; 0 for a byte that begins nothing.
 */
static int sequence_length(uint8_t first, uint32_t *bits)
{
    if (first < 0x80)
        return *bits = first, 1;
    if (first >= 0xc2 && first <= 0xdf)
        return *bits = first & 0x1f, 2;
    if ((first & 0xf0) == 0xe0)
        return *bits = first & 0x0f, 3;
    if (first >= 0xf0 && first <= 0xf4)
        return *bits = first & 0x07, 4;
    return 0;
}

/* True if the second byte keeps the sequence free of overlong forms, surrogates and excess. */
static bool second_byte_fits(uint8_t first, uint8_t second)
{
    if ((second & 0xc0) != 0x80)
        return false;
    switch (first) {
    case 0xe0: return second >= 0xa0;
    case 0xed: return second <= 0x9f;
    case 0xf0: return second >= 0x90;
    case 0xf4: return second <= 0x8f;
    default: return true;
    }
}

int utf8_decode(const char *p, size_t n, uint32_t *code)
{
    uint32_t value;
    int length = n ? sequence_length((uint8_t)p[0], &value) : 0;
    if (length == 0 || (size_t)length > n)
        return 0;
    if (length > 1 && !second_byte_fits((uint8_t)p[0], (uint8_t)p[1]))
        return 0;
    for (int i = 1; i < length; i++) {
        if (((uint8_t)p[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((uint8_t)p[i] & 0x3f);
    }
    if (code)
        *code = value;
    return length;
}

int utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

int utf8_incomplete_tail(const char *p, size_t n)
{
    for (int back = 1; back <= 3 && (size_t)back <= n; back++) {
        uint8_t byte = (uint8_t)p[n - (size_t)back];
        if ((byte & 0xc0) == 0x80)
            continue;
        uint32_t bits;
        int length = sequence_length(byte, &bits);
        if (length <= back)
            return 0;
        if (back > 1 && !second_byte_fits(byte, (uint8_t)p[n - (size_t)back + 1]))
            return 0;
        return back;
    }
    return 0;
}

bool disturbs_terminal(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200e && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff;
}

size_t text_make_printable(char *bytes, size_t n)
{
    size_t to = 0;
    for (size_t from = 0; from < n;) {
        uint32_t code;
        int length = utf8_decode(bytes + from, n - from, &code);
        if (length == 0 || disturbs_terminal(code)) {
            bytes[to++] = '?';
            from += length ? (size_t)length : 1;
            continue;
        }
        memmove(bytes + to, bytes + from, (size_t)length);
        to += (size_t)length;
        from += (size_t)length;
    }
    return to;
}

const char *text_printable(struct text t, char *out, size_t size)
{
    size_t n = t.n < size ? t.n : size - 1;
    memcpy(out, t.bytes, n);
    out[text_make_printable(out, n)] = 0;
    return out;
}
