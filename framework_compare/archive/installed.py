"""The installed code: a checksum of all of it, its commit, and whether somebody changed it."""

import base64
import csv
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import subprocess
from pathlib import Path

from framework_compare import __version__

PACKAGE = "framework_compare"
_BESIDE = ("adapters", "models", "datasets")
_ENDINGS = {".py", ".txt", ".json", ".csv", ".html", ".css", ".js", ".typed"}


@dataclasses.dataclass(frozen=True)
class Installed:
    """modified: what differs from the commit or from the installed release, "" where nothing does."""

    version: str
    commit: str | None
    checksum: str
    modified: str


@functools.lru_cache(maxsize=1)
def installed() -> Installed:
    """The code of this process, read once."""
    files = _files()
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    root = files["__init__.py"].parent.parent
    commit = _git(root, "rev-parse", "HEAD") if _git(root, "ls-files", f"{PACKAGE}/__init__.py") else None
    modified = _changed_in_git(root) if commit else _changed_since_installed(root)
    return Installed(__version__, commit, digest.hexdigest(), modified)


def _files() -> dict[str, Path]:
    """Every file of the package by its name there, the same in a checkout and in a wheel."""
    found: dict[str, Path] = {}
    for name in ("", *_BESIDE):
        spec = importlib.util.find_spec(f"{PACKAGE}.{name}".rstrip("."))
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in folder.rglob("*"):
                if path.suffix in _ENDINGS and "__pycache__" not in path.parts and path.is_file():
                    found.setdefault((Path(name) / path.relative_to(folder)).as_posix(), path)
    return found


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _changed_in_git(root: Path) -> str:
    changed = _git(root, "status", "--porcelain", "--", PACKAGE, *_BESIDE)
    if changed is None:
        return "git cannot say what differs from the commit"
    lines = changed.splitlines()
    return f"{len(lines)} files differ from the commit, such as {lines[0].split()[-1]}" if lines else ""


def _changed_since_installed(root: Path) -> str:
    """Return what differs from the checksums that the installer noted; a copy that was never installed has none."""
    try:
        record = importlib.metadata.distribution(PACKAGE.replace("_", "-")).read_text("RECORD") or ""
    except importlib.metadata.PackageNotFoundError:
        record = ""
    noted = {
        row[0]: row[1] for row in csv.reader(record.splitlines()) if len(row) > 1 and row[0].startswith(PACKAGE + "/")
    }
    if not noted:
        return "it is neither a git checkout nor an installed release"
    for name, noted_digest in noted.items():
        if noted_digest.startswith("sha256=") and not name.endswith(".pyc"):
            path = root / name
            actual = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
            if base64.urlsafe_b64encode(actual).rstrip(b"=").decode() != noted_digest.removeprefix("sha256="):
                return f"{name} differs from the installed release"
    return ""
