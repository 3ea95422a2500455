#!/usr/bin/env python3
"""Makes the Hugging Face folders of tests/convert/data: tiny models of random weights that
`transformers` itself saves, and in each an expected.json with what `transformers` says of it
(logits of some tokens) and what its tokenizer makes of some texts. Not run by the tests: the
folders are in the tree. To make them again:

    python3 -m venv venv && venv/bin/pip install torch transformers sentencepiece numpy
    venv/bin/python scripts/make_convert_data.py tests/convert/data

Where a folder stores packed or unrounded BitNet weights, the logits are those of a float model
with the weights that transformers' own pack_weights, BitLinear, AutoBitLinear and WeightQuant stand
for; activations are not rounded, as in `trine logits --reference`.
"""
import json
import os
import shutil
import sys

import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.integrations.bitnet import WeightQuant, pack_weights

os.environ["TORCHDYNAMO_DISABLE"] = "1"

CORPUS = """In the beginning was the word, and the word was made of letters. They're counted: 1, 22, 333, 4444
times over; it's what the counting of the letters and the words is for. The other one, the one that was there
before, isn't there any more!  Two spaces, a tab\tand the end of the line.
Ein größeres Wort, ein schönes Wort: Straße.\n\n"""

TEXTS = [
    "In the beginning",
    "they're 1234567 words, isn't it?",
    "  two spaces\tand\n\n a line end \n",
    "Straße — größer \u4e2d\u6587 \U0001f600",
    "<|end|>the end<|end|>",
]
TOKENS = [1, 77, 200, 33]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level_bpe(regex, ignore_merges, specials, n_vocab, bos):
    """A byte-level BPE tokenizer of n_vocab tokens, specials last."""
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    if not ignore_merges:
        tok.normalizer = normalizers.NFC()
    tok.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=n_vocab - len(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens(specials[:-1])
    tok.add_tokens(specials[-1:])  # one that is no control token
    if bos:
        tok.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(f"{bos} $A", f"{bos} $A {bos}:1 $B:1",
                                          [(bos, tok.token_to_id(bos))])])
    else:
        tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def seed_weights(model, seed):
    """Weights whose activations stay near 1, gains and biases that show when left out."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                p.copy_(torch.randn(p.shape, generator=g) / p.shape[1] ** 0.5)
            elif name.endswith("bias"):
                p.copy_(torch.rand(p.shape, generator=g) * 0.5 - 0.25)
            else:
                p.copy_(torch.rand(p.shape, generator=g) * 0.5 + 0.75)
    return model


def projections(model):
    return [(n, p) for n, p in model.named_parameters() if "_proj.weight" in n]


def logits_of(model):
    model = model.to(torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].tolist()


def write_expected(folder, logits, encode, note, texts=TEXTS):
    expected = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "note": note,
        "tokens": TOKENS,
        "logits": [[float(f"{v:.7g}") for v in row] for row in logits],
        "texts": [{"text": t, "ids": encode(t)} for t in texts],
    }
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(expected, f, ensure_ascii=True)
        f.write("\n")


def save_tokenizer(folder, tok, **names):
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tok, **names)
    fast.chat_template = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}")
    fast.save_pretrained(folder)
    return lambda text: transformers.AutoTokenizer.from_pretrained(folder)(text).input_ids


def reload(cls, folder):
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def llama(root):
    """Ordinary weights in BF16, own output matrix, llama3 RoPE scaling, two shards."""
    folder = os.path.join(root, "llama")
    tok = byte_level_bpe(LLAMA3, True, ["<|begin_of_text|>", "<|eot_id|>", "<|end|>"], 288, "<|begin_of_text|>")
    config = transformers.LlamaConfig(
        vocab_size=288, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
        bos_token_id=285, eos_token_id=286,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64})
    model = seed_weights(transformers.LlamaForCausalLM(config), 1).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="40KB")
    encode = save_tokenizer(folder, tok, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    write_expected(folder, logits_of(reload(transformers.LlamaForCausalLM, folder)), encode, llama.__doc__)


def qwen2(root):
    """Ordinary weights in F16, tied, biases, YaRN."""
    folder = os.path.join(root, "qwen2")
    tok = byte_level_bpe(QWEN2, False, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>"], 286, None)
    config = transformers.Qwen2Config(
        vocab_size=288, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=284,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
                         "original_max_position_embeddings": 128})
    model = seed_weights(transformers.Qwen2ForCausalLM(config), 2).to(torch.float16)
    model.save_pretrained(folder)
    encode = save_tokenizer(folder, tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    write_expected(folder, logits_of(reload(transformers.Qwen2ForCausalLM, folder)), encode, qwen2.__doc__)


def qwen3(root):
    """Projections that are ternary already, in BF16, one scale each; head_dim is not n_embd / n_head."""
    folder = os.path.join(root, "qwen3")
    tok = byte_level_bpe(QWEN2, False, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>"], 288, None)
    config = transformers.Qwen3Config(
        vocab_size=288, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=48, max_position_embeddings=512, rms_norm_eps=1e-6,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=286,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})
    model = seed_weights(transformers.Qwen3ForCausalLM(config), 3).to(torch.bfloat16)
    with torch.no_grad():
        for _, p in projections(model):
            p.copy_(WeightQuant.apply(p))
    model.save_pretrained(folder)
    encode = save_tokenizer(folder, tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    write_expected(folder, logits_of(reload(transformers.Qwen3ForCausalLM, folder)), encode, qwen3.__doc__)


def sentencepiece_model(folder, n_vocab):
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w") as f:
        f.write(CORPUS)
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=os.path.join(folder, "tokenizer"), model_type="bpe", vocab_size=n_vocab,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, split_digits=True, character_coverage=0.98, minloglevel=2,
        user_defined_symbols=["<|end|>"])
    os.remove(corpus)
    os.remove(os.path.join(folder, "tokenizer.vocab"))
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    return lambda text: [spm.bos_id()] + spm.encode(text)


def packed(model, folder, scale_of, quantization_config):
    """Rounds the projections, saves them packed with weight_scale; the model keeps the values these stand for.
    scale_of(gamma): the weight_scale to store, and the factor of the codes that it means."""
    stored = {}
    with torch.no_grad():
        for name, p in projections(model):
            gamma = p.float().abs().mean().clamp_(min=1e-5)
            codes = (p.float() / gamma).round().clamp(-1, 1)
            scale, factor = scale_of(gamma)
            p.copy_(codes * factor)
            stored[name] = pack_weights(codes.clone())
            stored[name + "_scale"] = scale.reshape(1)
    logits = logits_of(model)
    model = model.to(torch.bfloat16)
    model.config.dtype = "bfloat16"
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    tensors.update(stored)
    save_file(tensors, path, metadata={"format": "pt"})
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as f:
        config = json.load(f)
    config["quantization_config"] = quantization_config
    with open(config_path, "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    return logits


def round_tables(model):
    """What is not packed is stored in BF16."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "_proj.weight" not in name:
                p.copy_(p.to(torch.bfloat16).float())
    return model


def llama_packed(root):
    """Packed codes, class BitLinear: weight_scale divides. SentencePiece vocabulary."""
    folder = os.path.join(root, "llama-packed")
    os.makedirs(folder)
    config = transformers.LlamaConfig(
        vocab_size=304, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "linear", "rope_theta": 500000.0, "factor": 2.0})
    model = round_tables(seed_weights(transformers.LlamaForCausalLM(config), 4))

    def divides(gamma):
        scale = (1 / gamma).to(torch.bfloat16)
        return scale, 1 / scale.float()

    logits = packed(model, folder, divides, {"quant_method": "bitnet", "modules_to_not_convert": None})
    encode = sentencepiece_model(folder, 300)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
                   "unk_token": "<unk>", "tokenizer_class": "LlamaTokenizer"}, f, indent=2)
        f.write("\n")
    # around special tokens sentencepiece, transformers and GGUF put spaces differently
    write_expected(folder, logits, encode, llama_packed.__doc__, TEXTS[:-1])


def bitnet_config(n_ff, n_layer):
    return transformers.BitNetConfig(
        vocab_size=288, hidden_size=64, intermediate_size=n_ff, num_hidden_layers=n_layer, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=285, eos_token_id=286, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})


def bitnet_tokenizer(folder):
    tok = byte_level_bpe(LLAMA3, True, ["<|begin_of_text|>", "<|eot_id|>", "<|end|>"], 288, "<|begin_of_text|>")
    return save_tokenizer(folder, tok, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")


def bitnet_packed(root):
    """Packed codes, class AutoBitLinear offline: weight_scale multiplies."""
    folder = os.path.join(root, "bitnet-packed")
    model = round_tables(seed_weights(transformers.BitNetForCausalLM(bitnet_config(128, 2)), 5))

    def multiplies(gamma):
        scale = gamma.to(torch.bfloat16)
        return scale, scale.float()

    logits = packed(model, folder, multiplies, {"quant_method": "bitnet", "linear_class": "autobitlinear",
                                                "quantization_mode": "offline", "modules_to_not_convert": None})
    write_expected(folder, logits, bitnet_tokenizer(folder), bitnet_packed.__doc__)


def bitnet_online(root):
    """Unrounded BF16 weights, class AutoBitLinear online: its program rounds them at run time."""
    folder = os.path.join(root, "bitnet-online")
    model = seed_weights(transformers.BitNetForCausalLM(bitnet_config(64, 1)), 6).to(torch.bfloat16)
    model.save_pretrained(folder)
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as f:
        config = json.load(f)
    config["quantization_config"] = {"quant_method": "bitnet", "linear_class": "autobitlinear",
                                     "quantization_mode": "online", "modules_to_not_convert": None}
    with open(config_path, "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    weights = model.state_dict()
    model = transformers.BitNetForCausalLM(bitnet_config(64, 1))  # whose angles were never in BF16
    model.load_state_dict(weights)
    with torch.no_grad():
        for _, p in projections(model):
            p.copy_(WeightQuant.apply(p))
    write_expected(folder, logits_of(model), bitnet_tokenizer(folder), bitnet_online.__doc__)


def main():
    root = sys.argv[1]
    for make in (llama, qwen2, qwen3, llama_packed, bitnet_packed, bitnet_online):
        shutil.rmtree(os.path.join(root, make.__name__.replace("_", "-")), ignore_errors=True)
        make(root)


main()
