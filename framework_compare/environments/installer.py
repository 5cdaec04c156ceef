"""Make a virtual environment by uv, with the indexes of pip's settings, and say in one sentence why that failed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from framework_compare.environments.interpreters import Unavailable
from framework_compare.environments.uv_command import NETWORK, Failed, Uv, public_url
from framework_compare.environments.venvs import Plan, requirement_lines, site_packages
from framework_compare.paths import CACHE_VARIABLE

NO_INDEX = "none"  # in place of a URL: no index but those of the settings

_NO_BUILD = "No solution found"
_OTHER_FILE = "Hash mismatch"
_SETTINGS = "pip's settings (`pip config list`) or uv's variables"
_REMEDIES = (  # by what uv says
    (r"No space left", f"free disk space or set ${CACHE_VARIABLE} to a folder on a larger disk"),
    (_OTHER_FILE, f"name an index that has the pinned file, in {_SETTINGS}; do not change the hash"),
    (NETWORK.pattern, f"check the network and {_SETTINGS}"),
    (_NO_BUILD, f"name an index or find-links folder that has it: with the `index` option, or in {_SETTINGS}"),
)


def install(plan: Plan, *, index: str | None = None, say: Callable[[str], None] = lambda message: None) -> str | None:
    """Make the environment of a plan; return the URL of the framework's own index, if one was used.

    `index` (a URL) is where the framework's own packages are from, or NO_INDEX. `say` gets a message for each slow
    download. Output goes to `plan.log`, the last run's only. Raises Unavailable; what was written by then stays, for the
    caller to remove.
    """
    with plan.log.open("w", encoding="utf-8") as log:
        uv = _Installer(plan, Uv(plan.framework, log, say))
        try:
            uv.uv.run("venv", "--no-project", "--python", str(plan.interpreter.path), str(plan.folder))
            used = _fill(uv, plan, index, say)
            if plan.foreign:
                requirements, python, platform = plan.foreign
                system, _, machine = platform.partition("_")
                target = ("--target", str(site_packages(plan.folder)))
                tags = ("--python-version", python, "--python-platform", f"{machine}-{system}")
                uv.install(Path(requirements), *target, *tags, alone=True)
        except Failed as failure:
            raise _explained(plan, str(failure)) from None
    return used


def _fill(uv: _Installer, plan: Plan, index: str | None, say: Callable[[str], None]) -> str | None:
    """Install the requirements: from the settings' indexes, else those of the framework's own from its index.

    Where none has a build for CPUs, it is the one for GPUs.
    """
    if index and index != NO_INDEX:
        uv.install_from(index)
        return index
    try:
        uv.install(plan.requirements)
        return None
    except Failed as failure:
        asks_on = plan.default_index if index is None else ""
        if _NO_BUILD not in str(failure) or not (asks_on or plan.larger):
            raise
    if asks_on:
        try:
            uv.install_from(plan.default_index)
            return plan.default_index
        except Failed as failure:
            if _OTHER_FILE in str(failure) or plan.larger is None:
                raise
            say(f"{plan.framework}: its index of CPU builds, {plan.default_index}, is not reachable ({failure})")
    say(f"{plan.framework}: no index has its CPU build; installing the GPU build, several GB")
    uv.install(plan.larger or plan.requirements)
    return None


class _Installer:
    """Installs requirements into one environment."""

    def __init__(self, plan: Plan, uv: Uv) -> None:
        self.plan, self.uv, self.settings = plan, uv, uv.settings

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
            self.install(self._written("checked.txt", hashed), *options, alone=True)
            names = ", ".join(line.partition(" ")[0] for line in others)
            self.uv.say(
                f"{self.plan.framework}: no checksum is known for {names}; they are installed as the index serves them"
            )
            self._install(self._written("unchecked.txt", others), *options, hashed=False)
            return
        try:
            self._install(requirements, *options, hashed=bool(hashed), alone=alone)
        except Failed as failure:
            several = hashed and _NO_BUILD in str(failure) and "--default-index" not in options
            found = self._by_index(hashed, options) if several and not self.settings.no_index else {}
            if not found:
                raise
            for index, own in found.items():
                part = self._written("of-one-index.txt", own)
                self._install(part, *options, "--default-index", index, hashed=True, alone=True)

    def _install(self, requirements: Path, *options: str, hashed: bool, alone: bool = False) -> None:
        limits = self.uv.limits
        install = (
            *self._pip_install,
            "-r",
            str(requirements),
            *(("--only-binary", ":all:") if hashed else ()),
            *options,
        )
        if hashed and limits:  # which uv refuses beside --require-hashes
            self.uv.run(*install, "--no-deps", "--dry-run", *limits)
        how = ("--require-hashes",) if hashed else limits
        deps = ("--no-deps",) if alone else ()
        # Copies, as a file that is damaged in one environment must not be in the next.
        self.uv.run(*install, *how, *deps, "--link-mode", "copy", "--compile-bytecode")

    def _by_index(self, lines: list[str], options: tuple[str, ...]) -> dict[str, list[str]]:
        """Requirements by the first index that has the file of each; none at all where one is in no index."""

        command = ("--only-binary", ":all:", "--require-hashes", "--no-deps", "--dry-run", *options, "--default-index")

        def first(line: str) -> str | None:
            has = functools.partial(self.uv.succeeds, *self._pip_install, "-r", "-", *command, given=line)
            return next((index for index in self.settings.indexes if has(index)), None)

        with ThreadPoolExecutor() as pool:
            places = list(pool.map(first, lines))
        found: dict[str, list[str]] = {}
        for line, index in zip(lines, places):
            if index is None:
                return {}
            self.uv.log.write(f"{line.partition(' ')[0]} is from {public_url(index)}\n")
            found.setdefault(index, []).append(line)
        return found

    @property
    def _pip_install(self) -> tuple[str, ...]:
        return ("pip", "install", "--python", str(self.plan.python), *self.uv.links)

    def _written(self, name: str, lines: list[str]) -> Path:
        """A file of requirements in the environment's folder."""
        path = self.plan.folder / name
        path.write_text("\n".join(lines), encoding="utf-8")
        return path


def _explained(plan: Plan, why: str) -> Unavailable:
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, why)), "fix that and run again")
    if plan.elsewhere and _NO_BUILD in why:
        remedy = f"name the index that has it: --index {plan.framework}={plan.elsewhere}"
    return Unavailable(
        f"{plan.framework}: uv could not install its requirements ({public_url(why)})",
        f"{remedy}, or name an interpreter that has {plan.framework}: --python {plan.framework}=/path/to/python; its"
        f" output is in {plan.log}",
    )
