"""Studies by name: a path, the name of a folder in the cache, or `latest`."""

import os
from pathlib import Path

from framework_compare.errors import StudyError, UsageError
from framework_compare.protocol import Fields
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store
from framework_compare.study.opening import check_folder, studies_dir

LATEST = "latest"
ALLOWED = "a study's folder, its name in the cache, or latest; `framework-compare list` shows names"


def find(name: str | os.PathLike[str] = LATEST) -> Path:
    """The folder of a study; StudyError where there is none of this name, UsageError for what is no name.

    A path, also that of the study's file, comes first, then a study of that name in the cache. `latest` is the one in the
    cache that was written last.
    """
    if name == "":
        raise UsageError(f"the study is named ''; allowed: {ALLOWED}")
    path = check_folder("study", name)
    if path.name == FILE and path.is_file():
        path = path.parent
    if (path / FILE).is_file():
        return path
    if str(name) == LATEST:
        known = in_cache()
        if not known:
            raise StudyError(f"there is no study in {studies_dir()} yet; `framework-compare run` makes one")
        return max(known, key=lambda folder: (folder / FILE).stat().st_mtime)
    folder = studies_dir() / path.name
    if len(path.parts) == 1 and (folder / FILE).is_file():
        return folder
    if not path.exists():
        raise StudyError(f"{path} contains no study: there is no such folder; allowed: {ALLOWED}")
    return path  # whoever opens it says what is wrong with it


def find_two(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The folders of two studies; UsageError where both names are those of one, or one is a copy of the other."""
    folders = find(first), find(second)
    if folders[0].resolve() == folders[1].resolve():
        raise UsageError(f"{first} and {second} are the same study; name another")
    both = _ended(folders[0]) & _ended(folders[1])
    if both:
        raise UsageError(
            f"{first} and {second} share {len(both)} run{'s' * (len(both) > 1)}, so they are not independent samples; "
            "name another"
        )
    return folders


def _ended(folder: Path) -> set[tuple[object, ...]]:
    """Return what tells each run that has ended from every other: its cell, start and length."""
    query = "SELECT framework, model, started_at, wall_s FROM run JOIN cell USING (cell_id) WHERE wall_s > 0"
    with Store.open(folder) as store:
        return set(store.select(query))


def in_cache() -> list[Path]:
    """The folders of studies in the cache, by name."""
    return sorted(file.parent for file in studies_dir().glob(f"*/{FILE}"))


def shown(folder: Path) -> str:
    """Return what a reader calls a study by: the name of one in the cache, else its path."""
    return folder.name if folder.absolute().parent == studies_dir() else str(folder)


def listed(folder: Path) -> Fields:
    """Return what `list` shows of a study; StudyError where it cannot be read.

    started_at: when its first run began, "" before that; ok, cells: how many cells are ok, and all.
    """
    with Store.open(folder) as store:
        outcomes = store.outcomes()
        ((first,),) = store.select("SELECT MIN(started_at) FROM run WHERE started_at != ''")
    ok = sum(set(statuses) == {"ok"} for statuses in outcomes.values())
    frameworks, models = (tuple(dict.fromkeys(getattr(cell, of) for cell in outcomes)) for of in ("framework", "model"))
    return {
        "name": folder.name,
        "started_at": str(first or "")[:16].replace("T", " "),
        "ok": ok,
        "cells": len(outcomes),
        "frameworks": frameworks,
        "models": models,
    }
