"""Facts given twice by records of one study must agree: turns and epochs, readings and runs, versions and packages."""

from __future__ import annotations

import math
from collections.abc import Iterator

from framework_compare import registry
from framework_compare.archive.records import SECOND, Row, Tables, awake_s, in_order, length_s, overlaps
from framework_compare.batches.quality import METRICS
from framework_compare.plan.searches import is_search
from framework_compare.protocol import Document, replicas_of
from framework_compare.report.provenance import gpu_names

# By which the turns of a run may differ from the time that it did not wait; in this repository's archive by 0.1 % at most.
APART, APART_S = 0.02, 0.05
BURST = 2.0  # times all cores, of one reading of CPU time, which is counted in ticks; in the archive 1.1 at most
AFTER_S = 60  # from the last phase of a run to its last reading
POWER_W = 20_000  # of one device or package; the supplies of a server with eight GPUs deliver no more together
MOST_CORES, MOST_BYTES = 8192, 1 << 46  # that Linux on x86-64 runs on: NR_CPUS, and physical addresses of 46 bits


def faults(study: Tables) -> Iterator[str]:
    """Each contradiction within sound records as a sentence."""
    for check in (_machines, _versions, _turns, _apart, _epochs, _readings, _quality):
        yield from check(study)


def _machines(study: Tables) -> Iterator[str]:
    """A machine has the devices that cells ran on, and no more cores and memory than one system runs on."""
    for machine in study.machines.values():
        for name, most in (
            ("available_cores", MOST_CORES),
            ("logical_cores", MOST_CORES),
            ("memory_bytes", MOST_BYTES),
        ):
            if isinstance(machine.get(name), int) and machine[name] > most:
                yield f"{name} of the machine is {machine[name]}; allowed: {most} at most"
    used = {(run["cell_id"], run.get("node_id")) for run in study.runs.values() if run["status"] == "ok"}
    for number, place in sorted(used, key=str):
        device = registry.device_kind(str(study.cells[number]["device"]))
        if device != "cpu" and not gpu_names(study.machines[place]):
            yield f"{study.cells[number]['framework']} ran on {device}, but the machine has no GPU"


def _versions(study: Tables) -> Iterator[str]:
    """The version of a run is that of its environment, which is the version of a package in it."""
    known: dict[str, set[str]] = {}
    packed: set[str] = set()
    for label, facts in study.environments.items():
        framework, version = label.partition(" ")[0], public(facts.get("version"))
        known.setdefault(framework, set()).add(version)
        versions = {str(one) for one in (facts.get("packages") or {}).values()}
        packed |= {*versions, str(facts.get("version"))}
        if version and versions and version not in map(public, versions) and _of_ours(framework):
            yield f"the environment of {label} has the version {version}, but no package in it has"
    for number, run in study.runs.items():
        framework, exact = str(study.cell_of(number)["framework"]), str(run.get("framework_version") or "")
        version = public(exact)
        builds = {one for one in packed if one.startswith(f"{version}+")}
        if version != exact and builds and exact not in builds and _of_ours(framework):
            yield f"run {number} of {framework} has the version {exact}, which no package of its environments has"
        if version and known.get(framework) and "" not in known[framework] and version not in known[framework]:
            yield f"run {number} of {framework} has the version {version}, but its environment has {min(known[framework])}"


def _of_ours(framework: str) -> bool:
    return framework.partition("@")[0] in registry.FRAMEWORKS


def public(version: object) -> str:
    """A version without its local part: what stands behind "+"."""
    return str(version or "").partition("+")[0]


def _turns(study: Tables) -> Iterator[str]:
    """Rivals take turns one after the other, in one block, in rounds numbered from 0."""
    together: dict[tuple[object, object], list[Row]] = {}
    blocks: dict[object, int] = {}
    for number, turns in study.by_run("slice").items():
        run = study.runs[number]
        if [row["round"] for row in in_order(turns)] != list(range(len(turns))):
            yield f"the rounds of run {number} are not numbered from 0 in the order of their times"
        together.setdefault((run.get("node_id"), run.get("duel")), []).extend(turns)
        if run.get("duel") is not None and blocks.setdefault(run["duel"], run["repeat"]) != run["repeat"]:
            yield f"run {number} took turns with runs of another block"
    for rivals in together.values():
        for before, after in overlaps(in_order(rivals)):
            yield f"runs {before['run_id']} and {after['run_id']} had turns at the same time"


def _apart(study: Tables) -> Iterator[str]:
    """Yield what contradicts this: in its epochs a worker has a turn or waits, and no two runs have equal epochs."""
    seen: dict[tuple[int, ...], int] = {}
    turns = study.by_run("slice")
    for number, epochs in study.by_run("epoch").items():
        ordered = in_order(epochs, "number")
        if [row["number"] for row in ordered] != list(range(1, len(epochs) + 1)):
            yield f"the epochs of run {number} are not numbered from 1"
        if overlaps(ordered):
            yield f"two epochs of run {number} overlap, or are out of order"
        twin = seen.setdefault(tuple(row["end_ns"] - row["start_ns"] for row in epochs), number)
        if twin != number:
            yield f"the epochs of runs {twin} and {number} have the same lengths to the nanosecond"
        awake, wall = sum(map(awake_s, epochs)), study.runs[number].get("wall_s")
        if wall is not None and awake > wall + APART_S:
            yield f"run {number} took {wall:.3g} s, but its epochs take {awake:.3g} s without waiting"
        if number not in turns or study.runs[number]["status"] != "ok":
            continue
        pairs = ((turn, epoch) for turn in turns[number] for epoch in epochs)
        shared = (max(0, min(a["end_ns"], b["end_ns"]) - max(a["start_ns"], b["start_ns"])) for a, b in pairs)
        took = float(sum(shared) / SECOND)
        if abs(took - awake) > APART * awake + APART_S:
            yield f"run {number} had turns of {took:.3g} s in epochs that were {awake:.3g} s long without waiting"


def _epochs(study: Tables) -> Iterator[str]:
    """Epochs contain their steps, their batches and their waiting; no phase occurs twice, and what is ok ended so."""
    batches: dict[int, int] = {}
    for number, config in study.configs.items():
        if config.batch_growth == 1 and not is_search(study.cells[number]["model"]):
            batches[number] = config.batch_size * len(replicas_of(config))
    for row in study.rows("epoch"):
        number = row["run_id"]
        batch = batches.get(study.runs[number]["cell_id"])
        if batch and 2 * row["images"] < (row["steps"] - 1) * batch:
            yield f"run {number} has only {row['images']} samples in {row['steps']} steps of {batch}"
        if (row.get("data_wait_s") or 0.0) > length_s(row) * 1.05:
            yield f"run {number} waited longer for data than its epoch lasted"
        steps = [row.get(f"step_s_{name}") for name in ("p05", "median", "p95")]
        known = [value for value in steps if value is not None]
        if known != sorted(known) or (steps[1] or 0.0) * row["steps"] > 2 * awake_s(row) * (1 + APART) + APART_S:
            yield f"the steps of run {number} do not fit into its epochs"
    names = list(zip(*(study.column("phase", name) for name in ("run_id", "name"))))
    if len(set(names)) < len(names):
        yield "a run has a phase twice"
    for number, run in study.runs.items():
        if run["status"] == "ok" and run.get("exit_code"):
            yield f"run {number} is ok, but ended with the code {run['exit_code']}"


def _readings(study: Tables) -> Iterator[str]:
    """Readings lie within the time of their run; none is above its peak, or more than the machine can do."""
    spans = {
        number: (min(row["start_ns"] for row in phases), max(row["end_ns"] for row in phases))
        for number, phases in study.by_run("phase").items()
    }
    blank = [None] * len(study.column("sample", "run_id"))
    columns = (study.column("sample", name) or blank for name in ("run_id", "t_ns", "rss_bytes", "cpu_percent"))
    for number, at, memory, used in zip(*columns):
        start, end = spans.get(number, (at, at))
        if not start - AFTER_S * SECOND <= at <= end + AFTER_S * SECOND:
            yield f"a reading of run {number} lies outside its phases"
        run = study.runs[number]
        if run["status"] == "ok" and (memory or 0) > (run.get("peak_rss_bytes") or memory or 0):
            yield f"a reading of run {number} shows more memory than its peak"
        if (used or 0.0) > 100 * BURST * cores_of(study.machine_of(number)):
            yield f"a reading of run {number} shows {used:.0f} % of a core, more than the machine has"
    counters: dict[tuple[object, object], tuple[int, float]] = {}
    for row in study.rows("energy"):
        key = row["run_id"], row.get("device")
        before, joules = counters.get(key, (row["t_ns"], row["energy_j"]))
        length, more = (row["t_ns"] - before) / SECOND, row["energy_j"] - joules
        if not 0 <= more <= POWER_W * max(length, 1.0):
            yield f"the energy of run {row['run_id']} rose by {more:.3g} J in {length:.3g} s"
        counters[key] = row["t_ns"], row["energy_j"]


def cores_of(machine: Document) -> int:
    """The cores that a program there may use; with no limit on it, all."""
    known = (machine.get(name) for name in ("available_cores", "logical_cores"))
    return max((one for one in known if type(one) is int), default=0)


def _quality(study: Tables) -> Iterator[str]:
    """Metrics belong to epochs that a run had, and lie within their ranges: 0 to 1 where more is better."""
    had = {(row["run_id"], row["number"]) for row in study.rows("epoch")}
    for row in study.rows("quality"):
        metric, value = METRICS.get(row["name"]), row["value"]
        if metric and value is not None and not 0 <= value <= (1 if metric.higher_is_better else math.inf):
            yield f"{row['name']} of run {row['run_id']} is {value:g}"
        if (row["run_id"], row["epoch"]) not in had:
            yield f"run {row['run_id']} has a metric for epoch {row['epoch']}, which it does not have"
