"""Temporary folders that end with their use: of one run, where frameworks leave generated code, sockets and caches, too.

Its path is short: the path of a socket holds 107 characters, of which multiprocessing adds about 40 of its own. The
supervisor removes it as well, for a parent that was killed; what both left behind is removed at the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Iterator, Tuple

PREFIX = "fc-"
LOCK = ".lock"
LONGEST = 50  # characters of the folder that ours is made in


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new folder under the user's temporary folder, or under /tmp where that has too long a path."""
    base = Path(tempfile.gettempdir())
    if len(str(base)) > LONGEST and os.access("/tmp", os.W_OK):
        base = Path("/tmp")
    remove_abandoned(base)
    folder, lock = _locked_folder(base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(base: Path) -> Tuple[Path, int]:
    """A new folder and its lock, held until this process ends, however it does."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / LOCK).exists():
            return folder, lock
        os.close(lock)  # another process took it for an abandoned one before the lock was ours


def remove_abandoned(base: Path) -> None:
    """Remove the folders of runs whose parent and supervisor were both killed: nobody holds their lock."""
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone already
            lock = os.open(folder / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
