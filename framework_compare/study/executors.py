"""A study run in parts, which an executor starts: Slurm, or another engine around `framework-compare part STUDY N`.

An executor only starts `part STUDY N` somewhere alone, and knows which parts still wait or run. What came of one is in
the study's folder; no engine is asked for that.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import EnvironmentUnavailable, StudyError, UsageError, check_name
from framework_compare.plan.settings import SETTINGS
from framework_compare.protocol import Document
from framework_compare.records import Cell
from framework_compare.store import schema
from framework_compare.store.folder import read_json, write_json
from framework_compare.store.study_file import TO_RUN, Store
from framework_compare.study.parts import MACHINE, PARTS, PartPlan, absorb, numbers, plan
from framework_compare.study.progress import Watcher
from framework_compare.study.run_options import RunOptions

HERE, SLURM, ONLY_PARTS = "here", "slurm", "parts"
NAMES = (HERE, SLURM, ONLY_PARTS)
JOBS = "jobs.json"  # Slurm's ids of the jobs of parts
# Options of sbatch that say which part a job is and where it writes; `nodes` is what a part's cells need.
OURS = {"array", "chdir", "error", "nodes", "open_mode", "output", "parsable", "wrap"}
# A module in the folder that it runs in, the study's, is not one of ours.
PART = (
    "import sys; sys.path[:] = filter(None, sys.path); from framework_compare.cli.entry import main; sys.exit(main())"
)
POLL_S = (1.0, 10.0)  # from the first to all later looks at the queue, which clusters ask not to be asked often
LAG_S = 5.0  # a shared disk may show a part's folder later than the queue loses its job


class Executor:
    """Starts parts and knows which are not finished.

    This one only plans parts; GNU parallel, Kubernetes, HTCondor, Snakemake, Ray or a person starts them.
    """

    waits = False  # whether the study is waited for

    def check(self) -> None:
        """Raise UsageError if nothing can be started from this machine."""

    def submit(self, folder: Path, parts: Sequence[int]) -> None:
        """Start these parts of a study; raise StudyError if they are refused."""

    def live(self, folder: Path) -> set[int]:
        """Return the submitted parts that are still waiting or running."""
        return set()

    def cancel(self, folder: Path) -> None:
        """Cancel every waiting or running part."""


class Slurm(Executor):
    """Starts each part as an element of a job array, alone on its node unless `exclusive=False` is given.

    options: long options of sbatch, with underscores: partition="gpu", time=120 (minutes), gpus_per_node=1,
    constraint="a100". Slurm requeues parts that are preempted or whose node dies.
    """

    waits = True

    def __init__(self, **options: object) -> None:
        self.options = options

    def check(self) -> None:
        taken = sorted(OURS & {name.replace("-", "_") for name in self.options})
        if taken:
            hint = "; ask for several nodes by --nodes" if taken[0] == "nodes" else ""
            raise UsageError(f"--slurm has {taken[0]}, which is set for each part; leave it out{hint}")
        for command in ("sbatch", "squeue", "scontrol", "srun"):
            if shutil.which(command) is None:
                raise UsageError(f"--on slurm needs {command}, which is not on PATH; call it on a host of the cluster")

    def submit(self, folder: Path, parts: Sequence[int]) -> None:
        logs = folder / PARTS / SLURM
        with schema.study_errors(logs):
            logs.mkdir(exist_ok=True)
        for nodes, chunk in _chunks(folder, parts, _largest_array()):
            command = ["sbatch", "--parsable", *_options(folder, self.options, len(chunk), nodes)]
            answer = subprocess.run([*command, "--wrap", _script(folder, chunk)], capture_output=True, text=True)
            if answer.returncode:
                raise StudyError(
                    f"Slurm refused the study's parts: {_reason(answer.stderr)}; change --slurm and resume"
                )
            job = answer.stdout.strip().partition(";")[0]  # a name of the cluster may follow
            begun = {f"{job}_{place}": part for place, part in enumerate(chunk)}
            write_json(folder / PARTS / JOBS, {**_jobs(folder), **begun})

    def live(self, folder: Path) -> set[int]:
        jobs = _jobs(folder)
        queued = _queued()
        return set(jobs.values()) & numbers(folder) if queued is None else {jobs[job] for job in queued & jobs.keys()}

    def cancel(self, folder: Path) -> None:
        live = sorted(_jobs(folder).keys() & (_queued() or set()))
        if live:
            subprocess.run(["scancel", *live], check=False, capture_output=True)


def of(name: str, options: Mapping[str, str] | None = None) -> Executor | None:
    """The executor of the command line's words, None for `here`; UsageError for others."""
    check_name("place to run", name, NAMES)
    if options and name != SLURM:
        raise UsageError(f"--slurm is given with --on {name}; allowed: --on slurm")
    if name == SLURM:
        return Slurm(**{option.replace("-", "_"): _value(text) for option, text in (options or {}).items()})
    return Executor() if name == ONLY_PARTS else None


def _value(text: str) -> bool | int | str | None:
    words = {"true": True, "false": False, "none": None}
    return words.get(text.lower(), int(text) if text.isdecimal() else text)


def _chunks(folder: Path, parts: Sequence[int], most: int) -> Iterator[tuple[int, list[int]]]:
    """Parts for one array, at most so many, and how many nodes each of them needs."""
    by_nodes: dict[int, list[int]] = {}
    for number in parts:
        by_nodes.setdefault(PartPlan.read(folder, number).nodes, []).append(number)
    for nodes, listed in by_nodes.items():
        for first in range(0, len(listed), most):
            yield nodes, listed[first : first + most]


def _options(folder: Path, given: Document, jobs: int, nodes: int) -> list[str]:
    """Options as sbatch takes them; False and None leave one out."""
    log = str(folder / PARTS / SLURM).replace("%", "%%")
    ours = {
        "array": f"0-{jobs - 1}",
        "chdir": folder,
        "nodes": nodes,
        "open-mode": "append",
        "output": f"{log}/%A_%a.log",
    }
    asked = {
        **{"job-name": f"fc-{folder.name}", "exclusive": True, "requeue": True},
        **{name.replace("_", "-"): value for name, value in given.items()},
    }
    if asked["requeue"] in (False, None):
        asked["no-requeue"] = True
    kept = {name: value for name, value in {**ours, **asked}.items() if value is not None and value is not False}
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in kept.items()]


def _script(folder: Path, parts: Sequence[int]) -> str:
    """Return the script of an array of these parts; each part takes the shell's place, so that Slurm's signals reach it."""
    command = shlex.join([sys.executable, "-c", PART, "part", str(folder)])
    return f'set -- {" ".join(map(str, parts))}; shift "$SLURM_ARRAY_TASK_ID"; exec {command} "$1"'


def _largest_array() -> int:
    """MaxArraySize of this cluster, which is one more than the largest index; 1,001 unless it is configured."""
    text = subprocess.run(["scontrol", "show", "config"], check=False, capture_output=True, text=True).stdout
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", text, re.MULTILINE)
    return max(1, int(size[1]) if size else 1001)


def _queued() -> set[str] | None:
    """Ids of this user's jobs that wait or run, elements of arrays one by one; None where the controller is silent."""
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    return None if answer.returncode else set(answer.stdout.split())


def _jobs(folder: Path) -> dict[str, int]:
    path = folder / PARTS / JOBS
    return read_json(path) if path.exists() else {}


def _reason(text: str) -> str:
    """Return the messages of sbatch; the last line where there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line.partition("sbatch: ")[2].replace("error: ", "") for line in lines if line.startswith("sbatch: ")]
    return "; ".join(dict.fromkeys(messages)) or (lines[-1] if lines else "sbatch gave no reason")


def _log_of(folder: Path, part: int) -> Path | None:
    """Return the log of the last job of a part; None where there is none."""
    jobs = [job for job, number in _jobs(folder).items() if number == part]
    path = folder / PARTS / SLURM / f"{jobs[-1] if jobs else part}.log"
    return path if path.exists() else None


def check_cores(settings: Document) -> None:
    """UsageError where a setting would be the cores of this host, which nodes need not have."""
    lacking = [name for name, setting in SETTINGS.items() if setting.all_cores and settings.get(name) is None]
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} would default to the cores of this host, not of the nodes; give a number for each"
        )


def run_parts(
    store: Store, options: RunOptions, executor: Executor, watcher: Watcher, retry: Sequence[str] = ()
) -> None:
    """Do all that is planned in a study, and again what ended with a status of `retry`, in parts.

    A KeyboardInterrupt ends the executor's jobs, then is raised again; nodes keep what they have measured. UsageError
    where the executor can start nothing from here.
    """
    executor.check()
    refused = set(absorb(store, watcher.say))
    live = executor.live(store.folder)
    planned = plan(store, options, retry, live, watcher.say)
    if planned:
        plans = (PartPlan.read(store.folder, number) for number in planned)
        _make_environments([cell for one in plans for cell in one.cells], options, watcher)
        _keep_kind(store, live)
    try:
        executor.submit(store.folder, planned)
        if not executor.waits:
            watcher.say(_how_to_start(store.folder, planned))
            return
        lost = _wait(store, executor, {*planned, *live}, refused, watcher)
    except KeyboardInterrupt:
        executor.cancel(store.folder)
        raise
    for number in sorted(lost):
        log = _log_of(store.folder, number)
        watcher.say(
            f"part {number} ended without a result{f', see {log}' if log else ''}; resume the study to start it again"
        )


def _wait(store: Store, executor: Executor, waiting: set[int], refused: set[int], watcher: Watcher) -> set[int]:
    """Take over each part as it is done, until none is live; the numbers of those that left no result."""
    began, total = time.monotonic(), len(waiting)
    lost: set[int] = set()
    gone_since: dict[int, float] = {}
    while waiting:
        refused = refused | absorb(store, watcher.say, refused).keys()
        waiting -= store.parts() | refused
        watcher.count("parts", total - len(waiting), total)
        live, now = executor.live(store.folder), time.monotonic()
        gone_since = {number: gone_since.get(number, now) for number in waiting - live}
        lost |= {number for number, since in gone_since.items() if now - since > LAG_S}
        waiting -= lost
        if waiting:
            time.sleep(min(POLL_S[1], POLL_S[0] + (now - began) / 60))
    return lost


def _make_environments(cells: Iterable[Cell], options: RunOptions, watcher: Watcher) -> None:
    """Made here, as nodes often reach no package index; whether their GPUs can use them is asked there."""
    for framework, device in dict.fromkeys((cell.framework, cell.device) for cell in cells):
        spec = registry.framework(framework)
        framework, python = spec.name, options.python.get(spec.name)
        if managed.is_given(spec, python) or not spec.requirements_on(device):
            continue
        try:
            index = options.index.get(framework)
            managed.ensure(framework, device=device, index=index, report=watcher.say)
        except EnvironmentUnavailable as error:
            watcher.say(str(error))


def _keep_kind(store: Store, live: set[int]) -> None:
    """Nodes must be of the kind of machine that the study has figures of, if it has any."""
    finished = any(status not in TO_RUN for statuses in store.outcomes().values() for status in statuses)
    path = store.folder / PARTS / MACHINE
    if not finished and not live:
        path.unlink(missing_ok=True)  # of a node that nothing was measured on
    elif finished and not path.exists():
        write_json(path, store.machine())


def _how_to_start(folder: Path, planned: Sequence[int]) -> str:
    if not planned:
        return "no part is left to start"
    listed = ",".join(map(str, planned))
    return (
        f"{len(planned)} parts are planned; start each alone on a node: `framework-compare part {folder} N` "
        f"for N of {listed}; then run `framework-compare absorb {folder}`"
    )
