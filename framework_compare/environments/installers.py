"""Fill a folder with a virtual environment, by pip or uv, and say in one sentence why that failed."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from framework_compare.environments.interpreters import Unavailable
from framework_compare.errors import UsageError
from framework_compare.paths import CACHE_VARIABLE
from framework_compare.registry import ForeignWheels

INSTALLERS = ("pip", "uv")
NO_INDEX = "none"  # in place of a URL: no index but those of the installer's own settings

_DOWNLOAD = re.compile(r"\s*Downloading (?:\S*/)?(\S+) \(([\d.]+ [MG]B)\)")
_ERROR = re.compile(r"\s*(?:ERROR|error): (.+)")
_UV_ERROR = re.compile(r"\s*(?:error:|×)\s*(.+)")
_NETWORK = re.compile(
    r"connection broken by|Could not fetch URL|Max retries exceeded|Read timed out|error sending request|dns error|"
    r"tcp connect error|Failed to fetch|name resolution"
)
_NOT_FOUND = re.compile(r"No matching distribution|Could not find a version|No solution found|There is no version of")
_CAUSE = re.compile(r"\[Errno -?\d+\] [^'\")]+|[Rr]ead timed out|[Cc]onnection refused|CERTIFICATE_VERIFY_FAILED")
# pip says so at -vv of one index and goes on to the next; uv ends with it.
_UNREACHED = re.compile(
    r"Could not fetch URL|Location '.*' is ignored|Skipping page|Failed to fetch|error sending request|dns error"
)
_SKIPPED = re.compile(r".*(Could not fetch URL|Skipping page) \S+ ?|.* is ignored: it is | - skipping$")


@dataclasses.dataclass(frozen=True)
class Order:
    """What to install where; `say` gets a message for each slow download.

    own: the requirements of the framework itself. index: the package index (a URL) that those alone are installed from,
    or NO_INDEX: all are from the indexes of the installer's settings. default_index: the one to use where `index` is None,
    if it answers when asked for `package`. own_index: the one that has what others have not, for the user to name.
    larger: requirements of a larger build, for when no index has the one of `requirements`.
    """

    framework: str
    folder: Path
    interpreter: Path
    requirements: Path
    log: Path
    installer: str = "pip"
    index: str | None = None
    own_index: str = ""
    default_index: str = ""
    package: str = ""
    own: tuple[str, ...] = ()
    larger: Path | None = None
    say: Callable[[str], None] = lambda message: None
    foreign: ForeignWheels | None = None
    site_packages: Path = Path()  # where foreign wheels go


class _Failed(Exception):
    """A command ended badly; holds what it printed."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.lines = lines


def check_name(installer: str) -> None:
    """UsageError unless `installer` is one of INSTALLERS."""
    if installer not in INSTALLERS:
        raise UsageError(f"unknown installer {installer!r}; allowed: {', '.join(INSTALLERS)}")


def install(order: Order) -> str | None:
    """Make the environment and install the requirements; return the URL of the framework's own index, if one was used.

    Output goes to `order.log`, the last run's only. Raises Unavailable; what was written by then stays, for the caller
    to remove.
    """
    make_environment = _commands(order)[0]
    with order.log.open("w", encoding="utf-8") as log:
        try:
            _run(make_environment, log, order)
            order = _with_index(order, log)
            try:
                _fill(order, log)
            except _Failed as failure:
                if order.larger is None or not _NOT_FOUND.search(" ".join(failure.lines)):
                    raise
                order.say(
                    f"{order.framework}: no index has its build for CPUs; installing the one for GPUs, several GB"
                )
                order = dataclasses.replace(order, requirements=order.larger, index=None)
                _fill(order, log)
        except _Failed as failure:
            raise _explain(order, failure.lines) from None
    return order.index


def _fill(order: Order, log: TextIO) -> None:
    if order.index:
        _own_file(order).write_text("\n".join(order.own), encoding="utf-8")
    for command in _commands(order)[1:]:
        _run(command, log, order)


def _commands(order: Order) -> list[list[str]]:
    return _pip_commands(order) if order.installer == "pip" else _uv_commands(order)


def _own_file(order: Order) -> Path:
    return order.folder / "own-requirements.txt"


def _with_index(order: Order, log: TextIO) -> Order:
    """The order with the index that it will use: the one asked for, else the default one if that answers."""
    if order.index == NO_INDEX:
        return dataclasses.replace(order, index=None)
    if order.index or not order.default_index:
        return order
    why = _unreached(order, log)
    if not why:
        return dataclasses.replace(order, index=order.default_index)
    order.say(
        f"{order.framework}: its index of CPU builds, {order.default_index}, cannot be reached ({why}); the settings of"
        f" {order.installer} alone decide which build is installed, perhaps one for GPUs of several GB"
    )
    return order


def _unreached(order: Order, log: TextIO) -> str:
    """Why the installer, by its own proxy and certificates, gets no answer from the default index; empty if it does."""
    try:
        lines = _run(_question(order), log, order)
    except _Failed as failure:  # pip fails where the index lacks the package, too: others may have it
        lines = failure.lines
    own = order.default_index if order.installer == "pip" else ""  # pip names each index, those of its settings too
    missed = next((line for line in lines if _UNREACHED.search(line) and own in line), "")
    cause = _CAUSE.search(missed)
    return cause[0] if cause else _shorten(_SKIPPED.sub("", missed), 120)


def _question(order: Order) -> list[str]:
    """A command that asks the default index for the package and installs nothing; pip's is told not to try again."""
    python = str(order.folder / "bin/python")
    if order.installer == "uv":
        dry = ["pip", "install", "--dry-run", "--no-deps", "--python", python]
        return [_uv(order), *dry, "--index-url", order.default_index, order.package]
    brief = ["--disable-pip-version-check", "--no-input", "--retries", "0", "--timeout", "10", "-vv"]
    return [python, "-m", "pip", "index", "versions", *brief, "--index-url", order.default_index, order.package]


def public_url(url: str | None) -> str | None:
    """A URL without the user name and password it may hold, fit to be stored and shown."""
    return re.sub(r"(?<=//)[^/@]*@", "", url) if url else url


def _pip_commands(order: Order) -> list[list[str]]:
    python = str(order.folder / "bin/python")
    install = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    commands = [[str(order.interpreter), "-I", "-m", "venv", str(order.folder)], *_installs(install, order)]
    if order.foreign:
        wheels = order.foreign
        tags = ["--python-version", wheels.python, "--abi", wheels.abi, "--platform", wheels.platform]
        commands.append([*install, *_foreign_options(order, wheels), "--implementation", "cp", *tags])
    return commands


def _installs(install: list[str], order: Order) -> list[list[str]]:
    """The framework's own packages from its index; then all, of which those are there already."""
    every = [*install, "-r", str(order.requirements), *_checked(order.requirements)]
    if not order.index or not order.own:
        return [every]
    own = ["--no-deps", "-r", str(_own_file(order)), *_checked(order.requirements), *_index_options(order)]
    return [[*install, *own], every]


def _checked(requirements: Path) -> list[str]:
    """Of requirements with checksums each file must have one of its own, and none is built here."""
    hashed = "--hash=" in requirements.read_text(encoding="utf-8")
    return ["--require-hashes", "--only-binary", ":all:"] if hashed else []


def _foreign_options(order: Order, wheels: ForeignWheels) -> list[str]:
    """Into the folder from which the environment imports, and nothing but the wheels themselves, by their checksums."""
    only = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", wheels.requirements]
    return ["--target", str(order.site_packages), *only, *_index_options(order)]


def _uv(order: Order) -> str:
    beside = os.path.dirname(sys.executable)  # where `pip install uv` put it, when this environment is not activated
    uv = shutil.which("uv", path=os.pathsep.join([os.environ.get("PATH", ""), beside]))
    if uv is None:
        raise Unavailable(
            f"{order.framework}: uv was requested as installer, but no uv is on PATH",
            "install it (`pip install uv`) or use the default installer, pip",
        )
    return uv


def _uv_commands(order: Order) -> list[list[str]]:
    uv = _uv(order)
    python = str(order.folder / "bin/python")
    install = [uv, "pip", "install", "--python", python, "--compile-bytecode"]
    make = [str(order.interpreter), "-I", "-m", "venv", "--without-pip", str(order.folder)]
    commands = [make, *_installs(install, order)]
    if order.foreign:
        system, _, machine = order.foreign.platform.partition("_")
        tags = ["--python-version", order.foreign.python, "--python-platform", f"{machine}-{system}"]
        commands.append([*install, *_foreign_options(order, order.foreign), *tags])
    return commands


def _index_options(order: Order) -> list[str]:
    return ["--index-url", order.index] if order.index else []


def _run(command: list[str], log: TextIO, order: Order) -> list[str]:
    log.write("$ " + " ".join(public_url(part) or "" for part in command) + "\n")
    log.flush()
    lines = []
    try:
        child = subprocess.Popen(
            command, env=_child_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise _Failed([f"error: {command[0]} does not start: {error.strerror}"]) from None
    with child:
        try:
            for line in child.stdout or ():
                log.write(line)
                lines.append(line.rstrip())
                _tell_download(line, order)
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise _Failed(lines)
    return lines


def _child_environment() -> dict[str, str]:
    # the parent's modules must not pass for installed ones, nor pip's "user" setting send packages elsewhere
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return {**inherited, "PIP_USER": "0"}


def _tell_download(line: str, order: Order) -> None:
    match = _DOWNLOAD.match(line)
    if match:
        order.say(f"{order.framework}: downloading {match[1]} ({match[2]})")


def _explain(order: Order, lines: list[str]) -> Unavailable:
    reason, remedy = diagnose(order, lines)
    other = f"name an interpreter that has {order.framework}: --python {order.framework}=/path/to/python"
    return Unavailable(
        f"{order.framework}: {order.installer} could not install its requirements ({reason})",
        f"{remedy}, or {other}; its output is in {order.log}",
    )


def diagnose(order: Order, lines: list[str]) -> tuple[str, str]:
    """Why an install failed and what to do, from what the installer printed."""
    reason = _uv_reason(lines) if order.installer == "uv" else _pip_reason(lines)
    settings = "pip's settings (`pip config list`)" if order.installer == "pip" else "uv's settings (it reads no pip's)"
    if "No space left" in reason:
        return reason, f"free disk space or set ${CACHE_VARIABLE} to a folder on a larger disk"
    if "DO NOT MATCH THE HASHES" in reason:
        sums = re.search(r"Expected sha256 (\w+)\s+Got\s+(\w+)", " ".join(lines))
        found = f" {sums[1][:12]}..., it has {sums[2][:12]}..." if sums else ""
        why = f"the index serves another file than the one that is pinned by its sha256{found}"
        return why, f"name an index that has PyPI's own file, in {settings}; that sum is not to be changed"
    not_found = _NOT_FOUND.search(reason)
    broken = [line for line in lines if _NETWORK.search(line)]
    if broken and (not_found or _NETWORK.search(reason)):
        cause = _CAUSE.search(" ".join(broken))
        detail = f": {cause[0]}" if cause else ""
        return f"no package index could be reached{detail}", f"check the network and {settings}"
    if not_found and order.own_index and not order.index:
        return reason, f"name the index that has it: --index {order.framework}={order.own_index}"
    if not_found:
        return reason, f"name an index or find-links folder that has it, in {settings} or by the `index` option"
    return reason, "fix that and run again"


def _pip_reason(lines: list[str]) -> str:
    errors = [match[1].strip() for match in map(_ERROR.match, lines) if match]
    spoken = [line.strip() for line in lines if line.strip()]
    return _shorten((errors or spoken or ["it printed nothing"])[-1])


def _uv_reason(lines: list[str]) -> str:
    start = next((number for number, line in enumerate(lines) if _UV_ERROR.match(line)), None)
    if start is None:
        return _pip_reason(lines)
    text = " ".join(re.sub(r"^[\s×│╰─▶]+|^error: ", "", line) for line in lines[start:])
    return _shorten(text)


def _shorten(text: str, limit: int = 300) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= limit else text[: limit - 3] + "..."
