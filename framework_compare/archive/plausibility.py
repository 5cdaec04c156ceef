"""Figures that no machine gives: times that end before they begin, more memory than there is, clocks that disagree.

Invented figures that are plausible pass. Only a repetition on another machine reveals them.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

from framework_compare import registry
from framework_compare.archive import agreement
from framework_compare.archive.records import SECOND, Row, Tables, awake_s, in_order, length_s, overlaps
from framework_compare.plan.planning import build_graph
from framework_compare.plan.searches import is_search
from framework_compare.protocol import Document, replicas_of
from framework_compare.records import Cell
from framework_compare.study import schedules

FIRST = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)  # SINGA's release, the oldest that is compared
AHEAD_S = 86_400  # that the clock of another machine may be ahead
DRIFT_S = 120  # that the time of day may lag behind the monotonic clock over a study
SLACK = 1.05  # of counters that are read one after the other
STEP_S = 1e-7  # no step takes less
ROUNDS = 2  # by which steps differ between rounds and epochs; in this repository's archive by 0.74 to 1.06
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[+-]\d\d:\d\d)?", re.A)
TURN_SLACK, COUNTER_S = 1.1, 0.2  # of CPU time in turns, which is counted in ticks
NEVER_NEGATIVE = {
    "run": ("peak_rss_bytes",),
    "phase": ("pss_bytes",),
    "epoch": (*("data_wait_s", "copy_s", "compute_s", "step_s_median", "step_s_p05", "step_s_p95"), "disturbed_share"),
    "slice": ("cpu_s",),
    "sample": ("cpu_percent", "rss_bytes", "gpu_memory_bytes", "gpu_process_memory_bytes", "gpu_power_w"),
    "energy": ("energy_j",),
}


def faults(study: Tables, document: Document, now: datetime.datetime) -> Iterator[str]:
    """Each implausible figure as a sentence, from sound records and the document recomputed from them."""
    for check in (_times(study, now), _clocks(study), _labels(study), _rounds(study)):
        yield from check
    for table, names in NEVER_NEGATIVE.items():
        for name in names:
            least = min((value or 0 for value in study.column(table, name)), default=0)
            if least < 0:
                yield f"{name} of table {table} is {least:g}"
    yield from _sizes(study)
    for machine in study.machines.values():
        for name in ("available_cores", "memory_bytes"):  # what other checks are measured by
            if type(machine.get(name)) is not int or machine[name] < 1:
                yield f"{name} of the machine is {str(machine.get(name))[:40]!r}; allowed: a whole number above 0"
                return
    yield from _memory(study)
    yield from agreement.faults(study)
    read = set(study.column("sample", "run_id"))
    for number, run in study.runs.items():
        if run["status"] == "ok" and run.get("disturbed_epochs") is not None and number not in read:
            yield f"run {number} states its disturbances, but has no reading"
    cores = max(map(agreement.cores_of, study.machines.values()))
    for cell in document["cells"]:
        name = f"{cell['framework']} {cell['model']}"
        if (cell["cpu_percent_mean"] or 0) > 100 * cores * SLACK:
            yield f"{name} used {cell['cpu_percent_mean']:.0f} % of a core on {cores} cores"
    for number, turns in study.by_run("slice").items():
        used, length = (sum(row[name] for row in turns) for name in ("cpu_s", "measured_s"))
        if used > length * cores * TURN_SLACK + COUNTER_S:
            yield f"run {number} used {used:.3g} s of CPU time in turns of {length:.3g} s on {cores} cores"


def _labels(study: Tables) -> Iterator[str]:
    """No run has the version of another framework's environment, and no block is left out."""
    versions: dict[str, set[object]] = {}
    for label, facts in study.environments.items():
        versions.setdefault(label.partition(" ")[0], set()).add(facts.get("version"))
    for cell in study.cells.values():
        if not cell["framework"].isascii():
            yield f"the framework {cell['framework']!a} is not named in ASCII"
    for number, run in study.runs.items():
        name, version = study.cell_of(number)["framework"], run.get("framework_version")
        if run["status"] != "ok" and not run["reason"]:
            yield f"run {number} is {run['status']} without a reason"
        others = {other for other, known in versions.items() if version in known}
        if version and name in versions and others and name not in others:
            yield f"run {number} of {name} has the version {version}, which belongs to {min(others)}"
    blocks = {run["repeat"] for run in study.runs.values()}
    if blocks != set(range(1, len(blocks) + 1)):
        yield f"its runs name the blocks {', '.join(map(str, sorted(blocks)))}, so that some are left out"


def _rounds(study: Tables) -> Iterator[str]:
    """Every run that is ok has the phase of its epochs, and its rounds where workers took turns.

    Without them nothing would contradict epochs of any length. A round counts for all its rivals or for none, steps of
    rounds last as long as those of epochs, and runs that took no turns ran one after the other.
    """
    phases, rounds = _trainings(study), study.by_run("slice")
    voids: dict[object, str] = {}
    for row in study.rows("slice"):
        key = study.runs[row["run_id"]].get("duel"), row["round"]
        if voids.setdefault(key, row["void"]) != row["void"]:
            yield f"round {row['round']} of run {row['run_id']} counts for one framework, but not for another"
    for number, epochs in study.by_run("epoch").items():
        alone, in_turns = sum(map(awake_s, epochs)), sum(row["measured_s"] for row in rounds.get(number, ()))
        steps, of_turns = (sum(row["steps"] for row in rows) for rows in (epochs, rounds.get(number, ())))
        if alone > 0 and steps and of_turns and not 1 / ROUNDS < in_turns / of_turns * steps / alone < ROUNDS:
            yield (
                f"steps of run {number} take {in_turns / of_turns:.3g} s in its rounds and {alone / steps:.3g} s in its epochs"
            )
    apart = [phases[n] for n, run in study.runs.items() if n in {*phases} - {*rounds} and run.get("node_id") is None]
    for before, after in overlaps(in_order(apart)):
        yield f"runs {before['run_id']} and {after['run_id']} trained at the same time and took no turns"
    in_turns = _in_turns(study)
    for number, run in study.runs.items():
        if run["status"] == "ok" and number not in phases:
            yield f"run {number} is ok but has no epoch phase"
        if run["status"] == "ok" and number in in_turns and number not in rounds:
            yield f"run {number} is ok and took turns, but has no round"


def _in_turns(study: Tables) -> set[int]:
    """The runs that say so, and those of an interleaved study that had a rival and give no reason why they ran alone."""
    rivals: dict[object, list[int]] = {}
    for number, run in study.runs.items():
        cell = study.cell_of(number)
        config = study.configs[run["cell_id"]]
        whole = Cell(cell["framework"], cell["model"], cell["dataset"], cell["device"], config)
        if run["status"] == "ok" and not schedules.why_alone(whole):
            across = bool(study.settings.get("across_models"))
            rivals.setdefault((run["repeat"], schedules.shared(whole, across)), []).append(number)
    found = {number for number, run in study.runs.items() if run.get("duel") is not None}
    if study.settings.get("schedule") == schedules.INTERLEAVED:
        several = [numbers for numbers in rivals.values() if len(numbers) > 1]
        found |= {number for numbers in several for number in numbers if not study.runs[number].get("alone_why")}
    return found


def _sizes(study: Tables) -> Iterator[str]:
    """No step trains on more samples than a batch has, and a model has its own number of parameters."""
    cells = {number: cell for number, cell in study.cells.items() if not is_search(cell["model"])}
    for table, name in (("epoch", "images"), ("slice", "samples")):
        for row in study.rows(table):
            number = study.runs[row["run_id"]]["cell_id"]
            if number not in cells:
                continue
            config = study.configs[number]
            batch = config.batch_size if config.batch_growth == 1 else config.batch_size_limit
            if row[name] > row["steps"] * batch * len(replicas_of(config)):
                yield f"run {row['run_id']} has {row[name]} samples in {row['steps']} steps of {batch}"
    for number, run in study.runs.items():
        cell = cells.get(run["cell_id"])
        entry = registry.model_of_all(cell["model"]) if cell else None
        if cell and entry and not entry.of_arrays and run.get("parameters"):
            own = build_graph(cell["model"], study.configs[run["cell_id"]]).parameter_count()
            if run["parameters"] != own:
                yield f"run {number} has {run['parameters']:,} parameters, but {cell['model']} has {own:,}"


def _times(study: Tables, now: datetime.datetime) -> Iterator[str]:
    for number, run in study.runs.items():
        started = time_of(run["started_at"]) if run["started_at"] else None
        if run["started_at"] and started is None:
            yield f"the start of run {number} is not an ISO 8601 time"
        elif started and not FIRST <= started <= now + datetime.timedelta(seconds=AHEAD_S):
            yield f"run {number} started at {run['started_at']}, which is before {FIRST.year} or in the future"
        if run["status"] == "ok" and not run["started_at"]:
            yield f"run {number} is ok, but never started"
    phases, epochs = _trainings(study), study.by_run("epoch")
    for row in study.rows("epoch"):
        phase, length = phases.get(row["run_id"]), length_s(row)
        if phase and not phase["start_ns"] - SECOND <= row["start_ns"] <= row["end_ns"] <= phase["end_ns"] + SECOND:
            yield f"an epoch of run {row['run_id']} lies outside the phase of its epochs"
        if row["steps"] < 1 or row["images"] < 1 or length < row["steps"] * STEP_S:
            yield f"an epoch of run {row['run_id']} has {row['steps']} steps in {length:g} s"
        if not 0 <= (row.get("waited_s") or 0.0) <= length * SLACK:
            yield f"run {row['run_id']} waited longer for turns than its epoch lasted"
    for row in study.rows("slice"):
        length = length_s(row)
        if not 0 <= row["measured_s"] <= length * SLACK + 0.01 or row["steps"] < 0 or row["samples"] < 0:
            yield f"a round of run {row['run_id']} measured {row['measured_s']:g} s in a turn of {length:g} s"
    for number, run in study.runs.items():
        stated, marked = run.get("disturbed_epochs"), sum(row.get("disturbed") == 1 for row in epochs.get(number, ()))
        if stated is not None and stated != marked:
            yield f"run {number} counts {stated} disturbed epochs, but {marked} are marked"
        if run.get("wall_s") is not None and not 0 <= run["wall_s"] < 366 * 86_400:
            yield f"run {number} took {run['wall_s']:g} s"


def _clocks(study: Tables) -> Iterator[str]:
    """The time of day and the monotonic clock advance together, where neither was set back in between."""
    by_node: dict[object, list[tuple[datetime.datetime, int, int]]] = {}
    for number, phases in study.by_run("phase").items():
        started = time_of(study.runs[number]["started_at"])
        if started is not None:
            begun = min(row["start_ns"] for row in phases)
            by_node.setdefault(study.runs[number].get("node_id"), []).append((started, begun, number))
    for several in by_node.values():
        ordered = sorted(several)
        for (day, clock, _), (later, after, number) in zip(ordered, ordered[1:]):
            ahead = (after - clock) / SECOND - (later - day).total_seconds()
            if after >= clock and ahead > DRIFT_S:
                yield f"the clocks of run {number} and of the run before disagree by {ahead:.0f} s"


def _memory(study: Tables) -> Iterator[str]:
    """No process holds more memory than the largest of the machines has."""
    machines = list(study.machines.values())
    for machine in machines:
        if machine["memory_bytes"] < 1 << 28:
            yield f"the machine has {machine['memory_bytes']} bytes of memory"
    memory = max(machine["memory_bytes"] for machine in machines)
    processes = _most(study, "sample", "processes") or 1  # each of which RSS counts the shared memory of
    gpus = [gpus for gpus in (machine.get("gpus") for machine in machines) if isinstance(gpus, dict)]
    devices = [device["memory_bytes"] for one in gpus for device in one.get("devices", ())]
    bounds = [
        ("phase", "pss_bytes", memory),
        ("sample", "pss_bytes", memory),
        ("run", "peak_rss_bytes", memory * processes),
    ]
    bounds += [("sample", name, sum(devices)) for name in ("gpu_memory_bytes", "gpu_process_memory_bytes") if devices]
    for table, name, least in bounds:
        most = _most(study, table, name)
        if most > least * SLACK:
            yield f"{name} of table {table} is {most / 1e9:.1f} GB of {least / 1e9:.1f} GB of memory"


def _most(study: Tables, table: str, name: str) -> float:
    return max((value or 0 for value in study.column(table, name)), default=0)


def _trainings(study: Tables) -> dict[int, Row]:
    """Return the last phase of epochs of each run."""
    return {row["run_id"]: row for row in study.rows("phase") if row["name"] == "epochs"}


def time_of(text: str) -> datetime.datetime | None:
    """A date and a time of day as `publish` writes them, the only form whose first ten characters are a date; else None."""
    if not _TIME.fullmatch(text):
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)
