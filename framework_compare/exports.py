"""A study as files for other tools: Parquet, CSV or JSON, one a table, and study.json with what goes with them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple, Union

from framework_compare import salvage, schema, tables
from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError, UnknownNameError, UsageError
from framework_compare.picture_lists import file_name
from framework_compare.store import FILE, Store

if TYPE_CHECKING:
    import pandas as pd




@dataclasses.dataclass(frozen=True)
class Export:
    """Files written, and of a damaged study what could not be read (one sentence a table)."""

    files: Tuple[Path, ...]
    damage: Tuple[str, ...] = ()


def export(
    study: Union[str, "os.PathLike[str]"], out: Union[str, "os.PathLike[str]"], kind: str = "parquet"
) -> Export:
    """Write the tables of a study into folder `out`, made if absent: cells, runs, epochs, phases, samples, energy.

    Of a damaged study the stored tables are written as far as they can be read, under their own names, and `damage`
    says what is missing. UsageError for an unknown kind, files that are there already, or Parquet without pyarrow.
    """
    if kind not in WRITERS:
        raise UnknownNameError("format", kind, WRITERS)
    if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError("Parquet needs pyarrow: pip install 'framework-compare[parquet]', or choose csv or json")
    folder, target = Path(study).absolute(), Path(out).absolute()
    if not (folder / FILE).is_file():
        raise StudyError(f"{folder} holds no study: there is no {FILE} in it")
    told: List[str] = []
    if salvage.is_whole(folder):
        parts, told = _whole(folder)
        if not told:
            return Export(tuple(_write(target, parts, kind)))
    found = list(salvage.salvage(folder))
    files = _write(target, {file_name(part.table): _frame(part) for part in found}, kind)
    return Export(tuple(files), tuple(_damage(found, told)))


def _whole(folder: Path) -> Tuple[Dict[str, Any], List[str]]:
    """All frames of a study, and what is wrong with it, of which a file that SQLite finds whole can hold enough."""
    study = Comparison(folder)
    try:
        return _frames(study, folder), study.damage
    except schema.DamagedStudy as error:
        return {}, [str(error)]


def _frames(study: Comparison, folder: Path) -> Dict[str, Any]:
    import pandas as pd

    with Store.open(folder) as store:
        names, rows = store.select("SELECT * FROM run ORDER BY run_id")
    frames = {"cells": study.frame, "epochs": study.epochs, "phases": study.phases, "samples": study.samples, "profile": study.profile}
    frames["energy"] = study.energy
    facts = {"settings": study.settings, "machine": study.machine, "environments": study.environments}
    return {**frames, "runs": pd.DataFrame(rows, columns=names), "study": facts}


def _frame(part: salvage.Salvaged) -> "pd.DataFrame":
    import pandas as pd

    names = [name if name not in part.columns[:n] else f"{name}_{n}" for n, name in enumerate(part.columns)]
    return pd.DataFrame([[_plain(value) for value in row] for row in part.rows], columns=names)


def _plain(value: Any) -> Any:
    return repr(value) if isinstance(value, bytes) else value


def _damage(found: List[salvage.Salvaged], told: List[str]) -> List[str]:
    missing = [f"table {name} cannot be read" for name in salvage.TABLES if name not in [part.table for part in found]]
    cut = [f"table {part.table}: {len(part.rows)} rows could be read, not all" for part in found if not part.complete]
    return missing + cut + told or ["the file is damaged where no row is read; every row could be read"]


def _write(target: Path, parts: Dict[str, Any], kind: str) -> List[Path]:
    names = {name: target / f"{name}.{'json' if isinstance(part, dict) else kind}" for name, part in parts.items()}
    there = [path.name for path in names.values() if path.exists()]
    if there:
        raise UsageError(f"{target} holds {there[0]} already; name another folder for the export")
    # Under other names until all are whole: what a full disk cuts short must not stand in the way of the next attempt.
    halves = {name: path.with_name(path.name + ".half") for name, path in names.items()}
    with schema.told(target):
        try:
            target.mkdir(parents=True, exist_ok=True)
            for name, part in parts.items():
                if isinstance(part, dict):
                    halves[name].write_text(json.dumps(part, indent=1), encoding="utf-8")
                else:
                    WRITERS[kind](part, halves[name])
            for name, path in names.items():
                halves[name].replace(path)
        finally:
            for half in halves.values():
                half.unlink(missing_ok=True)
    return list(names.values())


def _parquet(frame: "pd.DataFrame", path: Path) -> None:
    _one_kind_a_column(frame).to_parquet(path, engine="pyarrow", index=False)


def _one_kind_a_column(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Parquet takes no column of several kinds, which a damaged one may be: it becomes text."""
    texts = [name for name in frame.columns if frame[name].dtype.kind == "O"]
    mixed = [name for name in texts if frame[name].dropna().map(type).nunique() > 1]
    return frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in mixed})


def _csv(frame: "pd.DataFrame", path: Path) -> None:
    path.write_text(tables.csv(frame), encoding="utf-8", newline="")


def _json(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_json(path, orient="records", indent=1)


WRITERS: Dict[str, Callable[["pd.DataFrame", Path], None]] = {"parquet": _parquet, "csv": _csv, "json": _json}
