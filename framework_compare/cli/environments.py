"""`framework-compare env ...`: make, list and remove the environments of the frameworks."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from packaging.version import InvalidVersion, Version

from framework_compare import registry
from framework_compare.cli import console, examples
from framework_compare.cli.options import PLAIN, takes
from framework_compare.environments import gpu_builds, managed
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.launch.limits import parse_bytes
from framework_compare.plan import competitors
from framework_compare.plan.planning import check_device
from framework_compare.plan.values import listed, seconds, split
from framework_compare.report.table_notes import plural

_REMOVABLE = "torch, torch@2.12.0"
app = typer.Typer(no_args_is_help=True, help="Create, list and remove the environments of the frameworks.")


@app.command(epilog=examples.below("env create"))
@takes("device", "index")
def create(
    device: Any,
    index: dict[str, str],
    frameworks: Annotated[str, typer.Argument(help="Comma-separated.")] = PLAIN,
) -> None:
    """Make the environments now instead of on first use; complete ones are kept."""
    check_device(device)
    wanted = listed("framework", split(frameworks))
    readers = [name for name in wanted if name in registry.READERS]
    others = [name for name in wanted if name not in readers]
    found = (
        competitors.read(others, {}, index, device, console.say) if others else competitors.Competitors([], {}, index)
    )
    if found.python:
        raise UsageError(f"{', '.join(found.python.values())} needs no environment; allowed: {competitors.VERSIONS}")
    failed = [name for name in (*found.names, *readers) if not _create(name, dict(found.index), device)]
    if failed:
        raise typer.Exit(1)


def _create(name: str, indexes: dict[str, str], device: str) -> bool:
    lack = gpu_builds.lack(name, device)
    if lack:  # a cache may be filled for another machine
        console.say(f"{name}: this machine cannot run it ({lack.why}); its environment is made anyway")
    try:
        made = managed.ensure(name, device=device, index=indexes.get(name), report=console.say)
    except EnvironmentUnavailable as error:
        console.say(str(error))
        return False
    print(f"{titled(made.framework, made.device)} {made.version}: {made.python} ({gigabytes(made.size_bytes)})")
    for sentence in registry.labels([made.framework]):
        print(sentence)
    return True


@app.command("list", epilog=examples.below("env list"))
def list_environments() -> None:
    """Every environment in the cache, with its size and the days since its last use."""
    environments = managed.installed()
    for made in environments:
        print(_line(made))
    for sentence in registry.labels(made.framework for made in environments):
        print(sentence)
    if not environments:
        print("no environments; they are installed on first use, or by `framework-compare env create`")


@app.command(epilog=examples.below("env remove"))
def remove(
    frameworks: Annotated[str, typer.Argument(help="Comma-separated.")],
) -> None:
    """Delete the environments of frameworks; the next use makes them again."""
    for name in _named(frameworks):
        folders: list[Path] = managed.remove(name)
        for folder in folders:
            print(f"removed {folder}")
        if not folders:
            print(f"{name} has no environment")


@app.command(epilog=examples.below("env prune"))
def prune(
    older_than: Annotated[
        str | None, typer.Option(help="Delete environments not used for this long, such as 30d.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(help="Delete the least recently used until the rest fits, such as 10GB.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be deleted; delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting.")] = False,
) -> None:
    """Delete environments by age and size; the next use makes them again, with the same packages.

    Environments in which a process runs are kept.
    """
    if older_than is None and max_size is None:
        raise UsageError(
            "received neither --older-than nor --max-size; give one, such as --older-than 30d or --max-size 10GB"
        )
    age_s = None if older_than is None else seconds("--older-than", older_than)
    size = None if max_size is None else parse_bytes(max_size, "--max-size")
    doomed = managed.choose(managed.installed(), time.time(), age_s, size)
    for made in doomed:
        print(_line(made))
    total = gigabytes(sum(made.size_bytes or 0 for made in doomed))
    if dry_run or not doomed:
        print(f"{plural(len(doomed), 'environment')}, {total}; nothing was deleted")
        return
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("deleting needs confirmation; give --yes, or --dry-run to list only")
        typer.confirm(f"Delete {plural(len(doomed), 'environment')}, {total}?", abort=True, err=True)
    deleted = [made for made in doomed if _prune(made)]
    print(f"deleted {plural(len(deleted), 'environment')}, {gigabytes(sum(made.size_bytes or 0 for made in deleted))}")


def _prune(made: managed.Environment) -> bool:
    if not made.folder:
        return False
    if made.folder.resolve() in managed.in_use():  # by a process that began since
        print(f"kept {made.folder}: a process runs in it")
        return False
    managed.delete(made.folder, made.framework)
    return True


def _line(made: managed.Environment) -> str:
    name, size = titled(made.framework, made.device), gigabytes(made.size_bytes)
    days = "-" if made.used is None else f"{max(time.time() - made.used, 0) / 86400:.0f} d ago"
    return f"{name:21} {made.version or '-':10} {size:>8} {days:>9}  {made.folder}"


def _named(frameworks: str) -> list[str]:
    """Names of what has an environment of its own, versions as environments are named after them."""
    names = listed("framework", split(frameworks))
    return [name if name in registry.READERS else _of_environment(name) for name in names]


def _of_environment(named: str) -> str:
    if "=" in named:
        raise UsageError(f"{named} names no environment; allowed: {_REMOVABLE}")
    (name,) = competitors.find_frameworks(named)
    base, _, version = name.partition("@")
    if "@" not in named:
        return name
    try:
        asked = Version(version)
    except InvalidVersion:
        raise UsageError(f"{named} names no environment; allowed: {_REMOVABLE}") from None
    found = [one for one in managed.versions_here(base) if one == asked]
    name = f"{base}@{found[0] if found else asked}"
    return name if managed.other_version(name, "cpu")[1] else base


def titled(framework: str, device: str) -> str:
    """ "torch", or "torch (cuda)"."""
    return framework if device == "cpu" else f"{framework} ({device})"


def gigabytes(size: int | None) -> str:
    """ "1.5 GB", or "-" where the size is not known."""
    return "-" if size is None else f"{size / 1e9:.1f} GB"
