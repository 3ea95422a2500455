"""Train the ternary model on the King James text.

    python3 models/train.py --out DIR [--steps N]    (45 minutes, 2 idle cores)

DIR receives merges.json (the tokenizer), last.pt (to resume from), best.pt
(lowest loss on the validation chapters) and log.txt.  evaluate.py and
export_gguf.py read them.
"""
import math
import os
import time

import torch
import torch.nn.functional as F

import bpe
import cli
import corpus
from model import Config, Model

SEED = 1611
BATCH = 16                 # rows of n_ctx tokens
PEAK_RATE = 3e-3
WARM_UP = 80               # steps
FALL_FROM = 0.72           # share of the steps after which the rate falls
WEIGHT_DECAY = 0.1         # until then, as BitNet's two-stage recipe has it
DROPOUT = 0.1              # until then: the codes settle better undisturbed
EVALUATE_EVERY = 200       # steps
SAVE_EVERY = 50


def get_tokenizer(folder, n_vocab, texts):
    """Load the tokenizer of folder, or train it there first."""
    path = os.path.join(folder, "merges.json")
    if not os.path.exists(path):
        merges = bpe.learn_merges(texts, n_vocab - 1 - len(bpe.ALPHABET))
        bpe.Tokenizer(merges).save(path)
    return bpe.Tokenizer.load(path)


def to_stream(tokenizer, documents):
    """Return one long tensor: every document followed by END."""
    ids = []
    for _, text in documents:
        ids += tokenizer.encode(text) + [bpe.END_ID]
    return torch.tensor(ids)


def row_starts(stream, newline, n_ctx):
    """Return the positions in stream at which a verse starts."""
    before = (stream == newline) | (stream == bpe.END_ID)
    starts = torch.cat([torch.zeros(1, dtype=torch.long),
                        before.nonzero()[:, 0] + 1])
    starts = starts[starts <= len(stream) - n_ctx]
    return starts[stream[starts] != bpe.END_ID]


def rows_at(stream, starts, n_ctx):
    """Return inputs and targets [rows, n_ctx]; every row begins with BOS."""
    targets = torch.stack([stream[s:s + n_ctx] for s in starts.tolist()])
    first = torch.full((len(targets), 1), bpe.END_ID)
    return torch.cat([first, targets[:, :-1]], 1), targets


def sample_rows(stream, verses, generator, n_ctx):
    """Draw one batch: most rows start with a verse, some anywhere.

    A prompt may begin in the middle of a sentence, so a quarter does too.
    """
    anywhere = torch.randint(len(stream) - n_ctx, (BATCH // 4,),
                             generator=generator)
    pick = torch.randint(len(verses), (BATCH - len(anywhere),),
                         generator=generator)
    return rows_at(stream, torch.cat([anywhere, verses[pick]]), n_ctx)


def learning_rate(step, steps):
    """Warm up, stay, then fall in a straight line to zero."""
    rising = (step + 1) / WARM_UP
    falling = (steps - step) / (steps * (1 - FALL_FROM))
    return PEAK_RATE * min(1, rising, falling)


@torch.no_grad()
def mean_loss(loss_of, stream, n_ctx):
    """Mean loss per token over whole rows (the last, short one left out)."""
    starts = torch.arange(0, len(stream) - n_ctx + 1, n_ctx)
    losses = [loss_of(*rows_at(stream, part, n_ctx)).item() * len(part)
              for part in starts.split(BATCH)]
    return sum(losses) / len(starts)


def make_optimizer(model):
    """AdamW; norms and embedding are not decayed."""
    matrices = [p for n, p in model.named_parameters() if ".weights." in n]
    others = [p for n, p in model.named_parameters() if ".weights." not in n]
    return torch.optim.AdamW([{"params": matrices, "decays": True},
                              {"params": others, "decays": False}],
                             lr=PEAK_RATE, betas=(0.9, 0.95), fused=True)


def train(folder, steps):
    """Run (or go on with) the training; leave the results in folder."""
    torch.manual_seed(SEED)
    config = Config()
    parts = corpus.split()
    tokenizer = get_tokenizer(folder, config.n_vocab,
                              [text for _, text in parts["train"]])
    stream = to_stream(tokenizer, parts["train"])
    valid = to_stream(tokenizer, parts["valid"])
    verses = row_starts(stream, tokenizer.ids[bpe.ALPHABET[10]], config.n_ctx)
    model = Model(config, DROPOUT)
    optimizer = make_optimizer(model)
    generator = torch.Generator().manual_seed(SEED)
    state = {"step": 0, "best": math.inf, "seconds": 0.0}
    last_path = os.path.join(folder, "last.pt")
    if os.path.exists(last_path):
        saved = torch.load(last_path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        generator.set_state(saved["generator"])
        state = saved["state"]

    def plain_loss(inputs, targets):
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    fast_loss = torch.compile(plain_loss)
    log = open(os.path.join(folder, "log.txt"), "a", buffering=1)
    print(f"train {len(stream)} tokens, valid {len(valid)}, steps {steps}, "
          f"from {state['step']}", file=log)
    before, running = time.time() - state["seconds"], None
    while state["step"] < steps:
        rate = learning_rate(state["step"], steps)
        regularize = state["step"] < steps * FALL_FROM
        decay = WEIGHT_DECAY if regularize else 0.0
        for block in model.blocks:
            block.dropout = DROPOUT if regularize else 0.0
        for group in optimizer.param_groups:
            group["lr"] = rate
            group["weight_decay"] = decay if group["decays"] else 0.0
        loss = fast_loss(*sample_rows(stream, verses, generator, config.n_ctx))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        running = loss.item() if running is None else (
            0.95 * running + 0.05 * loss.item())
        state["step"] += 1
        state["seconds"] = time.time() - before
        if state["step"] % 20 == 0:
            print(f"{state['step']} loss {running:.4f} rate {rate:.2e} "
                  f"{state['seconds']:.0f} s", file=log)
        finished = state["step"] == steps
        if finished or state["step"] % EVALUATE_EVERY == 0:
            model.eval()
            valid_loss = mean_loss(plain_loss, valid, config.n_ctx)
            model.train()
            print(f"{state['step']} valid {valid_loss:.4f} perplexity "
                  f"{math.exp(valid_loss):.2f}", file=log)
            if valid_loss < state["best"]:
                state["best"] = valid_loss
                torch.save({"model": model.state_dict(), "state": state},
                           os.path.join(folder, "best.pt"))
        if finished or state["step"] % SAVE_EVERY == 0:
            torch.save({"model": model.state_dict(), "state": state,
                        "optimizer": optimizer.state_dict(),
                        "generator": generator.get_state()}, last_path)


def main():
    """Read the command line."""
    parser = cli.parser(__doc__)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="folder for the checkpoints and the log")
    parser.add_argument("--steps", type=int, default=900,
                        help="optimizer steps of %d rows (default %%(default)s)"
                        % BATCH)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    torch.set_num_threads(options.threads)
    train(options.out, options.steps)


if __name__ == "__main__":
    cli.run(main)
