"""Parity in a study: what is known of each cell when it is run, kept in the study's folder for its tables."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Optional

from framework_compare import schema
from framework_compare.errors import UnknownNameError
from framework_compare.parity.result import NOT_INSTALLED, UNSUPPORTED, UNVERIFIED, Parity
from framework_compare.records import Cell

FILE = "parity.json"
MODES = ("require", "warn", "off")
COLUMNS = ("parity", "parity_error", "parity_where")
# What a verdict depends on, of a cell and of a row of its frame.
_KEY = (
    *("framework", "model", "device", "execution", "precision", "tuning", "image_size", "num_classes"),
    *("pipeline", "loader_workers"),  # of level 4
)


def check_mode(mode: str) -> str:
    """The mode, or UnknownNameError."""
    if mode not in MODES:
        raise UnknownNameError("verify", mode, MODES)
    return mode


def key(row: Mapping[str, Any]) -> str:
    return "|".join(str(row[name]) for name in _KEY)


def record(
    folder: Path,
    cells: Iterable[Cell],
    ready: Mapping[str, Any],
    mode: str,
    say: Callable[[str], None] = lambda message: None,
) -> Dict[str, str]:
    """Write down the verdict on every cell; returns, by key, why a cell that was required to pass must not be run.

    "warn" looks verdicts up and takes no time; "require" climbs the ladder where there is none.
    """
    if mode == "off":
        return {}
    from framework_compare.parity.verify import Climb  # the oracle and all: not for those who only read a study

    known = read(folder)
    refused: Dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="framework-compare-verify-") as place:
        climb = Climb(Path(place), ready, say=say)
        for cell in cells:
            name = key(row_of(cell))
            verdict = _verdict(climb, cell, mode)
            known[name] = _shown(verdict)
            if mode == "require" and _is_refused(verdict):
                refused[name] = f"parity is required: {known[name]['parity']}"
    _write(folder / FILE, known)
    return refused


def _write(path: Path, known: Mapping[str, Any]) -> None:
    half = path.with_suffix(".half")
    with schema.told(path):
        half.write_text(json.dumps(known, indent=1), encoding="utf-8")
        half.replace(path)


def row_of(cell: Cell) -> Dict[str, Any]:
    return {**cell.config.to_dict(), "framework": cell.framework, "model": cell.model, "device": cell.device}


def _is_refused(verdict: Optional[Parity]) -> bool:
    """Whether a cell that must be proved is not; what cannot be run at all ends by itself, as such a cell does."""
    return verdict is None or (verdict.status not in (UNSUPPORTED, NOT_INSTALLED) and not verdict.proves())


def _verdict(climb: Any, cell: Cell, mode: str) -> Optional[Parity]:
    find = climb.parity if mode == "require" else climb.cached
    return find(cell.framework, cell.model, cell.config)


def _shown(verdict: Optional[Parity]) -> Dict[str, Any]:
    if verdict is None or verdict.status in (UNSUPPORTED, NOT_INSTALLED):
        return unknown("warn")
    worst = verdict.worst
    error, where = (worst.error, worst.where) if worst else (None, None)
    return {"parity": verdict.column(), "parity_error": error, "parity_where": where}


def unknown(mode: str) -> Dict[str, Any]:
    """What stands for a verdict that is not there: nothing where none was asked for."""
    return {**dict.fromkeys(COLUMNS), "parity": None if mode == "off" else UNVERIFIED}


def read(folder: Path) -> Dict[str, Dict[str, Any]]:
    """Verdicts by key, empty for a study that was run without asking for any; a damaged file holds none."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    verdicts = found.items() if isinstance(found, dict) else ()
    return {name: verdict for name, verdict in verdicts if _is_sound(verdict)}


def _is_sound(verdict: Any) -> bool:
    if not isinstance(verdict, dict) or set(verdict) != set(COLUMNS):
        return False
    kinds = {"parity": str, "parity_error": (int, float, type(None)), "parity_where": (str, type(None))}
    return all(isinstance(verdict[name], kind) for name, kind in kinds.items())
