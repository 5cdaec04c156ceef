"""A text as bytes, cut into windows whose every token is predicted from those before it; any list of tokens serves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framework_compare.datasets.arrays import ArrayData, Baseline, Split
from framework_compare.datasets.source_files import one_file, read_text, source
from framework_compare.datasets.text_files import BYTES, HELD_SHARE, WINDOW, windows
from framework_compare.errors import DataError, check_count
from framework_compare.graph import Field, Task
from framework_compare.protocol import Document

GENERATED = 400_000  # bytes of the stand-in


def text_bytes(
    path: Path | None = None,
    *,
    window: int = WINDOW,
    vocabulary: int = BYTES,
    seed: int = 0,
) -> ArrayData:
    """Return windows of a text file's UTF-8 bytes, or of a generated text; the last tenth is held out.

    vocabulary: rows of an embedding, at least 256; what is above
    no byte names, and a model of a larger vocabulary is trained with it as it is.
    """
    check_count("vocabulary", vocabulary, BYTES)
    if path is None:
        text, facts = generate(seed), {"generated": True, "source": [], "seed": seed}
    else:
        file = one_file(path, ("text.txt",), "the text")
        text, facts = read_text(file).encode("utf-8"), {"generated": False, "source": source([file])}
    facts = {**facts, "tokens": "bytes"}
    return token_windows("text-bytes", np.frombuffer(text, np.uint8), vocabulary, window, facts)


def token_windows(name: str, tokens: np.ndarray, vocabulary: int, window: int, facts: Document) -> ArrayData:
    """Return a running text's windows, side by side, each with the tokens that follow it one by one as its target.

    tokens: (count,) whole numbers below `vocabulary`. The last tenth of them is the validation split.
    """
    check_count("window", window)
    cut = len(tokens) - round(HELD_SHARE * len(tokens))
    train, held = tokens[:cut], tokens[cut:]
    if min(len(train), len(held)) <= window:
        raise DataError(
            f"{name}: {len(tokens)} tokens are too few for windows of {window} in both splits; take more text or a"
            " smaller window"
        )
    first, second = (_split(*windows(part, window)) for part in (train, held))
    field = Field("tokens", (window,), "int32", vocabulary)
    task = Task(
        (field,), Field("next", (window,), "int64"), vocabulary, "token_cross_entropy", ("perplexity",), "sequence"
    )
    shares = np.bincount(train, minlength=vocabulary) + 1.0  # Laplace: a token that only the held part has is possible
    logits = np.log(shares / shares.sum()).astype(np.float32)
    outputs = np.broadcast_to(logits, (len(second), window, vocabulary))
    counts = {"train_tokens": len(train), "validation_tokens": len(held), "different": len(np.unique(tokens))}
    return ArrayData(name, task, first, second, {**facts, **counts}, Baseline("frequencies of single tokens", outputs))


def _split(tokens: np.ndarray, targets: np.ndarray) -> Split:
    return Split({"tokens": tokens.astype(np.int32)}, targets.astype(np.int64))


def generate(seed: int) -> bytes:
    """Return a text of made-up words, of which each has three likely successors, in sentences."""
    state = np.random.RandomState(seed & 0xFFFFFFFF)
    letters = np.frombuffer(b"etaoinshrdlucmfwygpbvk", np.uint8)
    odds = 1 / np.arange(1, len(letters) + 1)
    lengths = state.randint(2, 9, 800)
    words = [bytes(state.choice(letters, size, p=odds / odds.sum())) for size in lengths]
    successors, word, parts, size = state.randint(0, len(words), (len(words), 3)), 0, [], 0
    while size < GENERATED:
        ends = state.random_sample() < 0.1
        follows = state.random_sample() < 0.8
        word = int(successors[word, state.randint(3)]) if follows else state.randint(len(words))
        parts.append(words[word] + (b".\n" if ends else b" "))
        size += len(parts[-1])
    return b"".join(parts)[:GENERATED]
