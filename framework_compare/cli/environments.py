"""`framework-compare env ...`: make, list and remove the environments of the frameworks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from framework_compare import registry
from framework_compare.cli import examples
from framework_compare.cli.options import FRAMEWORKS, takes
from framework_compare.environments import gpu_builds, managed
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.plan.planning import check_device, find_all
from framework_compare.plan.values import split

app = typer.Typer(no_args_is_help=True, help="Make, list and remove the environments of the frameworks.")


@app.command(epilog=examples.below("env create"))
@takes("device", "index")
def create(
    device: Any,
    index: dict[str, str],
    frameworks: Annotated[str, typer.Argument(help="Comma-separated.")] = FRAMEWORKS,
) -> None:
    """Make the environments now instead of at first use; complete ones stay."""
    check_device(device)
    wanted = _named(frameworks)
    failed = [name for name in wanted if not _create(name, index, device)]
    if failed:
        raise typer.Exit(1)


def _create(name: str, indexes: dict[str, str], device: str) -> bool:
    lack = gpu_builds.lack(name, device)
    if lack:  # a cache may be filled for another machine
        _say(f"{name}: this machine cannot run it ({lack.why}); its environment is made anyway")
    try:
        made = managed.ensure(name, device=device, index=indexes.get(name), report=_say)
    except EnvironmentUnavailable as error:
        _say(str(error))
        return False
    print(f"{titled(made.framework, made.device)} {made.version}: {made.python} ({gigabytes(made.size_bytes)})")
    for sentence in registry.labels([made.framework]):
        print(sentence)
    return True


@app.command("list", epilog=examples.below("env list"))
def list_environments() -> None:
    """Every environment in the cache, with its size."""
    environments = managed.installed()
    for made in environments:
        name, size = titled(made.framework, made.device), gigabytes(made.size_bytes)
        print(f"{name:21} {made.version or '-':10} {size:>8}  {made.folder}")
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


def _named(frameworks: str) -> list[str]:
    """Names of what has an environment of its own."""
    return find_all("framework", {**registry.FRAMEWORKS, **registry.READERS}, split(frameworks))


def titled(framework: str, device: str) -> str:
    """ "torch", or "torch (cuda)"."""
    return framework if device == "cpu" else f"{framework} ({device})"


def gigabytes(size: int | None) -> str:
    """ "1.5 GB", or "-" where the size is not known."""
    return "-" if size is None else f"{size / 1e9:.1f} GB"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
