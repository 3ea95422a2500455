"""Write the trained model as a GGUF file.

    python3 models/export_gguf.py --out DIR --gguf FILE

DIR is the folder of train.py.  The seven projections become TQ2_0 with exactly
the codes and scales of the training forward pass, the embedding (which is also
the output matrix) Q8_0, the norms F32.
"""
import os
import struct

import numpy as np
import torch

import bpe
import cli
from model import Config, Model, ternary

ALIGNMENT = 32
F32, Q8_0, TQ2_0 = 0, 8, 35                          # tensor type ids
U32_VALUE, I32_VALUE, F32_VALUE, BOOL_VALUE, STRING_VALUE, ARRAY_VALUE = (
    4, 5, 6, 7, 8, 9)                                # metadata type ids


def load_model(folder, name="best.pt"):
    """Return the trained model and the training state."""
    saved = torch.load(os.path.join(folder, name))
    model = Model(Config())
    model.load_state_dict(saved["model"])
    return model.eval(), saved["state"]


def string(text):
    """GGUF string: length, bytes."""
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    """One metadata pair; a list becomes an array of its kind."""
    pack = {U32_VALUE: lambda v: struct.pack("<I", v),
            I32_VALUE: lambda v: struct.pack("<i", v),
            F32_VALUE: lambda v: struct.pack("<f", v),
            BOOL_VALUE: lambda v: struct.pack("<B", v),
            STRING_VALUE: string}[kind]
    if isinstance(value, list):
        return (string(key) + struct.pack("<IIQ", ARRAY_VALUE, kind, len(value))
                + b"".join(map(pack, value)))
    return string(key) + struct.pack("<I", kind) + pack(value)


def metadata(config, tokenizer):
    """Return all metadata pairs, packed, in a list."""
    arch = "llama."
    return [
        pair("general.architecture", STRING_VALUE, "llama"),
        pair("general.type", STRING_VALUE, "model"),
        pair("general.name", STRING_VALUE, "Trine KJV 8M"),
        pair("general.description", STRING_VALUE,
             "Ternary (BitNet b1.58) language model of the King James Bible"),
        pair("general.license", STRING_VALUE,
             "MIT (weights); text in the public domain"),
        pair("general.languages", STRING_VALUE, ["en"]),
        pair("general.file_type", U32_VALUE, 37),
        pair("general.quantization_version", U32_VALUE, 2),
        pair("general.alignment", U32_VALUE, ALIGNMENT),
        pair(arch + "vocab_size", U32_VALUE, config.n_vocab),
        pair(arch + "context_length", U32_VALUE, config.n_ctx),
        pair(arch + "embedding_length", U32_VALUE, config.n_embd),
        pair(arch + "block_count", U32_VALUE, config.n_layer),
        pair(arch + "feed_forward_length", U32_VALUE, config.n_ff),
        pair(arch + "attention.head_count", U32_VALUE, config.n_head),
        pair(arch + "attention.head_count_kv", U32_VALUE, config.n_head_kv),
        pair(arch + "attention.layer_norm_rms_epsilon", F32_VALUE, config.eps),
        pair(arch + "rope.dimension_count", U32_VALUE, config.head_dim),
        pair(arch + "rope.freq_base", F32_VALUE, config.rope_base),
        pair("tokenizer.ggml.model", STRING_VALUE, "gpt2"),
        pair("tokenizer.ggml.pre", STRING_VALUE, "gpt-2"),
        pair("tokenizer.ggml.tokens", STRING_VALUE, tokenizer.tokens),
        pair("tokenizer.ggml.token_type", I32_VALUE,
             [3] + [1] * (len(tokenizer.tokens) - 1)),
        pair("tokenizer.ggml.merges", STRING_VALUE,
             [" ".join(merge) for merge in tokenizer.merges]),
        pair("tokenizer.ggml.bos_token_id", U32_VALUE, bpe.END_ID),
        pair("tokenizer.ggml.eos_token_id", U32_VALUE, bpe.END_ID),
        pair("tokenizer.ggml.add_bos_token", BOOL_VALUE, True),
        pair("tokenizer.ggml.add_eos_token", BOOL_VALUE, False),
    ]


def to_tq2_0(weight):
    """Pack a master weight [out, in]: blocks of 64 code bytes, then the scale.

    In each half block of 128 weights, byte i holds weights i, i + 32, i + 64
    and i + 96, the first in the lowest bits.
    """
    codes, scale = ternary(weight.detach())
    codes = (codes.round().to(torch.int8).numpy() + 1).astype(np.uint8)
    codes = codes.reshape(-1, 2, 4, 32)
    packed = sum(codes[:, :, i] << (2 * i) for i in range(4)).reshape(-1, 64)
    scales = np.full((len(packed), 1), scale.item(), "<f2").view(np.uint8)
    return np.concatenate([packed, scales], 1).tobytes()


def to_q8_0(weight):
    """Pack a matrix: blocks of a half-precision scale and 32 int8 values."""
    x = weight.detach().numpy().astype(np.float32).reshape(-1, 32)
    scale = np.abs(x).max(1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = x * inverse
    values = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))
    return np.concatenate([scale.astype("<f2").view(np.uint8),
                           values.astype(np.int8).view(np.uint8)], 1).tobytes()


def tensors(model):
    """Return [(name, shape as stored, type, bytes)]."""
    def f32(name, norm):
        weight = norm.weight.detach().numpy().astype("<f4")
        return name, weight.shape, F32, weight.tobytes()

    def projection(name, weight):
        return name, tuple(weight.shape)[::-1], TQ2_0, to_tq2_0(weight)

    embd = model.token_embd
    result = [("token_embd.weight", tuple(embd.shape)[::-1], Q8_0,
               to_q8_0(embd))]
    for i, block in enumerate(model.blocks):
        start = f"blk.{i}."
        q, k, v = block.qkv.weights
        gate, up = block.gate_up.weights
        result += [
            f32(start + "attn_norm.weight", block.attn_norm),
            projection(start + "attn_q.weight", q),
            projection(start + "attn_k.weight", k),
            projection(start + "attn_v.weight", v),
            projection(start + "attn_output.weight",
                       block.attn_output.weights[0]),
            f32(start + "ffn_norm.weight", block.ffn_norm),
            projection(start + "ffn_gate.weight", gate),
            projection(start + "ffn_up.weight", up),
            projection(start + "ffn_down.weight", block.ffn_down.weights[0])]
    return result + [f32("output_norm.weight", model.output_norm)]


def padding(length):
    """Zero bytes up to the next multiple of the alignment."""
    return bytes(-length % ALIGNMENT)


def write_gguf(path, pairs, all_tensors):
    """Write a GGUF version 3 file."""
    infos, data = b"", b""
    for name, shape, kind, content in all_tensors:
        infos += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape),
                                            *shape, kind, len(data))
        data += content + padding(len(content))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(all_tensors), len(pairs))
    head += b"".join(pairs) + infos
    with open(path, "wb") as file:
        file.write(head + padding(len(head)) + data)


def main():
    """Read the command line and export."""
    parser = cli.parser(__doc__)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="folder of train.py")
    parser.add_argument("--gguf", required=True, metavar="FILE")
    options = parser.parse_args()
    model, state = load_model(options.out)
    tokenizer = bpe.Tokenizer.load(os.path.join(options.out, "merges.json"))
    write_gguf(options.gguf, metadata(model.config, tokenizer), tensors(model))
    print(f"step {state['step']}, validation loss {state['best']:.4f}, "
          f"{os.path.getsize(options.gguf)} bytes")


if __name__ == "__main__":
    cli.run(main)
