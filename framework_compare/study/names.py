"""Studies by name: a path, the name of a folder in the cache, or `latest`."""

from __future__ import annotations

from pathlib import Path
from typing import List

from framework_compare.errors import StudyError
from framework_compare.store.folder import FILE
from framework_compare.study.opening import studies_dir

LATEST = "latest"


def find(name: str = LATEST) -> Path:
    """The folder of a study; StudyError where there is none of this name.

    A path comes first, then a study of that name in the cache. `latest` is the one in the cache that was written last.
    """
    path = Path(name)
    if (path / FILE).is_file():
        return path
    if name == LATEST:
        known = in_cache()
        if not known:
            raise StudyError(f"there is no study in {studies_dir()} yet; `framework-compare run` makes one")
        return max(known, key=lambda folder: (folder / FILE).stat().st_mtime)
    folder = studies_dir() / name
    if len(path.parts) == 1 and (folder / FILE).is_file():
        return folder
    return path  # whoever opens it says what is wrong with it


def in_cache() -> List[Path]:
    """The folders of studies in the cache, by name."""
    return sorted(file.parent for file in studies_dir().glob(f"*/{FILE}"))
