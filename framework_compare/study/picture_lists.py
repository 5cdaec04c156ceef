"""The pictures of a study on its disk: the list that its workers read, and checksums of what the pictures held."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from framework_compare.errors import DataError, StudyError
from framework_compare.paths import file_name
from framework_compare.protocol import Pictures
from framework_compare.store import schema
from framework_compare.store.study_file import PICTURES

if TYPE_CHECKING:
    from framework_compare.plan.planning import Plan

SUM_BYTES = 8
MAX_SHOWN = 3


def pictures_path(folder: Path, dataset: str) -> Path:
    """The list of a data set's pictures in a study folder; no two data sets have the same."""
    plain = file_name(dataset)
    if plain != dataset or dataset != dataset.lower():  # some file systems tell no A from an a
        # No plain name has a plus sign in it.
        plain = f"{plain[:60]}+{hashlib.sha256(dataset.encode()).hexdigest()[:12]}"
    return folder / PICTURES / f"{plain}.json"


def checksum(pictures: Pictures) -> str:
    """Of the list of pictures, as its file holds it; not of their bytes."""
    return _digest(json.dumps(dataclasses.asdict(pictures)).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def write_pictures(folder: Path, plan: "Plan") -> None:
    """The picture lists of a study, where its workers and a later resume find them."""
    for name, index in plan.datasets.items():
        _write(pictures_path(folder, name), dataclasses.asdict(index.pictures))


def _write(path: Path, document: Any) -> None:
    with schema.study_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".half").write_text(json.dumps(document), encoding="utf-8")
        path.with_suffix(".half").replace(path)


def warm_page_cache(folder: Path, datasets: Mapping[str, Optional[str]]) -> None:
    """Read every picture once, so that the first framework does not pay the disk for the others.

    datasets: name -> checksum of its list, None where the study has none. DataError for a picture that cannot be read,
    StudyError for a list or a picture that is not what it was when the study was begun.
    """
    for dataset in sorted(datasets):
        _take_over(folder, dataset, datasets[dataset])
        paths = _listed(folder, dataset, datasets[dataset])
        now = [_checksum(dataset, path) for path in paths]
        _compare(folder, dataset, dict(zip(paths, now)))


def _take_over(folder: Path, dataset: str, expected: Optional[str]) -> None:
    """A list under the name that earlier versions gave it, which several data sets could share: if it is this one's."""
    path, earlier = pictures_path(folder, dataset), folder / PICTURES / f"{file_name(dataset)}.json"
    if path.exists() or not earlier.is_file():
        return
    with schema.study_errors(earlier):
        if expected in (None, _digest(earlier.read_bytes())):
            sums = earlier.with_suffix(".checksums")
            if sums.is_file():
                sums.replace(path.with_suffix(".checksums"))
            earlier.replace(path)


def _listed(folder: Path, dataset: str, expected: Optional[str]) -> List[str]:
    path = pictures_path(folder, dataset)
    try:
        content = path.read_bytes()
        if expected not in (None, _digest(content)):
            raise ValueError("it is not the one that the study was planned with")
        return list(json.loads(content)["paths"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"the study's own list of the pictures of {dataset!r}, {path}, cannot be used: {error}; "
            "give the request that made the study again, which writes it"
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
    if not path.exists():
        _write(path, now)
        return
    before = _read_checksums(path)
    changed = [repr(name) for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        more = f" and {len(changed) - MAX_SHOWN} more" if len(changed) > MAX_SHOWN else ""
        raise StudyError(
            f"{folder} cannot be resumed: these pictures are not what they were when it was begun: "
            f"{', '.join(changed[:MAX_SHOWN])}{more}; restore them, or name another folder"
        )


def _read_checksums(path: Path) -> Dict[str, str]:
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it holds no checksums")
        return found
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{path} says what the pictures held when the study was begun, and cannot be read: {error}; "
            "delete it if they are the same still, or name another folder"
        ) from None
