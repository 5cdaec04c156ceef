"""What the records of one study say twice and must say alike: turns and epochs, readings and runs, versions and packages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framework_compare import registry
from framework_compare.batches.quality import METRICS
from framework_compare.plan.searches import is_search
from framework_compare.protocol import TrainConfig, replicas_of
from framework_compare.report.provenance import gpu_names

SECOND = 1_000_000_000
# By which the turns of a run may differ from the time that it did not wait; in this repository's archive by 0.1 % at most.
APART, APART_S = 0.02, 0.05
BURST = 2.0  # times all cores, of one reading of CPU time, which is counted in ticks; in the archive 1.1 at most
AFTER_S = 60  # from the last phase of a run to its last reading
POWER_W = 20_000  # of one device or package; the supplies of a server with eight GPUs deliver no more together
MOST_CORES, MOST_BYTES = 8192, 1 << 46  # that Linux on x86-64 runs on: NR_CPUS, and physical addresses of 46 bits
Runs = Mapping[int, Mapping[str, Any]]
Machines = Mapping["int | None", Mapping[str, Any]]  # by node
Tables = Mapping[str, Mapping[str, Sequence[Any]]]


def faults(records: Mapping[str, Any]) -> Iterator[str]:
    """Each contradiction within sound records as a sentence."""
    tables = records["tables"]
    runs = {row["run_id"]: row for row in rows_of(tables.get("run", {}))}
    cells = {row["cell_id"]: row for row in rows_of(tables.get("cell", {}))}
    places = machines(records)
    yield from _machines(places, runs, cells)
    yield from _versions(records["environments"], runs, cells)
    yield from _turns(runs, tables)
    yield from _epochs(runs, cells, tables)
    yield from _readings(places, runs, tables)
    yield from _quality(tables)


def machines(records: Mapping[str, Any]) -> dict[int | None, Mapping[str, Any]]:
    """By node_id the machine that runs were on; None for the machine of the study."""
    nodes = {row["node_id"]: row["machine"] for row in rows_of(records["tables"].get("node", {}))}
    return {None: records["machine"], **nodes}


def rows_of(table: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    names = list(table)
    return [dict(zip(names, values)) for values in zip(*table.values())]


def _machines(places: Machines, runs: Runs, cells: Mapping[int, Any]) -> Iterator[str]:
    """A machine has the devices that cells ran on, and no more cores and memory than one system runs on."""
    for machine in places.values():
        for name, most in (
            ("available_cores", MOST_CORES),
            ("logical_cores", MOST_CORES),
            ("memory_bytes", MOST_BYTES),
        ):
            if isinstance(machine.get(name), int) and machine[name] > most:
                yield f"{name} of the machine is {machine[name]}; allowed: {most} at most"
    used = {(run["cell_id"], run.get("node_id")) for run in runs.values() if run["status"] == "ok"}
    for number, place in sorted(used, key=str):
        device = registry.device_kind(str(cells[number]["device"]))
        if device != "cpu" and not gpu_names(places[place]):
            yield f"{cells[number]['framework']} ran on {device}, but the machine has no GPU"


def _versions(environments: Mapping[str, Any], runs: Runs, cells: Mapping[int, Any]) -> Iterator[str]:
    """The version of a run is that of its environment, which is the version of a package in it."""
    known: dict[str, set[str]] = {}
    for label, facts in environments.items():
        framework, version = label.partition(" ")[0], public(facts.get("version"))
        known.setdefault(framework, set()).add(version)
        packages = {public(one) for one in (facts.get("packages") or {}).values()}
        if version and packages and version not in packages and framework.partition("@")[0] in registry.FRAMEWORKS:
            yield f"the environment of {label} has the version {version}, but no package in it has"
    packed = {str(one) for facts in environments.values() for one in (facts.get("packages") or {}).values()}
    packed |= {str(facts.get("version")) for facts in environments.values()}
    for number, run in runs.items():
        framework, version = str(cells[run["cell_id"]]["framework"]), public(run.get("framework_version"))
        exact = str(run.get("framework_version") or "")
        builds = {one for one in packed if one.startswith(f"{version}+")}
        if version != exact and builds and exact not in builds and framework.partition("@")[0] in registry.FRAMEWORKS:
            yield f"run {number} of {framework} has the version {exact}, which no package of its environments has"
        if version and known.get(framework) and "" not in known[framework] and version not in known[framework]:
            yield f"run {number} of {framework} has the version {version}, but its environment has {min(known[framework])}"


def public(version: object) -> str:
    """A version without its local part: what stands behind "+"."""
    return str(version or "").partition("+")[0]


def _turns(runs: Runs, tables: Tables) -> Iterator[str]:
    """Rivals take turns one after the other, in one block, in rounds numbered from 0."""
    by_run: dict[int, list[dict[str, Any]]] = {}
    for row in rows_of(tables.get("slice", {})):
        by_run.setdefault(row["run_id"], []).append(row)
    together: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    blocks: dict[Any, int] = {}
    for number, turns in by_run.items():
        run = runs[number]
        turns.sort(key=lambda row: row["start_ns"])
        if [row["round"] for row in turns] != list(range(len(turns))):
            yield f"the rounds of run {number} are not numbered from 0 in the order of their times"
        together.setdefault((run.get("node_id"), run.get("duel")), []).extend(turns)
        if run.get("duel") is not None and blocks.setdefault(run["duel"], run["repeat"]) != run["repeat"]:
            yield f"run {number} took turns with runs of another block"
    for rivals in together.values():
        rivals.sort(key=lambda row: row["start_ns"])
        for before, after in zip(rivals, rivals[1:]):
            if after["start_ns"] < before["end_ns"]:
                yield f"runs {before['run_id']} and {after['run_id']} had turns at the same time"
    yield from _apart(runs, by_run, rows_of(tables.get("epoch", {})))


def _apart(runs: Runs, turns: Mapping[int, Sequence[Any]], epochs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """In its epochs a worker either has a turn or waits, and no two runs have epochs of the same lengths."""
    by_run: dict[int, list[Mapping[str, Any]]] = {}
    for row in epochs:
        by_run.setdefault(row["run_id"], []).append(row)
    seen: dict[tuple[int, ...], int] = {}
    for number, several in by_run.items():
        lengths = [row["end_ns"] - row["start_ns"] for row in several]
        ordered = sorted(several, key=lambda row: row["number"])
        if [row["number"] for row in ordered] != list(range(1, len(several) + 1)):
            yield f"the epochs of run {number} are not numbered from 1"
        if any(after["start_ns"] < before["end_ns"] for before, after in zip(ordered, ordered[1:])):
            yield f"two epochs of run {number} overlap, or are out of order"
        twin = seen.setdefault(tuple(lengths), number)
        if twin != number:
            yield f"the epochs of runs {twin} and {number} have the same lengths to the nanosecond"
        awake = sum(lengths) / SECOND - sum(row.get("waited_s") or 0.0 for row in several)
        wall = runs[number].get("wall_s")
        if wall is not None and awake > wall + APART_S:
            yield f"run {number} took {wall:.3g} s, but its epochs take {awake:.3g} s without waiting"
        if number not in turns or runs[number]["status"] != "ok":
            continue
        spans = [(row["start_ns"], row["end_ns"]) for row in several]
        took = sum(
            max(0, min(row["end_ns"], end) - max(row["start_ns"], start))
            for row in turns[number]
            for start, end in spans
        )
        if abs(took / SECOND - awake) > APART * awake + APART_S:
            yield f"run {number} had turns of {took / SECOND:.3g} s in epochs that were {awake:.3g} s long without waiting"


def _epochs(runs: Runs, cells: Mapping[int, Any], tables: Tables) -> Iterator[str]:
    """Epochs contain their steps, their batches and their waiting; no phase occurs twice, and what is ok ended so."""
    batches: dict[int, int] = {}
    for number, cell in cells.items():
        config = TrainConfig.from_dict(cell["config"])
        if config.batch_growth == 1 and not is_search(cell["model"]):
            batches[number] = config.batch_size * len(replicas_of(config))
    for row in rows_of(tables.get("epoch", {})):
        number, length = row["run_id"], (row["end_ns"] - row["start_ns"]) / SECOND
        awake = length - (row.get("waited_s") or 0.0)
        batch = batches.get(runs[number]["cell_id"])
        if batch and 2 * row["images"] < (row["steps"] - 1) * batch:
            yield f"run {number} has only {row['images']} samples in {row['steps']} steps of {batch}"
        if (row.get("data_wait_s") or 0.0) > length * 1.05:
            yield f"run {number} waited longer for data than its epoch lasted"
        steps = [row.get(f"step_s_{name}") for name in ("p05", "median", "p95")]
        known = [value for value in steps if value is not None]
        if known != sorted(known) or (steps[1] or 0.0) * row["steps"] > 2 * awake * (1 + APART) + APART_S:
            yield f"the steps of run {number} do not fit into its epochs"
    names = list(zip(*(tables.get("phase", {}).get(name, ()) for name in ("run_id", "name"))))
    if len(set(names)) < len(names):
        yield "a run has a phase twice"
    for number, run in runs.items():
        if run["status"] == "ok" and run.get("exit_code"):
            yield f"run {number} is ok, but ended with the code {run['exit_code']}"


def _readings(places: Machines, runs: Runs, tables: Tables) -> Iterator[str]:
    """Readings lie within the time of their run; none is above its peak, or more than the machine can do."""
    spans: dict[int, tuple[int, int]] = {}
    for row in rows_of(tables.get("phase", {})):
        first, last = spans.get(row["run_id"], (row["start_ns"], row["end_ns"]))
        spans[row["run_id"]] = min(first, row["start_ns"]), max(last, row["end_ns"])
    sample = tables.get("sample", {})
    blank = [None] * len(sample.get("run_id", ()))
    columns = (sample.get(name, blank) for name in ("run_id", "t_ns", "rss_bytes", "cpu_percent"))
    for number, at, memory, used in zip(*columns):
        start, end = spans.get(number, (at, at))
        if not start - AFTER_S * SECOND <= at <= end + AFTER_S * SECOND:
            yield f"a reading of run {number} lies outside its phases"
        if runs[number]["status"] == "ok" and (memory or 0) > (runs[number].get("peak_rss_bytes") or memory or 0):
            yield f"a reading of run {number} shows more memory than its peak"
        if (used or 0.0) > 100 * BURST * cores_of(places[runs[number].get("node_id")]):
            yield f"a reading of run {number} shows {used:.0f} % of a core, more than the machine has"
    counters: dict[tuple[Any, Any], tuple[int, float]] = {}
    for row in rows_of(tables.get("energy", {})):
        key = row["run_id"], row.get("device")
        before, joules = counters.get(key, (row["t_ns"], row["energy_j"]))
        length, more = (row["t_ns"] - before) / SECOND, row["energy_j"] - joules
        if not 0 <= more <= POWER_W * max(length, 1.0):
            yield f"the energy of run {row['run_id']} rose by {more:.3g} J in {length:.3g} s"
        counters[key] = row["t_ns"], row["energy_j"]


def cores_of(machine: Mapping[str, Any]) -> int:
    """The cores that a program there may use; with no limit on it, all."""
    known = (machine.get(name) for name in ("available_cores", "logical_cores"))
    return max((one for one in known if type(one) is int), default=0)


def _quality(tables: Tables) -> Iterator[str]:
    """Metrics belong to epochs that a run had, and lie within their ranges: 0 to 1 where more is better."""
    columns = (tables.get("epoch", {}).get(name, ()) for name in ("run_id", "number"))
    had = set(zip(*columns))
    for row in rows_of(tables.get("quality", {})):
        metric = METRICS.get(row["name"])
        if (
            metric
            and row["value"] is not None
            and not 0 <= row["value"] <= (1 if metric.higher_is_better else math.inf)
        ):
            yield f"{row['name']} of run {row['run_id']} is {row['value']:g}"
        if (row["run_id"], row["epoch"]) not in had:
            yield f"run {row['run_id']} has a metric for epoch {row['epoch']}, which it did not have"
