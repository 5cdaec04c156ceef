"""A text file, or a folder of them, as windows of tokens: what follows each token is learnt. Bytes, or a tokenizer's ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framework_compare.datasets.columns import Source
from framework_compare.datasets.source_files import read_text, source
from framework_compare.errors import DataError, check_count
from framework_compare.protocol import Fields

WINDOW = 128  # tokens
HELD_SHARE = 0.1  # of the text, its end
HELD_NUMBERS = 1 << 25  # outputs that a validation may have, all windows together: they are held in memory
TOKENS, NEXT = "tokens", "next_tokens"
BYTES = 256


def read_windows(path: Path, window: int | None, tokenizer: str | None, validation: float | None) -> Source:
    """Windows that follow each other: of the beginning of the text to train on, of its end to validate with."""
    window = WINDOW if window is None else window
    check_count("window", window)
    where = f"{'folder' if path.is_dir() else 'file'} {str(path)!r}"
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    texts = [read_text(file) for file in files]
    tokens, vocabulary = _bytes(texts) if tokenizer is None else _encoded(texts, Path(tokenizer).expanduser())
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


def _bytes(texts: list[str]) -> tuple[np.ndarray, int]:
    return np.frombuffer("\n".join(texts).encode(), np.uint8).astype(np.int64), BYTES


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
        words = " ".join(str(error).split())[:200]
        raise DataError(f"tokenizer {str(tokenizer)!r} cannot be read: {words}; give a tokenizer.json") from None
    ids = [number for text in texts for number in known.encode(text, add_special_tokens=False).ids]
    return np.array(ids, np.int64), int(known.get_vocab_size())


def windows(tokens: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows side by side, (count, window), and for each token the one behind it."""
    count = (len(tokens) - 1) // window
    end = count * window
    return tokens[:end].reshape(count, window), tokens[1 : end + 1].reshape(count, window)
