"""What `run` is asked for by place: FRAMEWORKS MODELS [DATASET]..., or a file alone."""

from __future__ import annotations

from pathlib import Path
from typing import AbstractSet, Any, Dict, Sequence

from framework_compare.errors import UsageError
from framework_compare.plan.values import split

ALLOWED = "allowed: FRAMEWORKS MODELS [DATASET]..., or a file.toml"


def read(words: Sequence[str], by_option: AbstractSet[str]) -> Dict[str, Any]:
    """Arguments of `compare` from words, and `study_file` where the first names one.

    by_option: those of frameworks, models and dataset that an option gives; UsageError where a word gives one again.
    """
    if not words:
        return {}
    first, *rest = words
    if first.endswith(".toml"):
        if rest:
            raise UsageError(f"{rest[0]!r} follows {first}; allowed: a file alone, with options")
        return {"study_file": Path(first)}
    if not rest and "models" not in by_option:
        raise UsageError(f"{first!r} names frameworks, models are missing; {ALLOWED}")
    asked: Dict[str, Any] = {"frameworks": split(first)}
    if rest:
        asked["models"] = split(rest[0])
    if rest[1:]:
        asked["dataset"] = rest[1:]
    for (name, _), word in zip(asked.items(), words):
        if name in by_option:
            raise UsageError(f"{name} are given twice: {word!r} and --{name}; {ALLOWED}")
    return asked
