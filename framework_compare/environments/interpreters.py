"""Pythons on this machine that a virtual environment can be made from."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from framework_compare.errors import EnvironmentUnavailable

Minor = tuple[int, int]

PYTHONS_VARIABLE = "FRAMEWORK_COMPARE_PYTHON"
_PROBE_TIMEOUT_S = 60  # a start takes 50 ms, and half a minute where a dozen programs share two cores
_PROBE = """
import json, platform, sys, sysconfig
faults = []
if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
    faults.append("the pinned wheels are for CPython with its GIL")
for module in ("ensurepip", "venv"):
    try:
        __import__(module)
    except ImportError:
        faults.append("its module %s is missing (Debian, Ubuntu: apt install python%d.%d-venv)"
                      % ((module,) + tuple(sys.version_info[:2])))
print(json.dumps({"version": list(sys.version_info[:3]), "fault": "; ".join(faults)}))
"""


class Unavailable(EnvironmentUnavailable):
    """An EnvironmentUnavailable whose reason and remedy can be shown apart; its message is both."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}; {remedy}")
        self.why = why
        self.remedy = remedy


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python that answered; `fault` says why no environment can be made from it, empty when one can."""

    path: Path
    version: tuple[int, int, int]
    fault: str = ""

    @property
    def minor(self) -> Minor:
        return self.version[:2]

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def choose(allowed: tuple[Minor, Minor], *, framework: str = "it") -> Interpreter:
    """The interpreter to make an environment with: of the running one's version if allowed, else the newest.

    `allowed` is the first and the last version, both included: ((3, 11), (3, 13)).
    Raises Unavailable, naming the range and what was found.
    """
    running = probe(Path(sys.executable))
    explicit = _listed(PYTHONS_VARIABLE)
    if running and not running.fault and not explicit and _within(running.minor, allowed):
        return running  # the common case, without asking a dozen other Pythons
    fitting = [one for one in _answering(allowed) if _within(one.minor, allowed) and not one.fault]
    if not fitting:
        raise _none_fits(allowed, framework)
    return max(fitting, key=lambda one: (one.minor == sys.version_info[:2], one.minor))


def discover() -> list[Interpreter]:
    """Every Python that an environment can be made from, best first; each is started once per process."""
    return [one for one in _answering(None) if not one.fault]


@functools.cache
def probe(path: Path) -> Interpreter | None:
    """What a Python says of itself, or None if it does not run; remembered for the life of this process."""
    try:
        answer = subprocess.run(
            [str(path), "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True,
        )  # fmt: skip
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    major, minor, micro = facts["version"]
    return Interpreter(path, (major, minor, micro), facts["fault"])


def range_text(allowed: tuple[Minor, Minor]) -> str:
    """((3, 10), (3, 11)) as "3.10 to 3.11"."""
    first, last = (f"{major}.{minor}" for major, minor in allowed)
    return first if first == last else f"{first} to {last}"


def _within(minor: Minor, allowed: tuple[Minor, Minor]) -> bool:
    return allowed[0] <= minor <= allowed[1]


def _none_fits(allowed: tuple[Minor, Minor], framework: str) -> Unavailable:
    versions = ", ".join(
        f"{one.version_text} ({one.path}{': ' + one.fault if one.fault else ''})" for one in _answering(None)
    )
    newest = ".".join(map(str, allowed[1]))
    return Unavailable(
        f"{framework} needs Python {range_text(allowed)}, and this machine has {versions or 'none that runs'}",
        f"install one (`uv python install {newest}`, `pyenv install {newest}`, or your system's packages), "
        f"list it in ${PYTHONS_VARIABLE}, or name an interpreter that has the framework: "
        f"--python {framework}=/path/to/python",
    )


def _answering(allowed: tuple[Minor, Minor] | None) -> Iterator[Interpreter]:
    """Candidates that run, each real file once; with `allowed`, those named after another version are not started."""
    real_paths = set()
    for path in _candidates():
        named = _version_in_name(path)
        if allowed and named and not _within(named, allowed):
            continue
        real = os.path.realpath(path)
        if real in real_paths or not os.access(path, os.X_OK):
            continue
        real_paths.add(real)
        answer = probe(path)
        if answer:
            yield answer


def _version_in_name(path: Path) -> Minor | None:
    match = re.fullmatch(r"python(\d+)\.(\d+)", path.name)
    return (int(match[1]), int(match[2])) if match else None


def _candidates() -> Iterator[Path]:
    """Paths that may be Pythons, the most wanted first."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    yield from _listed(PYTHONS_VARIABLE)
    yield Path(sys.executable)
    for folder in _listed("PATH"):
        # pyenv's shims are slow scripts that fail for versions not switched on; the versions themselves come below
        if folder != pyenv / "shims":
            yield from _pythons_in(folder)
    for root in (pyenv / "versions", uv):
        for version in _newest_first(root.glob("*")):
            yield from _pythons_in(version / "bin")
    for usual in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"):
        yield from _pythons_in(Path(usual))
    yield from _conda_bases(home)


def _conda_bases(home: Path) -> Iterator[Path]:
    if os.environ.get("CONDA_EXE"):
        yield Path(os.environ["CONDA_EXE"]).parents[1] / "bin/python"
    for name in ("miniforge3", "miniconda3", "anaconda3", "mambaforge"):
        yield home / name / "bin/python"


def _pythons_in(folder: Path) -> list[Path]:
    return [path for path in _newest_first(folder.glob("python3.*")) if _version_in_name(path)]


def _newest_first(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [int(digits) for digits in re.findall(r"\d+", path.name)], reverse=True)


def _listed(variable: str) -> list[Path]:
    return [Path(item).expanduser() for item in os.environ.get(variable, "").split(os.pathsep) if item]
