/* tokenizer.model, a SentencePiece ModelProto in the wire format of protocol buffers:
 *   1  pieces, each { 1 text, 2 score (float), 3 type }
 *   2  training { 3 kind: 1 unigram, 2 BPE, ... }
 *   3  normaliser { 2 compiled map, 3 add a space in front, 4 remove extra spaces }
 * source  sentencepiece_model.proto */
#include <stdio.h>

#include "base/reader.h"
#include "convert/hf_tokenizer.h"

enum { KIND_UNIGRAM = 1, KIND_BPE = 2 };
enum { WIRE_NUMBER = 0, WIRE_8 = 1, WIRE_BYTES = 2, WIRE_4 = 5 };

/* One field of a message. */
struct field {
    uint64_t number, value; /* value: of WIRE_NUMBER, and bits of WIRE_4 */
    int wire;
    struct reader message; /* of WIRE_BYTES */
};

static uint64_t read_varint(struct reader *r)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = read_u8(r);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    r->failed = true;
    return 0;
}

/* False at the end and after damage. */
static bool next_field(struct reader *r, struct field *f)
{
    if (reader_left(r) == 0)
        return false;
    uint64_t tag = read_varint(r);
    *f = (struct field){.number = tag >> 3, .wire = (int)(tag & 7)};
    switch (f->wire) {
    case WIRE_NUMBER: f->value = read_varint(r); break;
    case WIRE_8: f->value = read_u64(r); break;
    case WIRE_4: f->value = read_u32(r); break;
    case WIRE_BYTES:
        f->message.size = (size_t)read_varint(r);
        f->message.bytes = reader_take(r, f->message.size);
        break;
    default: r->failed = true;
    }
    return !r->failed;
}

static enum status read_piece(struct hf_tokenizer *t, const char *path, struct reader *r,
                              uint32_t id, struct error *err)
{
    struct text text = {"", 0};
    uint64_t type = HF_NORMAL;
    float score = 0;
    struct field f;
    while (next_field(r, &f)) {
        if (f.number == 1 && f.wire == WIRE_BYTES)
            text = (struct text){(const char *)f.message.bytes, f.message.size};
        else if (f.number == 2 && f.wire == WIRE_4)
            memcpy(&score, &(uint32_t){(uint32_t)f.value}, sizeof score);
        else if (f.number == 3 && f.wire == WIRE_NUMBER)
            type = f.value;
    }
    if (r->failed || type < HF_NORMAL || type > HF_BYTE || score != score)
        return fail(err, STATUS_FORMAT,
                    "%s: piece %u is cut short, of type %llu (1 to 6 are known) or without a "
                    "score; the file is damaged",
                    path, id, (unsigned long long)type);
    TRY(hf_tokenizer_name(t, path, id, text, (int)type, err));
    t->scores[id] = score;
    return STATUS_OK;
}

/* Value of a number in a message, or what it is when absent. */
static uint64_t number_in(struct reader message, uint64_t number, uint64_t absent)
{
    struct field f;
    while (next_field(&message, &f))
        if (f.number == number && f.wire == WIRE_NUMBER)
            absent = f.value;
    return absent;
}

static size_t bytes_in(struct reader message, uint64_t number)
{
    struct field f;
    size_t n = 0;
    while (next_field(&message, &f))
        if (f.number == number && f.wire == WIRE_BYTES)
            n = f.message.size;
    return n;
}

/* Only merging by score, on texts as they are, can be stored. */
static enum status check_kind(struct hf_tokenizer *t, const char *path, struct reader training,
                              struct reader normaliser, struct error *err)
{
    uint64_t kind = number_in(training, 3, KIND_UNIGRAM);
    if (kind != KIND_BPE)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: a SentencePiece model of kind %llu%s; only BPE (2) can be stored in GGUF",
                    path, (unsigned long long)kind, kind == KIND_UNIGRAM ? " (unigram)" : "");
    if (bytes_in(normaliser, 2))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: texts are normalised by a table of %zu bytes, which GGUF does not store",
                    path, bytes_in(normaliser, 2));
    if (number_in(normaliser, 4, 1))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: extra spaces are removed before merging, which Trine does not do", path);
    t->add_space_prefix = number_in(normaliser, 3, 1) != 0;
    return STATUS_OK;
}

enum status hf_tokenizer_read_pieces(struct hf_tokenizer *t, const uint8_t *bytes, size_t size,
                                     const char *path, struct error *err)
{
    struct reader r = {.bytes = bytes, .size = size}, training = {0}, normaliser = {0};
    struct field f;
    uint32_t n = 0;
    t->is_spm = true;
    while (next_field(&r, &f)) {
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == 1)
            TRY(read_piece(t, path, &f.message, n++, err));
        else if (f.number == 2)
            training = f.message;
        else if (f.number == 3)
            normaliser = f.message;
    }
    if (r.failed || n == 0)
        return fail(err, STATUS_FORMAT,
                    "%s: no SentencePiece model, or cut short at byte %zu of %zu; download it "
                    "again",
                    path, r.at, size);
    return check_kind(t, path, training, normaliser, err);
}
