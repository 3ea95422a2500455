"""The text: the King James Bible as printed by Debian's `bible` program.

`bible -f` prints one verse per line, each after its reference ("Ge1:1 In the
beginning ...").  Here a chapter becomes one document of running text, one
verse per line, without the verse numbers.  Chapters are then dealt into three
parts by a seeded shuffle; only the first is ever trained on.
"""
import random
import re
import subprocess

SPLIT_SEED = 1611
TEST_SHARE = 0.04     # held out for the published numbers
VALID_SHARE = 0.02    # held out for choosing a checkpoint
REFERENCE = re.compile(r"([1-3]?[A-Za-z]+)(\d+):(\d+) ")


def print_bible():
    """Return what `bible -f` prints for the whole text (31102 lines)."""
    done = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True,
                          capture_output=True, text=True, encoding="ascii")
    return done.stdout


def chapters():
    """Return [(name, text)], text with every verse ended by a newline."""
    result = []
    for line in print_bible().splitlines():
        match = REFERENCE.match(line)
        if not match:
            raise ValueError("unexpected line: " + line)
        name = match.group(1) + " " + match.group(2)
        if not result or result[-1][0] != name:
            result.append((name, []))
        result[-1][1].append(line[match.end():].strip() + "\n")
    return [(name, "".join(verses)) for name, verses in result]


def split():
    """Return {"train": chapters, "valid": ..., "test": ...} in Bible order."""
    everything = chapters()
    order = list(range(len(everything)))
    random.Random(SPLIT_SEED).shuffle(order)
    n_test = round(len(order) * TEST_SHARE)
    n_valid = round(len(order) * VALID_SHARE)
    parts = {"test": order[:n_test],
             "valid": order[n_test:n_test + n_valid],
             "train": order[n_test + n_valid:]}
    return {part: [everything[i] for i in sorted(ids)]
            for part, ids in parts.items()}
