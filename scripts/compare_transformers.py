#!/usr/bin/env python3
"""Compares `trine logits --reference` with PyPI's `transformers` on the same GGUF files: the weights
are read (and dequantised) by PyPI's `gguf`, put into the class of transformers that has the
architecture, and both run the same tokens. Neither program shares a line with the other. Not run by
the tests: it needs torch. In a folder for it:

    python3 -m venv venv && venv/bin/pip install torch transformers gguf numpy
    venv/bin/python scripts/compare_transformers.py build/release/trine            # synthetic models
    venv/bin/python scripts/compare_transformers.py build/release/trine FILE...    # these files

Without files it writes one with `trine synth --shape tiny --arch A --type T` for every architecture (llama
also with biases) and every T of --types. Printed is the largest difference of a logit, divided
by the root mean square of all logits: against transformers in float32, as it runs by default, and in
float64 (in which its norms and angles stay float32). Exit 1 if a float64 one is above --bound.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers

# Architecture: class of transformers, its activation, whether q and k lie in adjacent pairs.
CLASSES = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, "silu", True),
    "qwen2": (transformers.Qwen2ForCausalLM, transformers.Qwen2Config, "silu", False),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config, "silu", False),
    "bitnet-b1.58": (transformers.BitNetForCausalLM, transformers.BitNetConfig, "relu2", False),
    "bitnet-25": (transformers.BitNetForCausalLM, transformers.BitNetConfig, "relu2", False),
    # 1bitLLM's class is not in transformers; but for the activation it is that of BitNet
    "bitnet": (transformers.BitNetForCausalLM, transformers.BitNetConfig, "silu", False),
}

MODEL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
}


def value(reader, key, default=None):
    field = reader.fields.get(key)
    return default if field is None else field.contents()


def hf_name(name):
    """blk.0.attn_q.weight -> model.layers.0.self_attn.q_proj.weight"""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"
    return f"{MODEL_NAMES[parts[0]]}.{parts[1]}"


def halves(rows, n_head):
    """Rows of q and k whose pairs are neighbours, as transformers has them: in two halves of a head."""
    pairs = rows.reshape(n_head, rows.shape[0] // n_head // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def read_weights(reader, is_adjacent, n_head, n_head_kv):
    weights, factors = {}, None
    for t in reader.tensors:
        data = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        if t.name == "rope_freqs.weight":
            factors = data
            continue
        if is_adjacent and ".attn_q." in t.name:
            data = halves(data, n_head)
        if is_adjacent and ".attn_k." in t.name:
            data = halves(data, n_head_kv)
        weights[hf_name(t.name)] = torch.from_numpy(np.array(data))
    return weights, factors


def rope_of(get, n_ctx):
    """Context extension as transformers describes it."""
    rope = {"rope_type": "default", "rope_theta": float(get("rope.freq_base", 10000.0))}
    kind, factor = get("rope.scaling.type", "none"), float(get("rope.scaling.factor", 0.0) or 0.0)
    if kind in ("linear", "yarn") and factor:
        rope |= {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        own = 0.1 * np.log(factor) + 1 if factor > 1 else 1.0
        rope |= {"original_max_position_embeddings": int(get("rope.scaling.original_context_length", n_ctx)),
                 "attention_factor": float(get("rope.scaling.attn_factor", 1.0) * own)}
    return rope


def load(path):
    """The model in transformers, every parameter taken from the file and every tensor used."""
    reader = gguf.GGUFReader(path)
    arch = value(reader, "general.architecture")
    if arch not in CLASSES:
        raise ValueError(f"architecture {arch} is not run by trine")

    def get(key, default=None):
        return value(reader, f"{arch}.{key}", default)

    cls, config_class, activation, is_adjacent = CLASSES[arch]
    n_head, n_ctx = int(get("attention.head_count")), int(get("context_length"))
    n_head_kv = int(get("attention.head_count_kv", n_head))
    weights, factors = read_weights(reader, is_adjacent, n_head, n_head_kv)
    is_tied = "lm_head.weight" not in weights
    if is_tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    config = config_class(
        vocab_size=weights["model.embed_tokens.weight"].shape[0], hidden_size=int(get("embedding_length")),
        intermediate_size=int(get("feed_forward_length")), num_hidden_layers=int(get("block_count")),
        num_attention_heads=n_head, num_key_value_heads=n_head_kv,
        head_dim=int(get("attention.key_length", get("embedding_length") // n_head)),
        max_position_embeddings=n_ctx, rms_norm_eps=float(get("attention.layer_norm_rms_epsilon")),
        hidden_act=activation, tie_word_embeddings=is_tied, rope_parameters=rope_of(get, n_ctx),
        attention_bias=any("self_attn.q_proj.bias" in w for w in weights),
        mlp_bias=any("mlp.up_proj.bias" in w for w in weights), attn_implementation="eager",
        bos_token_id=0, eos_token_id=0)
    model = cls(config).to(torch.float32).eval()
    missing, unused = model.load_state_dict(weights, strict=False)
    if missing or unused:
        raise ValueError(f"{cls.__name__} lacks {unused[:1]}, the file lacks {missing[:1]}")
    if factors is not None:
        model.model.rotary_emb.inv_freq /= torch.from_numpy(factors.reshape(-1))
    return arch, model


def compare(trine, path, n_tokens):
    arch, model = load(path)
    n_vocab = model.config.vocab_size
    tokens = np.random.default_rng(1).integers(0, n_vocab, n_tokens).tolist()
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([trine, "logits", path, "--reference", "-q", "-o", out.name, "--tokens",
                        ",".join(map(str, tokens))], check=True)
        ours = np.fromfile(out.name, "<f4").reshape(n_tokens, n_vocab).astype(np.float64)
    differences = []
    for dtype in (torch.float32, torch.float64):
        with torch.no_grad():
            theirs = model.to(dtype)(torch.tensor([tokens])).logits[0].double().numpy()
        differences.append(np.abs(ours - theirs).max() / np.sqrt((theirs**2).mean()))
    return arch, type(model).__name__, differences


def synthetic(trine, folder, types):
    for type_name in types:
        for arch in CLASSES:
            # qwen2 always has biases, qwen3 none; BitNet's feed-forward has no place for them here
            for biases in ([], ["--biases"]) if arch == "llama" else ([],):
                path = os.path.join(folder, f"{arch}-{type_name}{'-biases' if biases else ''}.gguf")
                command = [trine, "synth", "--shape", "tiny", "--arch", arch, "--type", type_name, "-o", path]
                subprocess.run(command + biases, check=True, stderr=subprocess.DEVNULL)
                yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trine")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--types", default="F32,BF16", help="of the synthetic projections")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--bound", type=float, default=1e-5)
    o = parser.parse_args()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, gguf-py, {o.tokens} tokens")
    worst, n_compared = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for path in o.files or synthetic(o.trine, folder, o.types.split(",")):
            try:
                arch, name, (single, double) = compare(o.trine, path, o.tokens)
            except ValueError as problem:
                print(f"{os.path.basename(path):32} not compared: {problem}")
                continue
            print(f"{os.path.basename(path):32} {arch:13} {name:20} float32 {single:.2e}  float64 {double:.2e}",
                  flush=True)
            n_compared += 1
            if not double <= worst:  # NaN too
                worst = double
    sys.exit(not worst <= o.bound or n_compared == 0)


if __name__ == "__main__":
    main()
