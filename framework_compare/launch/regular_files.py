"""Files in a run's folder as the parent opens them: a worker may have put something else in their place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO


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
