"""Baseline: interpolated modified Kneser-Ney n-gram model over the same tokens.

    python3 models/ngram.py --out DIR [--order 3]

DIR is the folder of train.py (for merges.json).  Trained on the same training
chapters, scored on every token of the same test chapters.
"""
import math
import os
from collections import Counter, defaultdict

import bpe
import cli
import corpus


def discounts(counts):
    """Return [0, D1, D2, D3+] of Chen and Goodman for these counts."""
    of = Counter(counts)
    y = of[1] / (of[1] + 2 * of[2])
    return [0.0] + [k - (k + 1) * y * of[k + 1] / of[k] for k in (1, 2, 3)]


class KneserNey:
    """Probabilities of the next token after up to order - 1 tokens."""

    def __init__(self, stream, order, n_vocab):
        self.n_vocab = n_vocab
        self.tables = [None] * order       # by context length
        padded = [bpe.END_ID] * (order - 1) + stream
        grams = Counter(zip(*(padded[i:] for i in range(order))))
        for length in reversed(range(order)):
            self.tables[length] = self.tabulate(grams)
            # The shorter n-grams count the different tokens before them.
            grams = Counter(gram[1:] for gram in grams)

    @staticmethod
    def tabulate(grams):
        """Return {context: (total, left over for shorter ones, {token: kept})}."""
        discount = discounts(grams.values())
        by_context = defaultdict(dict)
        for gram, count in grams.items():
            by_context[gram[:-1]][gram[-1]] = count
        table = {}
        for context, row in by_context.items():
            total = sum(row.values())
            kept = {token: count - discount[min(count, 3)]
                    for token, count in row.items()}
            table[context] = (total, total - sum(kept.values()), kept)
        return table

    def probability(self, context, token):
        """Return P(token | context); context is a tuple, longest first."""
        result = 1 / self.n_vocab
        for length, table in enumerate(self.tables):
            entry = table.get(context[len(context) - length:])
            if entry:
                total, left_over, kept = entry
                result = (kept.get(token, 0) + left_over * result) / total
        return result


def check_sums(model, contexts):
    """Raise unless the probabilities after each context sum to 1."""
    for context in contexts:
        total = sum(model.probability(context, token)
                    for token in range(model.n_vocab))
        if abs(total - 1) > 1e-9:
            raise ValueError(f"probabilities after {context} sum to {total}")


def mean_loss(model, order, stream):
    """Mean of -log P over the stream; a text starts after END."""
    padded = [bpe.END_ID] * (order - 1) + stream
    loss = 0.0
    for i, token in enumerate(stream):
        loss -= math.log(model.probability(tuple(padded[i:i + order - 1]),
                                           token))
    return loss / len(stream)


def main():
    """Read the command line, train, check, score."""
    parser = cli.parser(__doc__)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="folder of train.py")
    parser.add_argument("--order", type=int, default=3)
    options = parser.parse_args()
    tokenizer = bpe.Tokenizer.load(os.path.join(options.out, "merges.json"))
    parts = corpus.split()
    train, test = (tokenizer.encode("".join(text + bpe.END for _, text
                                            in parts[part]))
                   for part in ("train", "test"))
    model = KneserNey(train, options.order, len(tokenizer.tokens))
    width = options.order - 1
    check_sums(model, [tuple(test[i:i + width]) for i in range(0, 20000, 997)])
    check_sums(model, [(2047,) * width, (0,) * width])
    loss = mean_loss(model, options.order, test)
    n_bytes = sum(len(text.encode()) for _, text in parts["test"])
    print(f"order {options.order}: {len(test)} tokens, perplexity "
          f"{math.exp(loss):.3f}, bits per byte "
          f"{loss * len(test) / n_bytes / math.log(2):.4f}")


if __name__ == "__main__":
    cli.run(main)
