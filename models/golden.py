"""Write the golden file: what the shipped model must compute.

    python3 models/golden.py --out DIR --gguf FILE --golden FILE

Three forward passes in float64 follow the same greedy path:
  trained  master weights through the training forward pass (ternary weights,
           int8 inputs), embedding as trained
  stored   the same with the embedding as the file stores it (Q8_0)
  exact    the decoded file, activations not rounded (check_gguf.py)
It is an error if they do not agree on the ids.
"""
import json
import sys

import numpy as np
import torch

import bpe
import cli
from check_gguf import Llama, greedy
from evaluate import logits_function
from export_gguf import load_model

PROMPT = "Thus saith the LORD"
COUNT = 64
FULL_ROWS = (0, 31, 63)
TEXTS = [
    "",
    "In the beginning God created the heaven and the earth.",
    "And the LORD said unto Moses,\nSpeak unto the children of Israel.\n",
    "  two  spaces,   three; a tab\tand\n\n two line ends \n",
    "   ",
    "Don't they've we'll I'm 'tis the king's",
    "In 1611 there were 66 books and ½ a page, no. 007.",
    "Käse, déjà vu, Ελληνικά, 日本語, \U0001f54a\ufe0f",
    "a\u00a0b\u3000c\u2028d e\u0301",
    "snake_case <tag> a+b=c; (x) [y] {z} \\n ~^|",
    "Amen.<|endoftext|>Now",
]


def rounded(values):
    """Six decimals are enough and keep the file small."""
    return [round(float(v), 6) for v in values]


def describe(rows):
    """Top 5, margin of the first over the second, and some full rows."""
    order = np.argsort(-rows, axis=-1, kind="stable")[:, :5]
    top = np.take_along_axis(rows, order, -1)
    return {"top5_ids": order.tolist(),
            "top5_logits": [rounded(row) for row in top],
            "margin": rounded(top[:, 0] - top[:, 1]),
            "logits": {str(i): rounded(rows[i]) for i in FULL_ROWS}}


def passes(folder, gguf):
    """Return {name: function ids -> logits} and the tokenizer."""
    runtime = Llama(gguf)
    trained, stored = (load_model(folder)[0].precision(low_precision=False)
                       .double_precision() for _ in range(2))
    embedding = torch.from_numpy(runtime.weights["token_embd.weight"].copy())
    stored.token_embd.data = embedding
    return {"trained": logits_function(trained),
            "stored": logits_function(stored),
            "exact": runtime.logits}, runtime.tokenizer


def main():
    """Read the command line, compute, compare, write."""
    parser = cli.parser(__doc__)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="folder of train.py")
    parser.add_argument("--gguf", required=True, metavar="FILE")
    parser.add_argument("--golden", required=True, metavar="FILE")
    parser.add_argument("--prompt", default=PROMPT)
    options = parser.parse_args()
    functions, tokenizer = passes(options.out, options.gguf)
    prompt_ids = [bpe.END_ID] + tokenizer.encode(options.prompt)
    golden = {"model": options.gguf.split("/")[-1], "prompt": options.prompt,
              "prompt_ids": prompt_ids}
    for name, logits_of in functions.items():
        ids, rows = greedy(logits_of, prompt_ids, COUNT)
        if ids != golden.setdefault("greedy_ids", ids):
            at = [a == b for a, b in zip(ids, golden["greedy_ids"])].index(False)
            sys.exit(f"{name}: another token at step {at}; choose another prompt")
        golden[name] = describe(rows)
        print(f"{name}: smallest margin {min(golden[name]['margin']):.4f}")
    golden["greedy_text"] = tokenizer.decode(prompt_ids + golden["greedy_ids"])
    golden["tokenizer"] = [{"text": text, "ids": tokenizer.encode(text)}
                           for text in TEXTS]
    with open(options.golden, "w", encoding="ascii") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")
    print(golden["greedy_text"])


if __name__ == "__main__":
    cli.run(main)
