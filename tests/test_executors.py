"""Where cells run: words for it, options of Slurm and what sbatch says; one timing at a time on a host."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from framework_compare import Slurm, compare, paths, resume
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.launch import nodes
from framework_compare.launch.statuses import Evidence, judge
from framework_compare.paths import private_folder, runtime_dir
from framework_compare.study import executors
from framework_compare.study.executors import Executor

QUICK = {"batch_size": [2, 4], "epochs": 2, "threads": 1, "loader_workers": 0, "image_size": 32, "repeats": 2}


def test_words_for_where_cells_run_reach_sbatch_and_its_words_are_told():
    assert executors.of("here") is None and isinstance(executors.of("parts"), Executor)
    options = executors.of("slurm", {"partition": "gpu", "gpus-per-node": "1", "exclusive": "false"}).options
    assert options == {"partition": "gpu", "gpus_per_node": 1, "exclusive": False}
    with pytest.raises(UnknownNameError, match="unknown place to run 'moon'; allowed: here, slurm, parts"):
        executors.of("moon")
    with pytest.raises(UsageError, match="--slurm is given with --on here; allowed: --on slurm"):
        executors.of("here", {"partition": "gpu"})
    said = "sbatch: error: invalid partition specified: moon\nsbatch: error: Batch job submission failed: no\n"
    assert executors._reason(said) == "invalid partition specified: moon; Batch job submission failed: no"
    said = "sbatch: unrecognized option '--moon=3'\nTry \"sbatch --help\" for more information"
    assert executors._reason(said) == "unrecognized option '--moon=3'"
    assert executors._reason("first\n last ") == "last"
    given = {"exclusive": False, "requeue": False, "mem": "4G", "constraint": None}
    options = executors._options(Path("/s 100%"), given, 2, 1)
    assert {"--no-requeue", "--mem=4G", "--array=0-1", "--output=/s 100%%/parts/slurm/%A_%a.log"} < set(options)
    assert not [one for one in options if one.startswith(("--requeue", "--exclusive", "--constraint"))]
    options = executors._options(Path("/s"), {"gpus_per_node": 1, "time-min": 5}, 1, 2)
    assert {"--requeue", "--exclusive", "--gpus-per-node=1", "--time-min=5", "--nodes=2"} < set(options)


def test_each_element_of_an_array_runs_its_part(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "PART", "import sys; print(sys.argv[1:])")
    script, folder = executors._script(tmp_path / "a b", [3, 4, 7]), str(tmp_path / "a b")
    for place, part in enumerate("347"):
        found = subprocess.run(["sh", "-c", script], env={"SLURM_ARRAY_TASK_ID": str(place)}, capture_output=True)
        assert found.stdout.decode() == f"{['part', folder, part]}\n"


def test_options_that_each_part_sets_and_cores_that_are_not_named_are_refused(tiny, images, tmp_path):
    cores = "threads would default to the cores of this host, not of the nodes"
    for changes, said in (
        ({"executor": Slurm(array=2)}, "--slurm has array, which is set for each part.*leave it out$"),
        (
            {"executor": Slurm(nodes=2)},
            "--slurm has nodes, which is set for each part.*ask for several nodes by --nodes",
        ),
        ({"executor": Executor(), "threads": None}, cores),
    ):
        with pytest.raises(UsageError, match=said):
            compare(tiny, "linear", **{**QUICK, "dataset": images, "out": tmp_path / "study", **changes})
        assert not (tmp_path / "study").exists()


def test_slurm_without_its_commands_says_what_is_lacking(monkeypatch, tiny, images, tmp_path):
    asked = {**QUICK, "dataset": images, "out": tmp_path / "study", "executor": Slurm(partition="gpu")}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs sbatch, which is not on PATH"):
        compare(tiny, "linear", **asked)
    assert not (tmp_path / "study").exists()
    compare(tiny, "linear", **{**asked, "executor": Executor()})
    with pytest.raises(UsageError, match="needs sbatch, which is not on PATH"):
        resume(tmp_path / "study", executor=asked["executor"])


def test_a_worker_ended_by_sigterm_from_outside_is_interrupted():
    verdict = judge(None, Evidence(-15, "epochs", "log"))
    assert verdict.status == "interrupted" and "in phase epochs by an external SIGTERM" in verdict.reason


def test_one_timing_at_a_time_on_a_node():
    """Of two processes one waits for the other, and says so; a process that is killed holds up nobody."""
    code = (
        "import time; from framework_compare.launch.nodes import one_timing\n"
        "with one_timing(print): print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "in\n"
        lines = []
        with nodes.one_timing(lambda line: (lines.append(line), other.kill())):
            assert len(lines) == 1 and "another comparison is running" in lines[0]
    finally:
        other.kill()
        other.wait()


def test_another_user_cannot_block_timings(monkeypatch):
    """Names that all users share hold up nobody; one of another user's timing is a warning."""
    taken = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    names = [f"framework_compare-{nodes.node()}", f"framework-compare:12345:{nodes.node()[:40]}:abcd"]
    lines = []
    for name, holder in zip(names, taken):
        holder.bind(f"\0{name}")
    with nodes.one_timing(lines.append):
        assert lines == [nodes.OTHERS]
    taken[1].close()
    with nodes.one_timing(lines.append):
        assert lines == [nodes.OTHERS]
    taken[0].close()


def test_locks_are_in_folders_of_their_user_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(private_folder(tmp_path / "run")))
    with nodes.one_timing():
        (lock,) = (tmp_path / "run").iterdir()
        assert nodes.node() in lock.name and lock.stat().st_mode & 0o777 == 0o600
    (tmp_path / "run").chmod(0o755)
    assert runtime_dir() != tmp_path / "run"
    monkeypatch.setattr(paths, "SHARED", private_folder(tmp_path / "planted"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "planted-none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "planted-cache"))
    assert runtime_dir() == tmp_path / "planted" / paths.own_name()
    (tmp_path / "planted" / paths.own_name()).chmod(0o777)
    with nodes.one_timing():
        (lock,) = (tmp_path / "planted-cache/framework_compare/runtime").iterdir()
    assert nodes.node() in lock.name and lock.parent.stat().st_mode & 0o777 == 0o700
    assert not [*(tmp_path / "planted" / paths.own_name()).iterdir()]
    (tmp_path / "planted-cache/framework_compare/runtime").chmod(0o777)
    with pytest.raises(UsageError, match="set XDG_RUNTIME_DIR to one$"):
        runtime_dir()
