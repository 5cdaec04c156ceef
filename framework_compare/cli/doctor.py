"""`framework-compare doctor` and `peaks`: a verdict on this machine with the facts behind it, and what it can do."""

from __future__ import annotations

import dataclasses
import json as json_files
from typing import Annotated, Any

import typer

from framework_compare import __version__
from framework_compare.cli import console
from framework_compare.cli.environments import gigabytes, titled
from framework_compare.cli.options import takes
from framework_compare.cli.report import STUDY
from framework_compare.doctor import Diagnosis, FrameworkCheck, Machine, devices_here, examine
from framework_compare.launch.disturbances import THRESHOLD
from framework_compare.plan.competitors import find_frameworks
from framework_compare.plan.planning import check_device
from framework_compare.protocol import Fields
from framework_compare.results.metrics import percent
from framework_compare.samplers import disturbance

SCHEMA_VERSION = 1  # rises when a field goes or changes its meaning, not when one comes
WIDTH = 26  # of the first column
SWAP_BYTES = 0.1e9  # less is what every system moves out at leisure
ENVIRONMENTS_BYTES = 5e9  # of all frameworks, with builds for CPUs


@takes("frameworks", "python", "device", by_place=("frameworks",), frameworks=None, device=None)
def doctor(
    python: dict[str, str],
    device: Any,
    frameworks: list[str] | None = None,
    deep: Annotated[
        bool, typer.Option(help="Also import each framework and ask what it does not support (a few seconds each).")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 unless every framework is ready and the machine is quiet.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")] = False,
) -> None:
    """Check which frameworks can run on this machine, how to fix those that cannot, and whether the machine is quiet.

    The first line is the verdict. Without --device the CPU is checked, and the GPU if there is one. Exit code 1 if no
    framework can run.
    """
    wanted = [device] if isinstance(device, str) else device or devices_here()
    names = None if frameworks is None else find_frameworks(frameworks)
    diagnosis = examine(names, pythons=python, deep=deep, devices=[check_device(one) for one in wanted])
    load = disturbance.watch()
    if json:
        print(json_files.dumps(document(diagnosis, load), indent=1, allow_nan=False))
    else:
        print(verdict(diagnosis, load))
        for check in diagnosis.frameworks:
            _print_check(check)
        _print_machine(diagnosis, load)
    if not any(check.usable or check.made_at_first_use for check in diagnosis.frameworks):
        raise typer.Exit(1)
    if strict and not (all(check.usable for check in diagnosis.frameworks) and is_quiet(load)):
        raise typer.Exit(1)


def document(diagnosis: Diagnosis, load: disturbance.Load) -> Fields:
    """The same for programs, as `doctor.schema.json` beside this file describes it; what is not known is null."""
    here = diagnosis.machine
    return {
        "schema_version": SCHEMA_VERSION,
        "framework_compare": __version__,
        "verdict": verdict(diagnosis, load),
        "machine": {**dataclasses.asdict(here), "cache": str(here.cache)},
        "load": {
            "quiet": is_quiet(load),
            "others_share": load.others,
            "stolen_share": load.stolen,
            "busiest": [one._asdict() for one in load.busiest],
        },
        "frameworks": [
            {
                **dataclasses.asdict(check),
                "made_at_first_use": check.made_at_first_use,
                "python": None if check.python is None else str(check.python),
            }
            for check in diagnosis.frameworks
        ],
    }


def verdict(diagnosis: Diagnosis, load: disturbance.Load) -> str:
    """One line: how many frameworks are ready on each device, the GPU, whether the machine is quiet."""
    devices = dict.fromkeys(check.device for check in diagnosis.frameworks)
    parts = [_ready(device, [check for check in diagnosis.frameworks if check.device == device]) for device in devices]
    gpus = diagnosis.machine.gpus
    parts.append(f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}" if gpus else "no NVIDIA GPU")
    parts.append("machine quiet" if is_quiet(load) else "busy: timings will be unreliable")
    return "; ".join(parts)


def _ready(device: str, checks: list[FrameworkCheck]) -> str:
    made = sum(check.made_at_first_use for check in checks)
    later = f", {made} installed on first use" if made else ""
    return f"{sum(check.usable for check in checks)} of {len(checks)} frameworks ready on {device}{later}"


def is_quiet(load: disturbance.Load) -> bool:
    """Return whether others take so little of the CPU that no epoch would be marked as disturbed."""
    return load.others + load.stolen <= THRESHOLD


def _print_check(check: FrameworkCheck) -> None:
    facts = [
        check.state,
        check.version or "",
        f"Python {check.interpreter}" if check.interpreter else "",
        gigabytes(check.size_bytes) if check.size_bytes else "",
        str(check.python or ""),
    ]
    name = titled(check.framework, check.device)
    print(f"{name:{WIDTH}}  {'usable' if check.usable else 'not usable':12}{', '.join(f for f in facts if f)}")
    for label, text in (("why", check.why), ("do", check.remedy), *(("note", note) for note in check.notes)):
        if text:
            print(f"{'':{WIDTH}}  {label}: {text}")


def _print_machine(diagnosis: Diagnosis, load: disturbance.Load) -> None:
    here = diagnosis.machine
    gpus = "no NVIDIA driver" if here.gpus is None else ", ".join(here.gpus) or "none"
    print(f"{'machine':{WIDTH}}  {here.cores} cores, {gigabytes(here.ram_bytes)} memory, GPUs: {gpus}")
    print(f"{'cache':{WIDTH}}  {here.cache}, {gigabytes(here.cache_free_bytes)} free")
    if here.cache_free_bytes < ENVIRONMENTS_BYTES and any(check.made_at_first_use for check in diagnosis.frameworks):
        print(f"{'':{WIDTH}}  note: all environments together need about {gigabytes(int(ENVIRONMENTS_BYTES))}")
    print(f"{'load':{WIDTH}}  {load_words(load)}")
    for text in clock_notes(here):
        print(f"{'':{WIDTH}}  note: {text}")


def clock_notes(here: Machine) -> list[str]:
    """Return what makes times of this machine vary besides other programs: clocks that rise and fall, memory on disk."""
    notes = []
    if here.governor not in (None, "performance"):
        notes.append(
            f"the CPU frequency governor is {here.governor}; `cpupower frequency-set -g performance` fixes the clocks"
        )
    if here.turbo:
        notes.append(
            "turbo: clocks may exceed the nominal frequency until the processor is warm; repeats show by how much"
        )
    if (here.swap_used_bytes or 0) > SWAP_BYTES:
        notes.append(
            f"{gigabytes(here.swap_used_bytes or 0)} of memory are swapped to disk; close programs that use it"
        )
    return notes


def load_words(load: disturbance.Load) -> str:
    """Return whether the machine is quiet, and who is busy if not, shares of one core."""
    state = "quiet" if is_quiet(load) else "not quiet"
    hypervisor = f", the hypervisor {percent(load.stolen)}" if load.stolen > THRESHOLD / 2 else ""
    names = [f"{one.name} (pid {one.pid}) {percent(one.share)}" for one in load.busiest]
    who = f": {', '.join(names)}" if names and not is_quiet(load) else ""
    unseen = " by processes that are not visible from here" if not names and not is_quiet(load) else ""
    return f"{state}, other programs take {percent(load.others)} of a core{hypervisor}{unseen}{who}"


@takes("dry_run", "yes")
def peaks(dry_run: bool, yes: bool, study: Annotated[str, STUDY] = "latest") -> None:
    """Measure this machine's peak performance in the settings of a study: a matrix product and a copy, a few seconds each.

    The table `roofline` compares cells with these peaks. They are stored in the cache folder, together with the load at
    that time, so run this while the machine is quiet. Exit code 1 if a peak could not be measured.
    """
    from framework_compare import peaks as measuring
    from framework_compare.report.machine_tables import peak_table
    from framework_compare.report.renderers import terminal

    forecast = measuring.dry_run(study)
    if dry_run:
        print(forecast)
        return
    say = console.watcher().say
    console.announce([forecast], say, yes, "peak")
    found = measuring.measure_peaks(study, say=say)
    print(terminal(peak_table(found)), end="")
    if not all(one.peak for one in found):
        raise typer.Exit(1)
