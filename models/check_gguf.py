"""Read the GGUF file from disk and run it in float64 with NumPy alone.

    python3 models/check_gguf.py models/trine-kjv.gguf [--golden FILE]
        [--heldout FILE] [--prompt TEXT [--tokens N] [--seed N]]

--golden   greedy ids and logits must be those of the golden file
--heldout  print the perplexity of a text
--prompt   sample a continuation (temperature 0.8, top-p 0.95)
Shares nothing with the training program but the tokenizer, whose merges come
from the file.
"""
import json
import math
import struct
import sys

import numpy as np

import bpe
import cli

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f",
           7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Reader:
    """A position in the bytes of the file."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        """Read one number of a struct format."""
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        """Read a length and that many bytes."""
        length = self.number("<Q")
        self.at += length
        return self.data[self.at - length:self.at].decode("utf-8")

    def value(self, kind):
        """Read a metadata value."""
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, count = self.number("<I"), self.number("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.number(SCALARS[kind])


def decode_f32(raw, rows, width):
    """Return [rows, width]."""
    return np.frombuffer(raw, "<f4", rows * width).astype(np.float64)


def decode_q8_0(raw, rows, width):
    """Blocks of 34 bytes: scale, 32 values."""
    raw = np.frombuffer(raw, np.uint8, rows * width // 32 * 34).reshape(-1, 34)
    scale = raw[:, :2].copy().view("<f2").astype(np.float64)
    return raw[:, 2:].view(np.int8) * scale


def decode_tq2_0(raw, rows, width):
    """Blocks of 66 bytes: 64 bytes of codes, scale."""
    raw = np.frombuffer(raw, np.uint8, rows * width // 256 * 66).reshape(-1, 66)
    scale = raw[:, 64:].copy().view("<f2").astype(np.float64)
    values = np.empty((len(raw), 256))
    for j in range(256):
        byte = raw[:, 32 * (j // 128) + j % 32]
        values[:, j] = (byte >> (2 * (j % 128 // 32)) & 3).astype(int) - 1
    return values * scale


DECODERS = {0: decode_f32, 8: decode_q8_0, 35: decode_tq2_0}


def read_gguf(path):
    """Return metadata and weights {name: float64 array [out, in] or [n]}."""
    with open(path, "rb") as file:
        reader = Reader(file.read())
    if reader.number("4s") != b"GGUF" or reader.number("<I") != 3:
        raise ValueError(f"{path}: not a GGUF file of version 3")
    n_tensors, n_pairs = reader.number("<Q"), reader.number("<Q")
    meta, infos, weights = {}, [], {}
    for _ in range(n_pairs):
        key = reader.string()
        meta[key] = reader.value(reader.number("<I"))
    for _ in range(n_tensors):
        name = reader.string()
        shape = [reader.number("<Q") for _ in range(reader.number("<I"))]
        infos.append((name, shape, reader.number("<I"), reader.number("<Q")))
    alignment = meta.get("general.alignment", 32)
    start = (reader.at + alignment - 1) // alignment * alignment
    for name, shape, kind, offset in infos:
        rows = shape[1] if len(shape) > 1 else 1
        flat = DECODERS[kind](reader.data[start + offset:], rows, shape[0])
        weights[name] = flat.reshape(shape[::-1])
    return meta, weights


class Llama:
    """Forward pass over decoded weights; no rounding of activations."""

    def __init__(self, path):
        self.meta, self.weights = read_gguf(path)

        def key(name):
            return self.meta["llama." + name]

        self.n_layer = key("block_count")
        self.n_head = key("attention.head_count")
        self.n_kv = key("attention.head_count_kv")
        self.head_dim = key("embedding_length") // self.n_head
        self.n_ctx = key("context_length")
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.base = key("rope.freq_base")
        self.tokenizer = bpe.Tokenizer(
            merge.split(" ") for merge in self.meta["tokenizer.ggml.merges"])
        if self.tokenizer.tokens != self.meta["tokenizer.ggml.tokens"]:
            raise ValueError("token list does not follow from the merges")

    def norm(self, x, name):
        """x [time, n] -> same shape."""
        mean = np.mean(x * x, -1, keepdims=True)
        return x / np.sqrt(mean + self.eps) * self.weights[name + ".weight"]

    def linear(self, x, name):
        """x [time, in] -> [time, out]."""
        return x @ self.weights[name + ".weight"].T

    def rotate(self, x):
        """Turn the adjacent pairs of x [time, head, head_dim]."""
        pair = np.arange(0, self.head_dim, 2)
        angle = np.arange(len(x))[:, None] * self.base ** (-pair / self.head_dim)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., ::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., ::2], out[..., 1::2] = a * cos - b * sin, a * sin + b * cos
        return out

    def attention(self, x, start):
        """x [time, n_embd] -> same shape."""
        time = len(x)
        q = self.linear(x, start + "attn_q").reshape(time, self.n_head, -1)
        k = self.linear(x, start + "attn_k").reshape(time, self.n_kv, -1)
        v = self.linear(x, start + "attn_v").reshape(time, self.n_kv, -1)
        q, k = self.rotate(q), self.rotate(k)
        future = np.triu(np.ones((time, time), bool), 1)
        heads = []
        for h in range(self.n_head):
            g = h // (self.n_head // self.n_kv)
            scores = q[:, h] @ k[:, g].T / math.sqrt(self.head_dim)
            scores[future] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, g])
        return self.linear(np.concatenate(heads, -1), start + "attn_output")

    def logits(self, ids):
        """List of ids -> logits [time, n_vocab]."""
        x = self.weights["token_embd.weight"][ids]
        for i in range(self.n_layer):
            start = f"blk.{i}."
            x = x + self.attention(self.norm(x, start + "attn_norm"), start)
            y = self.norm(x, start + "ffn_norm")
            gate = self.linear(y, start + "ffn_gate")
            y = gate / (1 + np.exp(-gate)) * self.linear(y, start + "ffn_up")
            x = x + self.linear(y, start + "ffn_down")
        return self.linear(self.norm(x, "output_norm"), "token_embd")


def greedy(logits_of, ids, count):
    """Return `count` greedy ids and the logits row each was taken from."""
    ids, rows = list(ids), []
    for _ in range(count):
        rows.append(logits_of(ids)[-1])
        ids.append(int(np.argmax(rows[-1])))
    return ids[-count:], np.stack(rows)


def chunk_loss(logits_of, tokens, n_ctx):
    """Mean -log P per token: chunks of n_ctx tokens, each after a BOS.

    Every token is scored; the last one of a chunk is not fed, so a chunk
    takes n_ctx positions.  The last chunk may be shorter.
    """
    loss = 0.0
    for at in range(0, len(tokens), n_ctx):
        chunk = tokens[at:at + n_ctx]
        logits = logits_of([bpe.END_ID] + chunk[:-1])
        top = logits.max(-1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
        loss += float((log_sum - logits[np.arange(len(chunk)), chunk]).sum())
    return loss / len(tokens)


def print_loss(label, loss, n_tokens, text):
    """Print perplexity per token and per byte; END marks are no bytes."""
    n_bytes = len(text.replace(bpe.END, "").encode("utf-8"))
    per_byte = loss * n_tokens / n_bytes
    print(f"{label}: {n_tokens} tokens, {n_bytes} bytes, perplexity "
          f"{math.exp(loss):.3f} per token, {math.exp(per_byte):.4f} per byte, "
          f"{per_byte / math.log(2):.4f} bits per byte")


def sample(model, prompt, count, seed):
    """Return prompt and continuation at temperature 0.8, top-p 0.95."""
    random = np.random.default_rng(seed)
    ids = [bpe.END_ID] + model.tokenizer.encode(prompt)
    for _ in range(min(count, model.n_ctx - len(ids))):
        logits = model.logits(ids)[-1] / 0.8
        p = np.exp(logits - logits.max())
        p /= p.sum()
        order = np.argsort(-p)
        kept = order[np.cumsum(p[order]) - p[order] < 0.95]
        ids.append(int(random.choice(kept, p=p[kept] / p[kept].sum())))
        if ids[-1] == bpe.END_ID:
            break
    return model.tokenizer.decode(ids)


def check_golden(model, path):
    """Compare with the golden file; return whether all is equal."""
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    good = True
    for case in golden["tokenizer"]:
        good &= model.tokenizer.encode(case["text"]) == case["ids"]
    ids, rows = greedy(model.logits, golden["prompt_ids"],
                       len(golden["greedy_ids"]))
    good &= ids == golden["greedy_ids"]
    worst = max(np.abs(rows[int(at)] - np.array(row)).max()
                for at, row in golden["exact"]["logits"].items())
    good &= bool(worst < 1e-5)
    print(f"golden: {'equal' if good else 'DIFFERENT'}; "
          f"largest logit difference {worst:.2g}")
    return good


def main():
    """Read the command line."""
    parser = cli.parser(__doc__)
    parser.add_argument("gguf")
    parser.add_argument("--golden", metavar="FILE")
    parser.add_argument("--heldout", metavar="FILE")
    parser.add_argument("--prompt", metavar="TEXT")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = Llama(options.gguf)
    if options.prompt is not None:
        print(sample(model, options.prompt, options.tokens, options.seed))
    if options.heldout:
        with open(options.heldout, encoding="utf-8") as file:
            text = file.read()
        tokens = model.tokenizer.encode(text)
        loss = chunk_loss(model.logits, tokens, model.n_ctx)
        print_loss("decoded file, float64 activations", loss, len(tokens), text)
    if options.golden and not check_golden(model, options.golden):
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main)
