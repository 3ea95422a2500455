"""Score the training-time forward pass on the test chapters.

    python3 models/evaluate.py --out DIR --heldout FILE

Writes the test chapters to FILE (each followed by <|endoftext|>) and prints
the perplexity of the training forward pass in float32: ternary weights, int8
inputs, embedding as trained.  check_gguf.py scores the exported file.
"""
import os

import torch

import bpe
import cli
import corpus
from check_gguf import chunk_loss, print_loss
from export_gguf import load_model


def logits_function(model):
    """Return a function: list of ids -> logits [time, n_vocab], NumPy."""
    def logits_of(ids):
        with torch.no_grad():
            return model(torch.tensor([ids]))[0].double().numpy()
    return logits_of


def heldout_text():
    """Return the test chapters as one text with a mark after each."""
    return "".join(text + bpe.END
                   for _, text in corpus.split()["test"])


def main():
    """Read the command line and score."""
    parser = cli.parser(__doc__)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="folder of train.py")
    parser.add_argument("--heldout", required=True, metavar="FILE")
    options = parser.parse_args()
    text = heldout_text()
    with open(options.heldout, "w", encoding="utf-8") as file:
        file.write(text)
    tokenizer = bpe.Tokenizer.load(os.path.join(options.out, "merges.json"))
    tokens = tokenizer.encode(text)
    model, _ = load_model(options.out)
    for label, round_inputs in (("int8 inputs", True), ("f32 inputs", False)):
        model.precision(low_precision=False, round_inputs=round_inputs)
        loss = chunk_loss(logits_function(model), tokens, model.config.n_ctx)
        print_loss(label, loss, len(tokens), text)


if __name__ == "__main__":
    cli.run(main)
