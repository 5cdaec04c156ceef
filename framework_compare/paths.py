"""Folders that this package makes outside the user's own, and names of files."""

import contextlib
import os
import re
import stat
import tempfile
import threading
from pathlib import Path

import platformdirs

from framework_compare.errors import UsageError

CACHE_VARIABLE = "FRAMEWORK_COMPARE_CACHE"
SHARED = Path("/tmp")


def cache_dir() -> Path:
    """The cache folder, absolute, perhaps not there yet: $FRAMEWORK_COMPARE_CACHE, else the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("framework_compare", appauthor=False)


def private_folder(path: Path) -> Path:
    """A folder that only this user can enter, made if it is not there; UsageError where it is another's or open."""
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}; set TMPDIR to a folder of your own") from None
    if not _is_private(path):
        raise UsageError(
            f"{path} is not a folder that only you can enter, so others may have put something there; remove it, or set"
            " TMPDIR to a folder of your own"
        )
    return path


def fault(folder: Path) -> str:
    """Return why no file could be written into a folder, there or not, as the end of a sentence; "" where one could."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists() or one.is_symlink())
    if not there.exists():
        return f"{there} is a broken link"
    if not there.is_dir():
        return f"{there} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written"
    if not os.statvfs(there).f_blocks:  # as of /proc, whose folders say that root may write there
        try:
            os.rmdir(tempfile.mkdtemp(dir=there))
        except OSError:
            return f"{there} cannot contain files"
    return ""


def runtime_dir() -> Path:
    """The user's runtime folder, or a private one where there is none: one per host for all of their processes.

    That is in /tmp, or in the user's cache where another user was first to take its name in /tmp.
    """
    given = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if _is_private(Path(given)):
        return Path(given)
    own = platformdirs.user_cache_path("framework_compare", appauthor=False) / "runtime"
    for place in (SHARED / own_name(), own):
        with contextlib.suppress(UsageError):
            return private_folder(place)
    raise UsageError(
        f"neither {SHARED / own_name()} nor {own} is a folder that only you can enter; set XDG_RUNTIME_DIR to one"
    )


def own_name() -> str:
    """Return what a folder of this user's in a place for all users is called."""
    return f"framework-compare-{os.getuid()}"


def _is_private(path: Path) -> bool:
    try:
        found = path.lstat()  # of a link its own, so that nobody can lead elsewhere
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is whole at any moment, whoever else writes it meanwhile; its folder is made if absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    half.write_bytes(content if isinstance(content, bytes) else content.encode())
    half.replace(path)


def file_name(text: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80]
