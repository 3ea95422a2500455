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

/* Hashes for tables of strangers' names and numbers. They differ from process to process, so that
 * no file can be made whose names all collide. */
uint64_t text_hash(struct text t);
uint64_t number_hash(uint64_t number);

/* Characters that would move a terminal's cursor or turn the direction of its text: controls of
 * both sets, line separators, bidirectional marks, the byte order mark. */
bool disturbs_terminal(uint32_t code);

/* Makes n bytes of text safe to print: such characters and bytes that are no UTF-8 become '?'.
 * Returns the new length, at most n. */
size_t text_make_printable(char *bytes, size_t n);

/* A printable, terminated copy of at most size - 1 bytes, for names in output. */
const char *text_printable(struct text t, char *out, size_t size);

/* Length 1..4 of the UTF-8 sequence that begins at p and is complete and valid within n bytes
 * (no overlong forms, no surrogates, at most U+10FFFF); 0 if there is none. The code point goes to
 * *code unless it is NULL. */
int utf8_decode(const char *p, size_t n, uint32_t *code);

/* Writes code point as UTF-8, returns its length 1..4. */
int utf8_encode(uint32_t code, char out[4]);

/* How many of the last bytes begin a UTF-8 sequence that more bytes could complete: 0..3. */
int utf8_incomplete_tail(const char *p, size_t n);

#endif
