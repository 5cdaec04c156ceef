"""Verdicts on parity beside a study: those known for each cell when it ran, for the study's tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Mapping

from framework_compare import registry
from framework_compare.errors import UnknownNameError
from framework_compare.plan.settings import CODE_PATH, DEFAULTS, FEEDING, NETWORK, of_verdict
from framework_compare.records import Cell
from framework_compare.results.parity import FAILED, IMPORT, NOT_EQUAL, PASSED, UNVERIFIED
from framework_compare.store import schema

FILE = "parity.json"
MODES = ("require", "warn", "off")
COLUMNS = ("parity", "parity_status", "parity_error", "parity_where")
# What a verdict depends on, of a cell and of a row of its frame, in the order of the keys that studies have stored.
_KEY = ("framework", "model", *of_verdict(CODE_PATH, NETWORK, FEEDING))
LATER = (
    "mode",
    "optimizer",
    "internals",
    "optimizer_variant",
    "gpu_threads",
    "nodes",
)  # settings younger than stored keys, which name them only where they are not the default


def check_mode(mode: str) -> str:
    """The mode, or UnknownNameError."""
    if mode not in MODES:
        raise UnknownNameError("verify", mode, MODES)
    return mode


def key(row: Mapping[str, Any]) -> str:
    """What a verdict depends on, as one text."""
    later = [f"{name} {row[name]}" for name in LATER if row[name] != getattr(DEFAULTS, name)]
    if registry.of_arrays(row["model"]):  # whose task is its data set's
        later.append(f"dataset {row['dataset']}")
    return "|".join([*(str(row[name]) for name in _KEY if name not in LATER), *later])


def write(folder: Path, known: Mapping[str, Any]) -> None:
    """Store verdicts by key in a study's folder; the file is whole at any moment."""
    path = folder / FILE
    half = path.with_suffix(".half")
    with schema.study_errors(path):
        half.write_text(json.dumps(known, indent=1), encoding="utf-8")
        half.replace(path)


def row_of(cell: Cell) -> Dict[str, Any]:
    """A cell as `key` takes it."""
    named = {"framework": cell.framework, "model": cell.model, "dataset": cell.dataset, "device": cell.device}
    return {**cell.config.to_dict(), **named}


def unknown(mode: str) -> Dict[str, Any]:
    """What stands for a verdict that is not there: nothing where none was asked for."""
    text = None if mode == "off" else UNVERIFIED
    return {**dict.fromkeys(COLUMNS), "parity": text, "parity_status": text}


def of_row(row: Mapping[str, Any], known: Mapping[str, Any], mode: str) -> Dict[str, Any]:
    """The verdict on a cell as its row has it, by key in `known`, but where the ladder is not asked."""
    said = unasked(row)
    if said:
        return {**dict.fromkeys(COLUMNS), "parity": said}
    verdict: Dict[str, Any] = known.get(key(row), unknown(mode))
    return verdict


def unasked(row: Mapping[str, Any]) -> str:
    """What is known of a cell without the ladder, by its row; "" where the ladder is to be asked."""
    if row["optimizer_variant"] == "native":
        return NOT_EQUAL
    return IMPORT if row["framework"] in registry.AS_WRITTEN else ""


def read(folder: Path) -> Dict[str, Dict[str, Any]]:
    """Verdicts by key, empty for a study that was run without asking for any; a damaged file holds none."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    verdicts = document.items() if isinstance(document, dict) else ()
    whole = ((name, _with_status(verdict)) for name, verdict in verdicts)
    return {name: verdict for name, verdict in whole if _is_sound(verdict)}


def _with_status(verdict: Any) -> Any:
    """A verdict of a study that has its text alone, with the status that the text says."""
    text = verdict.get("parity") if isinstance(verdict, dict) else None
    if not isinstance(text, str) or "parity_status" in verdict:
        return verdict
    failed = re.search(r", not \d", text) is not None
    status = FAILED if failed else PASSED if text[:1].isdigit() else text
    return {**verdict, "parity_status": status}


def _is_sound(verdict: Any) -> bool:
    if not isinstance(verdict, dict) or set(verdict) != set(COLUMNS):
        return False
    words = (str, type(None))
    kinds: Dict[str, Any] = {"parity": str, "parity_status": words, "parity_error": (int, float, type(None))}
    kinds["parity_where"] = words
    return all(isinstance(verdict[name], kind) for name, kind in kinds.items())
