"""Where the parts of a study run: started by Slurm, or by another engine around `framework-compare part STUDY N`.

An executor only starts `part STUDY N` somewhere alone, and knows which parts still wait or run. What came of one is in
the study's folder; no engine is asked for that.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from framework_compare.errors import StudyError, UnknownNameError, UsageError
from framework_compare.store import schema
from framework_compare.study.parts import PARTS, PartPlan, numbers, read_json

HERE, SLURM, ONLY_PARTS = "here", "slurm", "parts"
NAMES = (HERE, SLURM, ONLY_PARTS)
JOBS = "jobs.json"  # Slurm's ids of the jobs of parts
# Options of sbatch that say which part a job is and where it writes; `nodes` is what a part's cells need.
OURS = {"array", "error", "nodes", "open_mode", "output", "stderr_to_stdout", "use_srun", "wrap"}
LISTS = ("setup", "teardown")  # shell commands of submitit's, a list
# A module in the folder that it runs in, the study's, is not one of ours.
PART = (
    "import sys; sys.path[:] = filter(None, sys.path); from framework_compare.cli.entry import main; sys.exit(main())"
)


class Executor(Protocol):
    """Starts parts and knows which are not over."""

    waits: bool  # whether the study is waited for

    def check(self) -> None:
        """UsageError where it cannot start anything here."""

    def submit(self, folder: Path, parts: Sequence[int]) -> None:
        """Start these parts of a study; StudyError where that is refused."""

    def live(self, folder: Path) -> set[int]:
        """Of the parts that were submitted, now or earlier, those that wait or run."""

    def cancel(self, folder: Path) -> None:
        """End all that is live."""


class OnlyParts:
    """Plans parts and starts none: that is left to GNU parallel, Kubernetes, HTCondor, Snakemake, Ray or a person."""

    waits = False

    def check(self) -> None:
        """Nothing is needed."""

    def submit(self, folder: Path, parts: Sequence[int]) -> None:
        """Others do."""

    def live(self, folder: Path) -> set[int]:
        return set()

    def cancel(self, folder: Path) -> None:
        """Nothing is live."""


class Slurm:
    """Starts each part as an element of a job array, alone on its node unless `exclusive=False` is given.

    options: of sbatch by their long names, with underscores: partition="gpu", time=120 (minutes), gpus_per_node=1,
    constraint="a100". Slurm requeues what it preempts and what dies with its node. Needs the extra `slurm`.
    """

    waits = True

    def __init__(self, **options: Any) -> None:
        self.options = options

    def check(self) -> None:
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise UsageError(
                "--on slurm needs submitit, which is not installed; install it: pip install 'framework-compare[slurm]'"
            ) from None
        taken = sorted(OURS & {name.replace("-", "_") for name in self.options})
        if taken:
            hint = "; ask for several nodes by --nodes" if taken[0] == "nodes" else ""
            raise UsageError(f"--slurm has {taken[0]}, which is set for each part; leave it out{hint}")
        for command in ("sbatch", "squeue", "scontrol", "srun"):
            if shutil.which(command) is None:
                raise UsageError(f"--on slurm needs {command}, which is not on PATH; call it on a host of the cluster")

    def submit(self, folder: Path, parts: Sequence[int]) -> None:
        if not parts:
            return
        import submitit

        place = folder / PARTS / SLURM
        command = submitit.helpers.CommandFunction([sys.executable, "-c", PART, "part", str(folder)], cwd=folder)
        for nodes, chunk in _chunks(folder, parts, _largest_array()):
            try:
                executor = submitit.SlurmExecutor(folder=place)
                executor.update_parameters(**_parameters(folder.name, self.options, len(chunk), nodes))
                with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what its error says, too
                    jobs = executor.map_array(command, chunk)
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError, ValueError) as error:
                raise StudyError(
                    f"Slurm refused the study's parts: {_words(error)}; change --slurm and resume"
                ) from None
            _note_jobs(folder, {job.job_id: part for job, part in zip(jobs, chunk)})

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
    if name not in NAMES:
        raise UnknownNameError("place to run", name, NAMES)
    if options and name != SLURM:
        raise UsageError(f"--slurm is given with --on {name}; allowed: --on slurm")
    if name == SLURM:
        return Slurm(**{option.replace("-", "_"): _value(text) for option, text in (options or {}).items()})
    return OnlyParts() if name == ONLY_PARTS else None


def _value(text: str) -> Any:
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


def _parameters(name: str, options: Mapping[str, Any], jobs: int, nodes: int = 1) -> dict[str, Any]:
    """Options as submitit takes them; what it does not know goes to sbatch as it is."""
    import submitit

    known = submitit.SlurmExecutor._valid_parameters()
    ours = {
        "job_name": f"fc-{name}",
        "nodes": nodes,
        "exclusive": True,
        "use_srun": False,  # a step would pass Slurm's warning signal to every worker
        "stderr_to_stdout": True,
        "array_parallelism": jobs,  # as many at once as there are nodes
        "time": None,  # the partition's own, not submitit's 5 minutes
    }
    # False and None leave an option out; sbatch takes no value for most of those that are True.
    named = {name.replace("-", "_"): None if value is False else value for name, value in options.items()}
    if "requeue" in options and named["requeue"] is None:
        named["no_requeue"] = True
    named.update({name: [named[name]] for name in LISTS if isinstance(named.get(name), str)})
    given = {name: value for name, value in named.items() if name in known}
    rest = {name: value for name, value in {"requeue": True, **named}.items() if name not in known}
    rest = {name: value for name, value in rest.items() if value is not None}
    return {**ours, **given, "additional_parameters": rest}


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


def _note_jobs(folder: Path, jobs: Mapping[str, int]) -> None:
    path = folder / PARTS / JOBS
    with schema.study_errors(path):
        half = path.with_suffix(".half")
        half.write_text(json.dumps({**_jobs(folder), **jobs}), encoding="utf-8")
        half.replace(path)


def _words(error: Exception) -> str:
    """What sbatch says in an error, of each of its lines; the last line where it says nothing."""
    lines: list[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line.partition("sbatch: ")[2].replace("error: ", "") for line in lines if line.startswith("sbatch: ")]
    return "; ".join(dict.fromkeys(messages)) or (lines[-1] if lines else repr(error))


def log_of(folder: Path, part: int) -> Path | None:
    """What the last job of a part printed; None where no job has."""
    jobs = [job for job, number in _jobs(folder).items() if number == part]
    logs = sorted((folder / PARTS / SLURM).glob(f"{jobs[-1]}_*_log.out")) if jobs else []
    return logs[-1] if logs else None
