"""Keywords of a model's name, as in "gpt2:n_layer=2,head=lm"."""

from typing import List

_QUOTES = ("'", '"')


def is_open(text: str) -> bool:
    """Return whether a bracket or a quote of a text is not closed."""
    quote, depth = "", 0
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return bool(quote) or depth > 0


def parts_of(text: str) -> List[str]:
    """What stands between the commas of a text that are in no bracket and in no quotes."""
    parts: List[str] = []
    for part in text.split(","):
        if parts and is_open(parts[-1]):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [part for part in parts if part]
