"""Byte-level BPE with GPT-2's byte alphabet and GPT-2's split expression."""
import heapq
import json
import re
import unicodedata
from collections import Counter, defaultdict

END = "<|endoftext|>"     # id 0: begins a text (BOS) and ends one (EOS)
END_ID = 0

# GPT-2's expression is
#   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
# `re` has no \p classes, so the part after the contractions is matched on a
# copy of the text in which each character is replaced by its class:
# L letter, N number, ' ' the space itself, W other white space, P the rest.
CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")
CLASSES = re.compile(r" ?L+| ?N+| ?P+|[ W]+(?![LNP])|[ W]+")
WHITE_SPACE = set(map(chr, [*range(9, 14), 0x85, 0xA0, 0x1680,
                            *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
                            0x205F, 0x3000]))


def byte_alphabet():
    """Return the 256 printable characters that stand for the byte values."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters, extra = [], 256
    for byte in range(256):
        if byte in plain:
            letters.append(chr(byte))
        else:
            letters.append(chr(extra))
            extra += 1
    return letters


ALPHABET = byte_alphabet()


def char_class(char):
    """Return the class letter of one character (see CLASSES)."""
    if char == " ":
        return " "
    if char in WHITE_SPACE:
        return "W"
    kind = unicodedata.category(char)[0]
    return kind if kind in "LN" else "P"


def pieces(text):
    """Cut text into the pieces within which merges may happen."""
    classes = "".join(map(char_class, text))
    result, at = [], 0
    while at < len(text):
        match = CONTRACTION.match(text, at) or CLASSES.match(classes, at)
        result.append(text[at:match.end()])
        at = match.end()
    return result


def to_alphabet(piece):
    """Return the list of alphabet characters of the piece's UTF-8 bytes."""
    return [ALPHABET[byte] for byte in piece.encode("utf-8")]


def merge_once(symbols, pair):
    """Join every occurrence of pair in the list, left to right."""
    result, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            result.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            result.append(symbols[i])
            i += 1
    return result


def learn_merges(texts, count):
    """Return the `count` most useful merges, [(left, right)] in rank order.

    Classic BPE: join the most frequent adjacent pair, again and again.  Equal
    counts go to the pair that sorts first, so the result is reproducible.
    """
    frequency = Counter(piece for text in texts for piece in pieces(text))
    words = [(to_alphabet(piece), n) for piece, n in sorted(frequency.items())]
    pair_count, where = Counter(), defaultdict(set)
    for index, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pair_count[pair] += n
            where[pair].add(index)
    heap = [(-n, pair) for pair, n in pair_count.items()]
    heapq.heapify(heap)
    merges = []
    while heap and len(merges) < count:
        negative, pair = heapq.heappop(heap)
        if pair_count[pair] != -negative:
            continue                                # an outdated entry
        merges.append(pair)
        changed = set()
        for index in where.pop(pair):
            symbols, n = words[index]
            for old in zip(symbols, symbols[1:]):
                pair_count[old] -= n
                changed.add(old)
            symbols = merge_once(symbols, pair)
            words[index] = (symbols, n)
            for new in zip(symbols, symbols[1:]):
                pair_count[new] += n
                where[new].add(index)
                changed.add(new)
        for other in changed:
            if pair_count[other] > 0:
                heapq.heappush(heap, (-pair_count[other], other))
    return merges


class Tokenizer:
    """Encoder and decoder; ids: END, the 256 bytes, then one per merge."""

    def __init__(self, merges):
        self.merges = [tuple(pair) for pair in merges]
        self.tokens = [END] + ALPHABET + [a + b for a, b in self.merges]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            raise ValueError("two merges give the same token")
        self.rank = {pair: i for i, pair in enumerate(self.merges)}
        self.cache = {}

    def encode_piece(self, piece):
        """Return the ids of one piece: lowest merge rank first."""
        if piece not in self.cache:
            symbols = to_alphabet(piece)
            while len(symbols) > 1:
                best = min(zip(symbols, symbols[1:]),
                           key=lambda pair: self.rank.get(pair, 1 << 30))
                if best not in self.rank:
                    break
                symbols = merge_once(symbols, best)
            self.cache[piece] = [self.ids[s] for s in symbols]
        return self.cache[piece]

    def encode(self, text):
        """Return the ids of text; END in the text becomes its own id."""
        result = []
        for number, part in enumerate(text.split(END)):
            if number:
                result.append(END_ID)
            for piece in pieces(part):
                result += self.encode_piece(piece)
        return result

    def decode(self, ids):
        """Return the text of ids; END is left out."""
        byte_of = {letter: byte for byte, letter in enumerate(ALPHABET)}
        data = bytes(byte_of[c] for i in ids if i != END_ID
                     for c in self.tokens[i])
        return data.decode("utf-8", errors="replace")

    def save(self, path):
        """Write the merges as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.merges, file)

    @classmethod
    def load(cls, path):
        """Read what save() wrote."""
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file))
