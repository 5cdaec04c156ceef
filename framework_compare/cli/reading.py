"""Studies that a command only reads: those of a folder, and those of published submissions."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework_compare.comparison import Comparison


def folder(study: str) -> Path:
    """The folder of a study; a submission is checked and written into a temporary one, which ends with the program."""
    from framework_compare.archive.documents import Refused
    from framework_compare.archive.validate import load_submission
    from framework_compare.errors import StudyError
    from framework_compare.store.folder import is_submission
    from framework_compare.study import names

    found = names.find(study)
    if not is_submission(found):
        return found
    place = Path(tempfile.mkdtemp(prefix="framework-compare-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    try:
        return load_submission(found, place / found.name).folder
    except Refused as error:
        raise StudyError(f"{found} is not a valid submission: {error}") from None


def load(study: str) -> Comparison:
    """Return the study of a folder, of a name in the cache, or of a submission."""
    from framework_compare.comparison import Comparison

    return Comparison.load(folder(study))
