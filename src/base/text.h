/* Text as (pointer, length), because names in files may hold any byte; and UTF-8. */
#ifndef TRINE_BASE_TEXT_H
#define TRINE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    const char *bytes; /* borrowed; not terminated */
    size_t n;
};

/* printf("%.*s", TEXT(t)): prints a text view, at most 200 bytes of it. */
#define TEXT(t) (int)((t).n < 200 ? (t).n : 200), (t).bytes

struct text text_of(const char *terminated);
bool text_equal(struct text a, struct text b);
bool text_is(struct text a, const char *terminated);
bool text_starts(struct text a, const char *prefix);
bool text_ends(struct text a, const char *suffix);

/* 64-bit FNV-1a, for hash tables. */
uint64_t text_hash(struct text t);

/* Length 1..4 of the UTF-8 sequence that begins at p and is complete and valid within n bytes
 * (no overlong forms, no surrogates, at most U+10FFFF); 0 if there is none. The code point goes to
 * *code unless it is NULL. */
int utf8_decode(const char *p, size_t n, uint32_t *code);

/* Writes code point as UTF-8, returns its length 1..4. */
int utf8_encode(uint32_t code, char out[4]);

/* How many of the last bytes begin a UTF-8 sequence that more bytes could complete: 0..3. */
int utf8_incomplete_tail(const char *p, size_t n);

#endif
