"""Pythons on this machine that a virtual environment can be made from; uv's own search misses those of pyenv."""

import dataclasses
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from framework_compare.errors import EnvironmentUnavailable

Minor = tuple[int, int]

PYTHONS_VARIABLE = "FRAMEWORK_COMPARE_PYTHON"
_PROBE_TIMEOUT_S = 60  # a start takes 50 ms, and half a minute where a dozen programs share two cores
# The pinned wheels are for CPython with its GIL; any other prints nothing.
_PROBE = """
import platform, sys, sysconfig
if platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("%d.%d.%d" % sys.version_info[:3])
"""


class Unavailable(EnvironmentUnavailable):
    """An EnvironmentUnavailable whose reason and remedy can be shown apart; its message is both."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}; {remedy}")
        self.why = why
        self.remedy = remedy


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python that answered, and its version as text."""

    path: Path
    version: str

    @property
    def minor(self) -> Minor:
        major, minor, _ = self.version.split(".")
        return int(major), int(minor)


def choose(allowed: tuple[Minor, Minor], *, framework: str = "it") -> Interpreter:
    """The interpreter to make an environment with: of the running one's version if allowed, else the newest.

    `allowed` is the first and the last version, both included: ((3, 11), (3, 13)).
    Raises Unavailable, naming the range and what was found.
    """
    first, last = allowed
    running = probe(Path(sys.executable))
    if running and not os.environ.get(PYTHONS_VARIABLE) and first <= running.minor <= last:
        return running  # the common case, without asking a dozen other Pythons
    fitting = list(_answering(allowed))
    if fitting:
        return max(fitting, key=lambda one: (one.minor == sys.version_info[:2], one.minor))
    versions = ", ".join(f"{one.version} ({one.path})" for one in _answering(None))
    newest = "{}.{}".format(*last)
    raise Unavailable(
        f"{framework} needs Python {range_text(allowed)} (CPython with the GIL); this machine has"
        f" {versions or 'none that runs'}",
        f"install one (`uv python install {newest}`, `pyenv install {newest}`, or your system's packages), "
        f"list it in ${PYTHONS_VARIABLE}, or name an interpreter that has the framework: "
        f"--python {framework}=/path/to/python",
    )


def minors(allowed: tuple[Minor, Minor]) -> list[Minor]:
    """Versions of the Pythons here that are allowed, newest first."""
    return sorted({one.minor for one in _answering(allowed)}, reverse=True)


@functools.cache
def probe(path: Path) -> Interpreter | None:
    """Return what a Python says of itself, or None if it does not run or cannot be used; remembered in this process."""
    try:
        answer = subprocess.run(
            [str(path), "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    version = answer.stdout.strip()
    return Interpreter(path, version) if re.fullmatch(r"\d+\.\d+\.\d+", version) else None


def range_text(allowed: tuple[Minor, Minor]) -> str:
    """((3, 10), (3, 11)) as "3.10 to 3.11"."""
    first, last = ("{}.{}".format(*minor) for minor in allowed)
    return first if first == last else f"{first} to {last}"


def _answering(allowed: tuple[Minor, Minor] | None) -> Iterator[Interpreter]:
    """Candidates that run, each real file once; of `allowed` versions, where these are given.

    What is named after another version is not started.
    """
    real_paths = set()
    for path in _candidates():
        named = re.fullmatch(r"python(\d+)\.(\d+)", path.name)
        real = os.path.realpath(path)
        other = allowed and named and not allowed[0] <= (int(named[1]), int(named[2])) <= allowed[1]
        if other or real in real_paths or not os.access(path, os.X_OK):
            continue
        real_paths.add(real)
        answer = probe(path)
        if answer and (allowed is None or allowed[0] <= answer.minor <= allowed[1]):
            yield answer


def _candidates() -> Iterator[Path]:
    """Paths that may be Pythons, the most wanted first."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    conda = [home / name for name in ("miniforge3", "miniconda3", "anaconda3", "mambaforge")]
    if os.environ.get("CONDA_EXE"):
        conda.insert(0, Path(os.environ["CONDA_EXE"]).parents[1])
    yield from _listed(PYTHONS_VARIABLE)
    yield Path(sys.executable)
    folders = [
        # pyenv's shims are slow scripts that fail for versions not switched on
        *(folder for folder in _listed("PATH") if folder != pyenv / "shims"),
        *(version / "bin" for root in (pyenv / "versions", uv) for version in _newest_first(root.glob("*"))),
        *map(Path, ("/usr/bin", "/usr/local/bin")),
        *(base / "bin" for base in conda),
    ]
    for folder in folders:
        yield from (path for path in _newest_first(folder.glob("python3.*")) if path.name[8:].isdecimal())


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [int(digits) for digits in re.findall(r"\d+", path.name)], reverse=True)


def _listed(variable: str) -> list[Path]:
    return [Path(item).expanduser() for item in os.environ.get(variable, "").split(os.pathsep) if item]
