#include <ctype.h>
#include <strings.h>

#include "gguf/gguf_parse.h"

#define GET_THE_GGUF "look for a file of this model that ends in .gguf"
#define OLD_GGML     "an old ggml file (before GGUF)"
#define CONVERT_OLD  "download the model again as GGUF"

static const struct signature {
    const char *bytes;
    size_t n;
    const char *kind, *advice;
} signatures[] = {
    {"version https://git-lfs", 23, "a Git LFS pointer, not the file it stands for",
     "fetch the file itself with `git lfs pull`, or download it"},
    {"\x1f\x8b", 2, "a gzip archive", "unpack it first"},
    {"PK\3\4", 4, "a zip archive, as PyTorch checkpoints are", "unpack it or convert it to GGUF"},
    {"\xfd\x37zXZ", 5, "an xz archive", "unpack it first"},
    {"\x28\xb5\x2f\xfd", 4, "a zstd archive", "unpack it first"},
    {"BZh", 3, "a bzip2 archive", "unpack it first"},
    {"7z\xbc\xaf", 4, "a 7z archive", "unpack it first"},
    {"\x80\2", 2, "a Python pickle, as PyTorch checkpoints are", "convert it to GGUF"},
    {"%PDF", 4, "a PDF document", GET_THE_GGUF},
    {"\x7f"
     "ELF",
     4, "a program", GET_THE_GGUF},
    /* the old magics were numbers, so on disk they read backwards */
    {"lmgg", 4, OLD_GGML, CONVERT_OLD},
    {"fmgg", 4, OLD_GGML, CONVERT_OLD},
    {"tjgg", 4, OLD_GGML, CONVERT_OLD},
    {"algg", 4, "an old ggml adapter (before GGUF)", CONVERT_OLD},
    {"ggml", 4, OLD_GGML, CONVERT_OLD},
    {"ggmf", 4, OLD_GGML, CONVERT_OLD},
    {"ggjt", 4, OLD_GGML, CONVERT_OLD},
    {"ggla", 4, "an old ggml adapter (before GGUF)", CONVERT_OLD},
    {"FUGG", 4, "a GGUF file with its bytes swapped", "convert it for little-endian machines"},
};

static enum status refuse(struct error *err, const char *path, const char *kind, const char *advice)
{
    return fail(err, STATUS_FORMAT, "%s: not a GGUF file: it begins like %s; %s", path, kind,
                advice);
}

static bool is_safetensors(const uint8_t *bytes, size_t size)
{
    return size > 8 && bytes[8] == '{' && load_u64(bytes) < (uint64_t)1 << 40;
}

enum { TEXT_WINDOW = 32 };

/* The first bytes are all text: no control characters but white space, no broken UTF-8. */
static bool is_text(const uint8_t *bytes, size_t size)
{
    size_t n = size < TEXT_WINDOW ? size : TEXT_WINDOW;
    for (size_t i = 0; i < n;) {
        int length = utf8_decode((const char *)bytes + i, n - i, NULL);
        if (length == 0)
            return size > n && n - i < 4; /* only cut by the window */
        if (length == 1 && !isprint(bytes[i]) && !isspace(bytes[i]))
            return false;
        i += (size_t)length;
    }
    return true;
}

static enum status refuse_text(const uint8_t *bytes, size_t size, const char *path,
                               struct error *err)
{
    size_t start = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (start < size && isspace(bytes[start]))
        start++;
    const char *rest = (const char *)bytes + start;
    size_t left = size - start;
    if (left >= 5 && strncasecmp(rest, "<?xml", 5) == 0)
        return refuse(err, path, "an XML document",
                      "download the file itself; a server may have sent an error instead");
    if (left > 0 && rest[0] == '<')
        return refuse(err, path, "an HTML page", "download the file itself, not the page about it");
    if (left > 0 && (rest[0] == '{' || rest[0] == '['))
        return refuse(err, path, "a JSON text", GET_THE_GGUF);
    return refuse(err, path, "a plain text", GET_THE_GGUF);
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size && i < 256; i++)
        if (bytes[i])
            return false;
    return true;
}

enum status gguf_refuse_foreign(const uint8_t *bytes, size_t size, const char *path,
                                struct error *err)
{
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const struct signature *s = &signatures[i];
        if (size >= s->n && memcmp(bytes, s->bytes, s->n) == 0)
            return refuse(err, path, s->kind, s->advice);
    }
    if (is_safetensors(bytes, size))
        return refuse(err, path, "a safetensors file", "convert it to GGUF");
    if (is_zero(bytes, size))
        return refuse(err, path, "an unfinished download (only zero bytes)", "download it again");
    if (is_text(bytes, size))
        return refuse_text(bytes, size, path, err);
    uint8_t first[4] = {0};
    memcpy(first, bytes, size < 4 ? size : 4);
    return fail(err, STATUS_FORMAT,
                "%s: not a GGUF file: it begins with bytes %02x %02x %02x %02x, expected "
                "47 47 55 46 (GGUF); download it again, or look for a .gguf file",
                path, first[0], first[1], first[2], first[3]);
}
