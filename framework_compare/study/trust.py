"""Programs that a study names and its cells would execute. A study of somebody else may name any.

What users name in requests of their own is noted in their cache folder. `resume`, `part` and `verify` execute nothing
else that a study names unless they are told to trust it. Reading a study executes nothing.
"""

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from framework_compare.errors import StudyError
from framework_compare.paths import cache_dir
from framework_compare.records import Cell
from framework_compare.study.data_files import written_of


def programs(cells: Iterable[Cell], python: Mapping[str, str]) -> list[str]:
    """The interpreters, by framework in `python`, and the functions of model files that these cells would execute."""
    found = [Path(shutil.which(path) or Path(path).expanduser()).absolute() for path in python.values()]
    named = [f"the interpreter {str(path)!r}" for path in found]
    files = [written for written in map(written_of, cells) if written and written.get("path")]
    named += [f"{written['name']!r} of the file {written['path']!r}" for written in files]
    return list(dict.fromkeys(named))


def note(named: Iterable[str]) -> None:
    """Remember that this user asked for these programs."""
    for program in named:
        path = _noted(program)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{program}\n", encoding="utf-8")


def check(study: Path, named: Iterable[str], trust: bool) -> None:
    """StudyError for programs that this user never asked for; noted if the user trusts them."""
    strange = [program for program in named if not _noted(program).exists()]
    if strange and not trust:
        raise StudyError(
            f"the study in {study} would execute {', '.join(strange)}, which you have not requested yourself; inspect"
            " it, then give `resume`, `part` or `verify` --trust (trust=True)"
        )
    note(strange)


def _noted(program: str) -> Path:
    return cache_dir() / "trusted" / hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:32]
