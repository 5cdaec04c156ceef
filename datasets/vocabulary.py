"""Words as numbers: the most frequent words of the training part, and sequences of one length. Parent side."""

import collections
from typing import Iterable, Mapping, Sequence

import numpy as np

from framework_compare.errors import check_count

PAD, UNKNOWN = 0, 1
RESERVED = 2


def words_of(text: str) -> list[str]:
    """Return what stands between blanks, in lower case: what word Jaccard counts too."""
    return text.lower().split()


def make_vocabulary(sentences: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Numbers from 2 on for the size - 2 most frequent words, in that order, equals by their spelling."""
    check_count("vocabulary", size, RESERVED + 1)
    counts = collections.Counter(word for sentence in sentences for word in sentence)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - RESERVED], RESERVED)}


def encode(sentences: Sequence[Sequence[str]], numbers: Mapping[str, int], length: int) -> np.ndarray:
    """Tokens int32 (N, length): words by number, UNKNOWN for others, PAD behind the last."""
    return pad([[numbers.get(word, UNKNOWN) for word in sentence] for sentence in sentences], length, PAD, "int32")


def pad(rows: Sequence[Sequence[int]], length: int, filler: int, dtype: str) -> np.ndarray:
    """Rows of at most `length` numbers as one array (N, length), `filler` behind the last of each."""
    array = np.full((len(rows), length), filler, dtype)
    for row, values in zip(array, rows):
        row[: len(values)] = values
    return array


def exact_words(groups: Sequence[Sequence[Sequence[str]]]) -> list[np.ndarray]:
    """The same word as the same number in all groups of sentences, int32 (N, longest) each, -1 behind the last."""
    numbers: dict[str, int] = {}
    encoded = [[[numbers.setdefault(word, len(numbers)) for word in row] for row in rows] for rows in groups]
    return [pad(rows, max(map(len, rows), default=0), -1, "int32") for rows in encoded]
