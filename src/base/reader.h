/* Little-endian cursor over bytes that may be hostile. The first read beyond the end sets `failed`
 * and every later read returns 0, so a record is read straight through and checked once. */
#ifndef TRINE_BASE_READER_H
#define TRINE_BASE_READER_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct reader {
    const uint8_t *bytes; /* borrowed */
    size_t size;          /* bytes in all */
    size_t at;            /* next byte; stays where the failing read began */
    bool failed;
};

static inline size_t reader_left(const struct reader *r)
{
    return r->failed ? 0 : r->size - r->at;
}

/* The next n bytes, or NULL (and failed) when fewer are left. */
static inline const uint8_t *reader_take(struct reader *r, uint64_t n)
{
    if (n > reader_left(r) || r->failed) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->bytes + r->at;
    r->at += (size_t)n;
    return p;
}

static inline uint8_t read_u8(struct reader *r)
{
    const uint8_t *p = reader_take(r, 1);
    return p ? p[0] : 0;
}

/* Whole words, not byte by byte: the loops around them vectorise. */
static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static inline uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static inline float load_f32(const uint8_t *p)
{
    uint32_t bits = load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t read_u16(struct reader *r)
{
    const uint8_t *p = reader_take(r, 2);
    return p ? load_u16(p) : 0;
}

static inline uint32_t read_u32(struct reader *r)
{
    const uint8_t *p = reader_take(r, 4);
    return p ? load_u32(p) : 0;
}

static inline uint64_t read_u64(struct reader *r)
{
    const uint8_t *p = reader_take(r, 8);
    return p ? load_u64(p) : 0;
}

static inline void store_u16(uint8_t *p, uint16_t v)
{
    v = htole16(v);
    memcpy(p, &v, sizeof v);
}

static inline void store_u32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof v);
}

static inline void store_u64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof v);
}

static inline void store_f32(uint8_t *p, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    store_u32(p, bits);
}

#endif
