"""The folder of a study: what its files are called, and which process may write them."""

import json
from pathlib import Path

from filelock import FileLock, Timeout

from framework_compare.errors import StudyError
from framework_compare.json_types import JSON
from framework_compare.paths import write_whole
from framework_compare.store import schema

FILE = "study.sqlite"
LOCK = "study.lock"
SUBMISSION = ("manifest.json", "records.json")  # among the files of a published study
IMAGES = "images"
MODELS = "models"
STEPS = "steps.i64"  # in a run's folder: the time of each step
# Made under this name and renamed when complete, so that a study is there whole or not at all.
NEW = FILE + ".new"
CUT_SHORT = (NEW, NEW + "-journal")


def check_vacant(folder: Path) -> None:
    """StudyError where a folder holds anything but what a creation that was cut short has left."""
    with schema.study_errors(folder):
        entries = sorted({entry.name for entry in folder.iterdir()} - {LOCK, *CUT_SHORT}) if folder.exists() else []
        if (folder / LOCK).exists() and set(entries) <= {MODELS, IMAGES}:  # a creation cut short
            entries = []
    if FILE in entries:
        raise StudyError(f"{folder} already holds a study; resume it or name another folder")
    if entries:
        raise StudyError(f"{folder} contains {entries[0]!r} and no study; name an empty or a new folder")


def is_submission(folder: Path) -> bool:
    """Return whether a folder is a published submission, and no study itself."""
    return not (folder / FILE).exists() and all((folder / name).is_file() for name in SUBMISSION)


def missing(folder: Path) -> str:
    """Return why a folder without FILE is no study, and what to do with one that is a published submission."""
    if is_submission(folder):
        return "it is a published submission; turn it into a study with load_submission(SUBMISSION, FOLDER) in Python"
    return f"there is no {FILE} in it"


def acquire_lock(folder: Path) -> FileLock:
    """The lock of the one process that writes; StudyError where another has it, or where nothing can be written."""
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StudyError(
            f"another process is writing the study in {folder}; wait for it, or open it for reading"
        ) from None
    except (OSError, RuntimeError) as error:  # filelock raises the second on a disk without locks
        remedy = "name a writable folder"
        if (folder / FILE).exists():
            remedy = "copy the folder to a writable disk; `show` and `export` read the study where it is"
        raise StudyError(f"the study in {folder} cannot be locked for writing: {error}; {remedy}") from error
    return lock


def write_json(path: Path, document: object) -> None:
    """Write a file of a study that is whole at any moment; its folder is made if absent."""
    with schema.study_errors(path):
        write_whole(path, json.dumps(document))


def read_json(path: Path) -> JSON:
    """Return what a JSON file of a study holds; StudyError where it is damaged."""
    with schema.study_errors(path):
        text = path.read_bytes()
    try:
        return json.loads(text)
    except ValueError as error:
        raise StudyError(f"{path} is damaged: {error}") from None
