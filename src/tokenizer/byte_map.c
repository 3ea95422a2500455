#include "tokenizer/byte_map.h"

#include <stdbool.h>

#include "base/text.h"

static bool stands_for_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void byte_map_init(struct byte_map *map)
{
    uint16_t next = 0x100;
    for (int code = 0; code < N_BYTE_CODES; code++)
        map->byte[code] = -1;
    for (int byte = 0; byte < 256; byte++) {
        map->code[byte] = stands_for_itself(byte) ? (uint16_t)byte : next++;
        map->byte[map->code[byte]] = (int16_t)byte;
    }
}

size_t byte_map_encode(const struct byte_map *map, const char *bytes, size_t n, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        char code[4];
        int code_bytes = utf8_encode(map->code[(uint8_t)bytes[i]], code);
        for (int k = 0; k < code_bytes; k++)
            out[length++] = code[k];
    }
    return length;
}
