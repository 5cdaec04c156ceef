"""Make a virtual environment by uv, with the indexes of pip's settings, and say in one sentence why that failed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from uv import find_uv_bin

from framework_compare.environments import pip_settings
from framework_compare.environments.interpreters import Unavailable
from framework_compare.environments.venvs import Plan, requirement_lines, site_packages
from framework_compare.paths import CACHE_VARIABLE

NO_INDEX = "none"  # in place of a URL: no index but those of the settings

_DOWNLOAD = re.compile(r"Downloading (\S+) \(([\d.]+[MG]iB)\)")
_NO_BUILD = "No solution found"
_OTHER_FILE = "Hash mismatch"
_NETWORK = re.compile(r"Failed to fetch|error sending request|timed out")
_SETTINGS = "pip's settings (`pip config list`) or uv's variables"
_REMEDIES = (  # by what uv says
    (r"No space left", f"free disk space or set ${CACHE_VARIABLE} to a folder on a larger disk"),
    (_OTHER_FILE, f"name an index that has the pinned file, in {_SETTINGS}; do not change the hash"),
    (_NETWORK.pattern, f"check the network and {_SETTINGS}"),
    (_NO_BUILD, f"name an index or find-links folder that has it, in {_SETTINGS} or by the `index` option"),
)


class _Failed(Exception):
    """A command ended badly; its message is the reason that uv gave."""


def install(plan: Plan, *, index: str | None = None, say: Callable[[str], None] = lambda message: None) -> str | None:
    """Make the environment of a plan; return the URL of the framework's own index, if one was used.

    `index` (a URL) is where the framework's own packages are from, or NO_INDEX. `say` gets a message for each slow
    download. Output goes to `plan.log`, the last run's only. Raises Unavailable; what was written by then stays, for the
    caller to remove.
    """
    with plan.log.open("w", encoding="utf-8") as log:
        uv = _Uv(plan, log, say)
        try:
            uv.run("venv", "--no-project", "--python", str(plan.interpreter.path), str(plan.folder))
            used = _fill(uv, plan, index, say)
            if plan.foreign:
                _, python, _, platform = plan.foreign
                system, _, machine = platform.partition("_")
                target = ("--target", str(site_packages(plan.folder)))
                tags = ("--python-version", python, "--python-platform", f"{machine}-{system}")
                uv.install(Path(plan.foreign.requirements), *target, *tags, alone=True)
        except _Failed as failure:
            raise _explained(plan, str(failure)) from None
    return used


def _fill(uv: _Uv, plan: Plan, index: str | None, say: Callable[[str], None]) -> str | None:
    """Install the requirements: from the settings' indexes, else those of the framework's own from its index.

    Where none has a build for CPUs, it is the one for GPUs.
    """
    if index and index != NO_INDEX:
        uv.install_from(index)
        return index
    try:
        uv.install(plan.requirements)
        return None
    except _Failed as failure:
        if _NO_BUILD not in str(failure) or plan.larger is None:
            raise
    if index is None:
        try:
            uv.install_from(plan.default_index)
            return plan.default_index
        except _Failed as failure:
            if _OTHER_FILE in str(failure):
                raise
            say(f"{plan.framework}: its index of CPU builds, {plan.default_index}, is not reachable ({failure})")
    say(f"{plan.framework}: no index has its CPU build; installing the GPU build, several GB")
    uv.install(plan.larger)
    return None


class _Uv:
    """Runs uv for one environment."""

    def __init__(self, plan: Plan, log: TextIO, say: Callable[[str], None]) -> None:
        self.plan, self.log, self.say = plan, log, say
        self.settings = pip_settings.read()
        log.write(f"from pip's settings: {', '.join(self.settings.names) or 'nothing'}\n")

    def install_from(self, index: str) -> None:
        """The framework's own packages from its index alone, then all, of which those are there already."""
        own = self._written("own-requirements.txt", requirement_lines(self.plan.requirements, self.plan.own))
        self.install(own, "--default-index", index, alone=True)
        self.install(self.plan.requirements)

    def install(self, requirements: Path, *options: str, alone: bool = False) -> None:
        """Install a file's requirements, `alone` without what they depend on.

        Those with checksums are from the first index that has the package, as uv has it, or, where that lacks a file that
        is pinned, each from the first index that has its file, and from no other. None of them is built here. Beside them
        only the framework's own packages may have no checksum.
        """
        lines = requirement_lines(requirements)
        hashed = [line for line in lines if "--hash=" in line]
        others = [line for line in lines if line not in hashed]
        if hashed and others and not {*others} - {*requirement_lines(requirements, self.plan.own)}:
            self._install_in_parts(hashed, others, options)
            return
        try:
            self._install(requirements, *options, hashed=bool(hashed), alone=alone)
        except _Failed as failure:
            several = hashed and _NO_BUILD in str(failure) and "--default-index" not in options
            found = self._by_index(hashed, options) if several and not self.settings.no_index else {}
            if not found:
                raise
            for index, own in found.items():
                part = self._written("of-one-index.txt", own)
                self._install(part, *options, "--default-index", index, hashed=True, alone=True)

    def _install_in_parts(self, hashed: list[str], others: list[str], options: tuple[str, ...]) -> None:
        """First the requirements that have checksums, then, with a word on that, the framework's own and what it needs."""
        self.install(self._written("checked.txt", hashed), *options, alone=True)
        names = ", ".join(line.partition(" ")[0] for line in others)
        self.say(f"{self.plan.framework}: no checksum is known of {names}; whatever its index sends is installed")
        self._install(self._written("unchecked.txt", others), *options, hashed=False)

    def _install(self, requirements: Path, *options: str, hashed: bool, alone: bool = False) -> None:
        limits = [part for path in self.settings.constraints for part in ("--constraint", path)]
        install = (
            *self._pip_install,
            "-r",
            str(requirements),
            *(("--only-binary", ":all:") if hashed else ()),
            *options,
        )
        if hashed and limits:  # which uv refuses beside --require-hashes
            self.run(*install, "--no-deps", "--dry-run", *limits)
        how = ("--require-hashes",) if hashed else limits
        deps = ("--no-deps",) if alone else ()
        # Copies, as a file that is damaged in one environment must not be in the next.
        self.run(*install, *how, *deps, "--link-mode", "copy", "--compile-bytecode")

    def _by_index(self, lines: list[str], options: tuple[str, ...]) -> dict[str, list[str]]:
        """Requirements by the first index that has the file of each; none at all where one is in no index."""

        def first(line: str) -> str | None:
            return next((index for index in self.settings.indexes if self._has(index, line, options)), None)

        with ThreadPoolExecutor() as pool:
            places = list(pool.map(first, lines))
        found: dict[str, list[str]] = {}
        for line, index in zip(lines, places):
            if index is None:
                return {}
            self.log.write(f"{line.partition(' ')[0]} is from {public_url(index)}\n")
            found.setdefault(index, []).append(line)
        return found

    def _has(self, index: str, line: str, options: tuple[str, ...]) -> bool:
        """Whether an index alone has the file of a requirement."""
        how = ("--only-binary", ":all:", "--require-hashes", "--no-deps", "--dry-run")
        command, environment = self._command(*self._pip_install, "-r", "-", *how, *options, "--default-index", index)
        return not subprocess.run(
            command, env=environment, input=line, capture_output=True, encoding="utf-8"
        ).returncode

    @property
    def _pip_install(self) -> tuple[str, ...]:
        links = ("--no-index",) if self.settings.no_index else ()
        return ("pip", "install", "--python", str(self.plan.python), *links)

    def _written(self, name: str, lines: list[str]) -> Path:
        """A file of requirements in the environment's folder."""
        path = self.plan.folder / name
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    def run(self, *arguments: str) -> None:
        """Run uv; where no index can be reached, with what its cache has."""
        try:
            self._run(*arguments)
        except _Failed as failure:
            if not _NETWORK.search(str(failure)):
                raise
            self.say(f"{self.plan.framework}: {failure}; trying uv's cache")
            try:
                self._run(*arguments, "--offline")
            except _Failed:
                raise failure from None

    def _command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """A command of uv and its variables."""
        environment, own_index = self.settings.environment(), "--default-index" in arguments
        for name in ("PYTHONPATH", "PYTHONHOME", *(("UV_INDEX", "UV_EXTRA_INDEX_URL") if own_index else ())):
            environment.pop(name, None)
        return [find_uv_bin(), *arguments, "--no-config", "--no-progress", "--color", "never"], environment

    def _run(self, *arguments: str) -> None:
        command, environment = self._command(*arguments)
        self.log.write("$ " + " ".join(public_url(part) or "" for part in command) + "\n")
        self.log.flush()
        lines = []
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        ) as child:  # fmt: skip
            try:
                for line in child.stdout or ():
                    self.log.write(line)
                    lines.append(line)
                    if match := _DOWNLOAD.match(line):
                        self.say(f"{self.plan.framework}: downloading {match[1]} ({match[2]})")
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            raise _Failed(reason(lines))


def public_url(url: str | None) -> str | None:
    """A URL without the user name and password it may hold, fit to be stored and shown."""
    return re.sub(r"(?<=//)[^/@]*@", "", url) if url else url


def reason(lines: list[str]) -> str:
    """Why uv failed, from what it printed: "error: ..." and its causes, the last of which is the first."""
    text = re.split(r"^hint: ", "".join(lines), flags=re.MULTILINE)[0]
    error = re.split(r"^error: ", text, flags=re.MULTILINE)[-1]
    parts = [" ".join(part.split()).rstrip(".") for part in re.split(r"^\s*cause: ", error, flags=re.MULTILINE)]
    parts[-1] = re.sub(r" Expected: .* Computed: (sha256:\w{12}).*", r" (it has \1...)", parts[-1])
    told = ": ".join(parts if len(parts) < 3 else (*parts[:2], parts[-1])) or "it printed nothing"
    return told if len(told) <= 400 else f"{told[:397]}..."


def _explained(plan: Plan, why: str) -> Unavailable:
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, why)), "fix that and run again")
    if plan.elsewhere and _NO_BUILD in why:
        remedy = f"name the index that has it: --index {plan.framework}={plan.elsewhere}"
    return Unavailable(
        f"{plan.framework}: uv could not install its requirements ({public_url(why)})",
        f"{remedy}, or name an interpreter that has {plan.framework}: --python {plan.framework}=/path/to/python; its"
        f" output is in {plan.log}",
    )
