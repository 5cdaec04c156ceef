"""`framework-compare env ...` and what `doctor` prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Sequence

import typer

from framework_compare import registry
from framework_compare.cli.options import FRAMEWORKS, takes
from framework_compare.doctor import Diagnosis, FrameworkCheck, examine
from framework_compare.environments import gpu_builds, managed
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.launch.disturbances import THRESHOLD
from framework_compare.plan.planning import check_device
from framework_compare.plan.values import split
from framework_compare.samplers import busy

app = typer.Typer(no_args_is_help=True, help="Make, list and remove the environments of the frameworks.")


@app.command()
@takes("device", "index", "installer")
def create(
    device: Any,
    index: Dict[str, str],
    installer: str,
    frameworks: Annotated[str, typer.Argument(help="Comma-separated.")] = FRAMEWORKS,
) -> None:
    """Make the environments now instead of at first use; complete ones stay."""
    check_device(device)
    wanted = split(frameworks)
    for name in wanted:
        registry.framework(name)
    failed = [name for name in wanted if not _create(registry.framework(name).name, index, installer, device)]
    if failed:
        raise typer.Exit(1)


def _create(name: str, indexes: Dict[str, str], installer: str, device: str) -> bool:
    lack = gpu_builds.lack(name, device)
    if lack:  # a cache may be filled for another machine
        _say(f"{name}: this machine cannot run it ({lack.why}); its environment is made anyway")
    try:
        made = managed.ensure(name, device=device, installer=installer, index=indexes.get(name), report=_say)
    except EnvironmentUnavailable as error:
        _say(str(error))
        return False
    print(f"{_titled(made.framework, made.device)} {made.version}: {made.python} ({_gigabytes(made.size_bytes)})")
    for sentence in registry.labels([made.framework]):
        print(sentence)
    return True


@app.command("list")
def list_environments() -> None:
    """Every environment in the cache, with its size."""
    environments = managed.installed()
    for made in environments:
        name, size = _titled(made.framework, made.device), _gigabytes(made.size_bytes)
        print(f"{name:21} {made.version or '-':10} {size:>8}  {made.folder}")
    for sentence in registry.labels(made.framework for made in environments):
        print(sentence)
    if not environments:
        print("no environments; they are made at first use, or by `framework-compare env create`")


@app.command()
def remove(
    frameworks: Annotated[str, typer.Argument(help="Comma-separated.")],
) -> None:
    """Delete the environments of frameworks; the next use makes them again."""
    names = split(frameworks)
    if not names:
        raise UsageError(f"no framework is given; allowed: {', '.join(registry.FRAMEWORKS)}")
    for name in names:
        registry.framework(name)
    for name in names:
        folders: List[Path] = managed.remove(name)
        for folder in folders:
            print(f"removed {folder}")
        if not folders:
            print(f"{name}: there is no environment")


def print_diagnosis(pythons: Dict[str, str], *, deep: bool, devices: Sequence[str]) -> None:
    """Print the checks of `doctor` on standard output."""
    diagnosis = examine(pythons=pythons, deep=deep, devices=[check_device(device) for device in devices])
    for check in diagnosis.frameworks:
        _print_check(check)
    _print_machine(diagnosis)


def _print_check(check: FrameworkCheck) -> None:
    facts = [
        check.state,
        check.version or "",
        f"Python {check.interpreter}" if check.interpreter else "",
        _gigabytes(check.size_bytes) if check.size_bytes else "",
        str(check.python or ""),
    ]
    name = _titled(check.framework, check.device)
    print(f"{name:21}{'usable' if check.usable else 'not usable':12}{', '.join(f for f in facts if f)}")
    for label, text in (("why", check.why), ("do", check.remedy), *(("note", note) for note in check.notes)):
        if text:
            print(f"{'':21}{label}: {text}")


def _titled(framework: str, device: str) -> str:
    return framework if device == "cpu" else f"{framework} ({device})"


def _print_machine(diagnosis: Diagnosis) -> None:
    machine = diagnosis.machine
    gpus = "no NVIDIA driver" if machine.gpus is None else ", ".join(machine.gpus) or "none"
    print(f"{'machine':21}{machine.cores} cores, {_gigabytes(machine.ram_bytes)} memory, GPUs: {gpus}")
    print(f"{'cache':21}{machine.cache}, {_gigabytes(machine.cache_free_bytes)} free")
    print(f"{'load':21}{load_words(busy.watch())}")


def load_words(load: busy.Load) -> str:
    """Whether the machine is quiet, and who is busy if not, shares of one core."""
    taken = load.others + load.stolen
    state = "quiet" if taken <= THRESHOLD else "not quiet"
    hypervisor = f", the hypervisor {load.stolen:.0%}" if load.stolen > THRESHOLD / 2 else ""
    names = [f"{one.name} (pid {one.pid}) {one.share:.0%}" for one in load.busiest]
    who = f": {', '.join(names)}" if names and taken > THRESHOLD else ""
    unseen = " by processes that cannot be seen from here" if taken > THRESHOLD and not names else ""
    return f"{state}, others take {load.others:.0%} of a core{hypervisor}{unseen}{who}"


def _gigabytes(size: Optional[int]) -> str:
    return "-" if size is None else f"{size / 1e9:.1f} GB"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
