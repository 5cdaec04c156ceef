"""The pictures of a study on its disk: the list that its workers read, and checksums of what the pictures held."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List

from framework_compare import schema
from framework_compare.errors import DataError, StudyError
from framework_compare.store import PICTURES

if TYPE_CHECKING:
    from framework_compare.planning import Plan

SUM_BYTES = 8
MAX_SHOWN = 3


def pictures_path(folder: Path, dataset: str) -> Path:
    """The list of a data set's pictures in a study folder."""
    return folder / PICTURES / f"{file_name(dataset)}.json"


def file_name(text: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80]


def write_pictures(folder: Path, plan: "Plan") -> None:
    """The picture lists of a study, where its workers and a later resume find them; one that is there stays."""
    for name, index in plan.datasets.items():
        if not pictures_path(folder, name).is_file():
            _write(pictures_path(folder, name), dataclasses.asdict(index.pictures))


def _write(path: Path, document: Any) -> None:
    with schema.told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".half").write_text(json.dumps(document), encoding="utf-8")
        path.with_suffix(".half").replace(path)


def warm_page_cache(folder: Path, datasets: Iterable[str]) -> None:
    """Read every picture once, so that the first framework does not pay the disk for the others.

    DataError for a picture that cannot be read, StudyError for one that is not what it was when first read here.
    """
    for dataset in sorted(datasets):
        paths = _listed(folder, dataset)
        now = [_checksum(dataset, path) for path in paths]
        _compare(folder, dataset, dict(zip(paths, now)))


def _listed(folder: Path, dataset: str) -> List[str]:
    path = pictures_path(folder, dataset)
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["paths"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"the study's own list of the pictures of {dataset!r}, {path}, cannot be read: {error}; "
            "delete what is left of it and give the request that made the study again, which writes it"
        ) from None


def _checksum(dataset: str, path: str) -> str:
    found = hashlib.blake2b(digest_size=SUM_BYTES)
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                found.update(chunk)
    except OSError as error:
        raise DataError(f"the pictures of data set {dataset!r} cannot be read any more: {error}") from None
    return found.hexdigest()


def _compare(folder: Path, dataset: str, now: Dict[str, str]) -> None:
    """Against what was found when the study was first run; kept if this is that time."""
    path = pictures_path(folder, dataset).with_suffix(".checksums")
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        _write(path, now)
        return
    changed = [repr(name) for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        more = f" and {len(changed) - MAX_SHOWN} more" if len(changed) > MAX_SHOWN else ""
        raise StudyError(
            f"{folder} cannot be gone on with: not what they were when it was begun are the pictures "
            f"{', '.join(changed[:MAX_SHOWN])}{more}; restore them, or name another folder"
        )
