"""Texts cut into windows whose every token is predicted from those before it: bytes, or ids of a tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framework_compare.datasets.arrays import ArrayData, Baseline, Split
from framework_compare.datasets.columns import Source
from framework_compare.datasets.source_files import one_file, one_line, read_text, source, stand_in
from framework_compare.errors import DataError, check_count
from framework_compare.graph import Field, Task
from framework_compare.protocol import Document, Fields

BYTES = 256
GENERATED = 400_000  # bytes of the stand-in
WINDOW = 128  # tokens
HELD_SHARE = 0.1  # of the text, its end
HELD_NUMBERS = 1 << 25  # outputs that a validation may have, all windows together: they are held in memory
TOKENS, NEXT = "tokens", "next_tokens"


def text_bytes(path: Path | None = None, *, window: int = WINDOW, vocabulary: int = BYTES, seed: int = 0) -> ArrayData:
    """Return windows of a text's UTF-8 bytes, or of a generated text; the last tenth is held out.

    path: a file, or a folder of .txt files, of which text.txt is taken alone. vocabulary: rows of an embedding, at least
    256; what is above no byte names, and a model of a larger vocabulary is trained with it as it is.
    """
    check_count("vocabulary", vocabulary, BYTES)
    if path is None:
        text, facts = generate(seed), stand_in(seed)
    else:
        files = [] if path.is_file() or (path / "text.txt").is_file() else sorted(path.glob("*.txt"))
        files = files or [one_file(path, ("text.txt",), "the text")]
        text = "\n".join(map(read_text, files)).encode("utf-8")
        facts = {"generated": False, "source": source(files)}
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
    first, second = (
        Split({"tokens": inputs.astype(np.int32)}, targets.astype(np.int64))
        for inputs, targets in (windows(part, window) for part in (train, held))
    )
    field = Field("tokens", (window,), "int32", vocabulary)
    task = Task(
        (field,), Field("next", (window,), "int64"), vocabulary, "token_cross_entropy", ("perplexity",), "sequence"
    )
    shares = np.bincount(train, minlength=vocabulary) + 1.0  # Laplace: a token that only the held part has is possible
    logits = np.log(shares / shares.sum()).astype(np.float32)
    outputs = np.broadcast_to(logits, (len(second), window, vocabulary))
    counts = {"train_tokens": len(train), "validation_tokens": len(held), "different": len(np.unique(tokens))}
    return ArrayData(name, task, first, second, {**facts, **counts}, Baseline("frequencies of single tokens", outputs))


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


def read_windows(
    path: Path, window: int | None = None, tokenizer: str | None = None, validation: float | None = None
) -> Source:
    """Windows that follow each other: of the beginning of the text to train on, of its end to validate with."""
    window = WINDOW if window is None else window
    check_count("window", window, least=2)  # single tokens would be columns
    where = f"{'folder' if path.is_dir() else 'file'} {str(path)!r}"
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    texts = [read_text(file) for file in files]
    tokens, vocabulary = np.frombuffer("\n".join(texts).encode(), np.uint8).astype(np.int64), BYTES
    if tokenizer is not None:
        tokens, vocabulary = _encoded(texts, Path(tokenizer).expanduser())
    share = HELD_SHARE if validation is None else validation
    held = max(round(share * len(tokens)), window + 1)
    if len(tokens) - held <= window:
        raise DataError(
            f"{where} has {len(tokens):,} tokens, too few for windows of {window} in both parts; give more text or a"
            " shorter window"
        )
    most = max(1, HELD_NUMBERS // (vocabulary * window))
    facts: Fields = {"source": source(files), "tokens": len(tokens), "window": window, "vocabulary": vocabulary}
    facts["tokenizer"] = source([Path(tokenizer).expanduser()]) if tokenizer else "bytes"
    parts = windows(tokens[:-held], window), (array[:most] for array in windows(tokens[-held:], window))
    train, held_out = (dict(zip((TOKENS, NEXT), part)) for part in parts)
    return Source(path.stem, where, train, held_out, facts, vocabulary={TOKENS: vocabulary, NEXT: vocabulary})


def _encoded(texts: list[str], tokenizer: Path) -> tuple[np.ndarray, int]:
    """Ids of a tokenizer of the library `tokenizers`, saved as JSON."""
    try:
        import tokenizers
    except ImportError:
        raise DataError(
            f"tokenizer {str(tokenizer)!r} needs a package: pip install 'framework-compare[text]'"
        ) from None
    if not tokenizer.is_file():
        raise DataError(f"tokenizer {str(tokenizer)!r} is not a file; give the tokenizer.json that `tokenizers` saves")
    try:
        known = tokenizers.Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # it raises Exception itself
        raise DataError(
            f"tokenizer {str(tokenizer)!r} cannot be read: {one_line(error)}; give a tokenizer.json"
        ) from None
    ids = [number for text in texts for number in known.encode(text, add_special_tokens=False).ids]
    return np.array(ids, np.int64), int(known.get_vocab_size())


def windows(tokens: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows side by side, (count, window), and for each token the one behind it."""
    count = (len(tokens) - 1) // window
    end = count * window
    return tokens[:end].reshape(count, window), tokens[1 : end + 1].reshape(count, window)
