"""The next word of a text: 20 words in, one of 1,000 out. Any text serves; the tweets' is what the project has."""

from pathlib import Path
from typing import Sequence

import numpy as np

from framework_compare.datasets.arrays import ArrayData, Baseline, Split, majority_outputs, split_indices
from framework_compare.datasets.source_files import read_lines, read_or_generate, read_rows
from framework_compare.datasets.vocabulary import RESERVED, encode, make_vocabulary, words_of
from framework_compare.errors import DataError, check_count
from framework_compare.graph import Field, Task

END = ""  # between two texts; no word is spelt so
HELD_SHARE = 0.1


def next_words(
    path: Path | None = None, *, vocabulary: int = 1000, window: int = 20, stride: int = 5, seed: int = 0
) -> ArrayData:
    """Tokens (window,) and the number of the word behind them, windows `stride` words apart in the running text.

    path is a text file, one text a line, or a CSV file (or a folder with train.csv) with a column `text`. A tenth of the
    texts is drawn by `seed` to validate with. Windows whose next word is not in the vocabulary are left out.
    """
    check_count("window", window)
    check_count("stride", stride)
    texts, facts = read_or_generate(path, ("train.csv",), "the text", read, generate, seed)
    rows = split_indices(len(texts), max(1, round(HELD_SHARE * len(texts))), seed, name="the text")
    train, held = ([texts[i] for i in part] for part in rows)
    numbers = make_vocabulary(([*words, END] for words in train), vocabulary)
    first, second = (_windows(part, numbers, window, stride) for part in (train, held))
    if not len(first.target) or not len(second.target):
        raise DataError(f"the text is too short for windows of {window} words in both splits; take more text")
    return ArrayData(
        "tweet-words",
        Task(
            (Field("tokens", (window,), "int32", vocabulary),),
            Field("next_word", (), "int64"),
            vocabulary,
            "cross_entropy",
            ("accuracy",),
            "sequence",
        ),
        first,
        second,
        {
            **facts,
            "texts": {"train": len(train), "validation": len(held)},
            "words": {"train": sum(map(len, train)), "validation": sum(map(len, held))},
            "vocabulary": len(numbers),
        },
        Baseline("most frequent word", majority_outputs(first.target, len(second), vocabulary)),
    )


def read(path: Path) -> list[list[str]]:
    """Words in lower case of every text of a file."""
    if path.suffix.lower() == ".csv":
        texts = [words_of(row.values["text"]) for row in read_rows(path, ("text",))]
    else:
        texts = [words_of(line) for line in read_lines(path)]
    return [words for words in texts if words]


def generate(seed: int) -> list[list[str]]:
    """8,000 texts of 5 to 25 made-up words: one time in two a word has one of two successors of its own."""
    state = np.random.RandomState(seed & 0xFFFFFFFF)
    successors = state.randint(0, 990, (990, 2))
    texts = []
    for _ in range(8000):
        word = int(990 * state.random_sample() ** 2)
        words = [f"w{word}"]
        for _ in range(state.randint(4, 25)):
            follows = state.random_sample() < 0.5
            word = int(successors[word, state.randint(2)]) if follows else int(990 * state.random_sample() ** 2)
            words.append(f"w{word}")
        texts.append(words)
    return texts


def _windows(texts: Sequence[list[str]], numbers: dict[str, int], window: int, stride: int) -> Split:
    running = [word for words in texts for word in (*words, END)]
    tokens = encode([running], numbers, len(running))[0]
    if len(tokens) <= window:
        return Split({"tokens": np.zeros((0, window), np.int32)}, np.zeros(0, np.int64))
    starts = np.arange(0, len(tokens) - window, stride)
    starts = starts[tokens[starts + window] >= RESERVED]
    views = np.lib.stride_tricks.sliding_window_view(tokens, window)[starts]
    return Split({"tokens": np.ascontiguousarray(views)}, tokens[starts + window].astype(np.int64))
