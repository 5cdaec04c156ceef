"""What a command is asked for as positional arguments: FRAMEWORKS MODELS [DATASET]..., or for `run` a file alone."""

from __future__ import annotations

import difflib
import warnings
from pathlib import Path
from typing import AbstractSet, Sequence

from framework_compare.errors import UsageError
from framework_compare.plan.values import split
from framework_compare.protocol import Fields
from framework_compare.registry import FRAMEWORKS

REQUEST = ("frameworks", "models", "dataset")
# What a word alone may be instead, of a command that has it among its names: a file of a study, a study.
FILE, STUDY = "study_file", "study"
OUT = "out"  # was positional before version 0.1; goes with version 0.2
_ALONE = {FILE: "FILE.toml", STUDY: "STUDY"}


def usage(names: Sequence[str]) -> str:
    """The arguments as the help shows them: "FRAMEWORKS MODELS [DATASET]..., or FILE.toml"."""
    several = " ".join("[DATASET]..." if name == "dataset" else name.upper() for name in names if name in REQUEST)
    return ", or ".join([several, *(_ALONE[name] for name in names if name in _ALONE)])


def _near_a_framework(word: str) -> bool:
    return bool(difflib.get_close_matches(word.partition(",")[0].partition("@")[0].lower(), FRAMEWORKS, cutoff=0.7))


def read(words: Sequence[str], by_option: AbstractSet[str], names: Sequence[str] = REQUEST) -> Fields:
    """Arguments by `names` from words, of which "dataset" takes all that are left.

    by_option: names that an option gives; UsageError where a word gives one again.
    """
    allowed = f"allowed: {usage(names)}"
    if not words:
        return {}
    if OUT in names and len(words) == 1 and not _near_a_framework(words[0]):
        if OUT in by_option:
            raise UsageError(f"{OUT} is given twice: {words[0]!r} and --{OUT}; {allowed}")
        warnings.warn(
            f"OUT is now called --{OUT}; the old form will be removed in version 0.2", FutureWarning, stacklevel=2
        )
        return {OUT: Path(words[0])}
    if STUDY in names and len(words) == 1:
        return {STUDY: words[0]}
    if FILE in names and words[0].endswith(".toml"):
        if words[1:]:
            raise UsageError(f"{words[1]!r} follows {words[0]}; allowed: a file alone, with options")
        if FILE in by_option:
            raise UsageError(f"the file is given twice: {words[0]} and --from; {allowed}")
        return {FILE: Path(words[0])}
    places = [name for name in names if name in REQUEST]
    if "models" in places and len(words) == 1 and "models" not in by_option:
        raise UsageError(f"{words[0]!r} names frameworks, but no models are named; {allowed}")
    if len(words) > len(places) and "dataset" not in places:
        raise UsageError(f"{words[len(places)]!r} is one argument too many; {allowed}")
    for name, word in zip(places, words):
        if name in by_option:
            raise UsageError(f"{name} are given twice: {word!r} and --{name}; {allowed}")
    asked = {name: split(word) for name, word in zip(places, words) if name != "dataset"}
    return {**asked, "dataset": list(words[2:])} if words[2:] else asked
