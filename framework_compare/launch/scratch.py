"""Folders of a run: a temporary one that ends with its use, and files of a folder that a worker may have replaced.

Frameworks leave generated code, sockets and caches in the first. Its path is short: the path of a socket holds 107
characters, of which multiprocessing adds about 40 of its own. The supervisor removes it as well, for a parent that was
killed; what both left behind is removed at the next start.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, Iterator

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


def _locked_folder(base: Path) -> tuple[Path, int]:
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


def open_regular(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a file, unbuffered, for what `flags` say; OSError for a link, or a pipe, which may be waited on for ever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(descriptor, "r+b" if flags & os.O_RDWR else "rb", buffering=0)


def make_way(path: Path) -> None:
    """Remove anything but a regular file from a path that a run will write."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            shutil.rmtree(path)
        elif not stat.S_ISREG(mode):
            path.unlink()
