"""Words as numbers: the most frequent words of the training part, and sequences of one length. Parent side."""

import collections
from typing import Iterable, Mapping, Sequence

import numpy as np

from framework_compare.datasets.arrays import ArrayData, Baseline, Split
from framework_compare.errors import check_count
from framework_compare.graph import Field, Task
from framework_compare.protocol import Fields

Tagged = Sequence[tuple[Sequence[str], Sequence[int]]]  # of each sentence its words, and a label for each
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


def tagged_words(
    name: str,
    target: str,
    tags: Sequence[str],
    metrics: tuple[str, ...],
    parts: tuple[Tagged, Tagged],
    baseline: tuple[str, Sequence[float]],
    *,
    steps: int,
    vocabulary: int,
    facts: Fields,
    extras: Sequence[Mapping[str, np.ndarray]] = ({}, {}),
) -> ArrayData:
    """Data whose samples are tokens (steps,) with the index of each one's tag (steps,); the training part gives the vocabulary.

    parts: training and validation. baseline: its name, and the logits that it has for every word.
    """
    numbers = make_vocabulary((words for words, _ in parts[0]), vocabulary)
    train, held = (
        Split(
            {"tokens": encode([words for words, _ in part], numbers, steps)},
            pad([labels for _, labels in part], steps, -1, "int64"),
            extra,
        )
        for part, extra in zip(parts, extras)
    )
    tokens, labels = Field("tokens", (steps,), "int32", vocabulary), Field(target, (steps,), "int64")
    task = Task((tokens,), labels, len(tags), "token_cross_entropy", metrics, "sequence")
    outputs = np.broadcast_to(np.array(baseline[1], np.float32), (len(held), steps, len(tags)))
    facts = {**facts, "vocabulary": len(numbers), "tags": list(tags)}
    return ArrayData(name, task, train, held, facts, Baseline(baseline[0], outputs))


def exact_words(groups: Sequence[Sequence[Sequence[str]]]) -> list[np.ndarray]:
    """The same word as the same number in all groups of sentences, int32 (N, longest) each, -1 behind the last."""
    numbers: dict[str, int] = {}
    encoded = [[[numbers.setdefault(word, len(numbers)) for word in row] for row in rows] for rows in groups]
    return [pad(rows, max(map(len, rows), default=0), -1, "int32") for rows in encoded]
