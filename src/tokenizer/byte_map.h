/* The printable stand-ins for bytes in byte-level BPE vocabularies: bytes 33-126, 161-172 and
 * 174-255 are the character of the same number, the other 68 in order are U+0100 upward.
 * source  Radford et al. 2019, byte-level BPE of GPT-2 */
#ifndef TRINE_TOKENIZER_BYTE_MAP_H
#define TRINE_TOKENIZER_BYTE_MAP_H

#include <stddef.h>
#include <stdint.h>

#define N_BYTE_CODES 0x144 /* one more than the largest stand-in */

struct byte_map {
    uint16_t code[256];         /* byte to code point */
    int16_t byte[N_BYTE_CODES]; /* code point to byte, -1 for none */
};

void byte_map_init(struct byte_map *map);

/* Writes the stand-ins of n bytes as UTF-8; out must hold 2 * n bytes. Returns the length. */
size_t byte_map_encode(const struct byte_map *map, const char *bytes, size_t n, char *out);

#endif
