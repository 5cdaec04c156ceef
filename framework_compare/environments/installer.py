"""Make a virtual environment by uv, with the indexes of pip's settings, and say in one sentence why that failed."""

from __future__ import annotations

import re
from collections.abc import Callable
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
    (_NO_BUILD, f"name an index or find-links folder that has it, in {_SETTINGS} or by the `index` option"),
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
                _, python, _, platform = plan.foreign
                system, _, machine = platform.partition("_")
                target = ("--target", str(site_packages(plan.folder)))
                tags = ("--python-version", python, "--python-platform", f"{machine}-{system}")
                uv.install(Path(plan.foreign.requirements), *target, *tags, alone=True)
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
        self.plan, self.uv = plan, uv

    def install_from(self, index: str) -> None:
        """The framework's own packages from its index alone, then all, of which those are there already."""
        own = self.plan.folder / "own-requirements.txt"
        own.write_text("\n".join(requirement_lines(self.plan.requirements, self.plan.own)), encoding="utf-8")
        self.install(own, "--default-index", index, alone=True)
        self.install(self.plan.requirements)

    def install(self, requirements: Path, *options: str, alone: bool = False) -> None:
        """Install a file's requirements, `alone` without what they depend on.

        Where these have checksums, each file has one of its own, whatever index it is from, and none is built here.
        """
        hashed = "--hash=" in requirements.read_text(encoding="utf-8")
        checked = ("--only-binary", ":all:", "--index-strategy", "unsafe-best-match") if hashed else ()
        limits, links = self.uv.limits, self.uv.links
        place = ("--python", str(self.plan.python), "-r", str(requirements))
        install = ("pip", "install", *place, *links, *checked, *options)
        if hashed and limits:  # which uv refuses beside --require-hashes
            self.uv.run(*install, "--no-deps", "--dry-run", *limits)
        how = ("--require-hashes",) if hashed else limits
        deps = ("--no-deps",) if alone else ()
        # Copies, as a file that is damaged in one environment must not be in the next.
        self.uv.run(*install, *how, *deps, "--link-mode", "copy", "--compile-bytecode")


def _explained(plan: Plan, why: str) -> Unavailable:
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, why)), "fix that and run again")
    if plan.elsewhere and _NO_BUILD in why:
        remedy = f"name the index that has it: --index {plan.framework}={plan.elsewhere}"
    return Unavailable(
        f"{plan.framework}: uv could not install its requirements ({public_url(why)})",
        f"{remedy}, or name an interpreter that has {plan.framework}: --python {plan.framework}=/path/to/python; its"
        f" output is in {plan.log}",
    )
