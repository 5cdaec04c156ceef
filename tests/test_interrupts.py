"""The parent stopped: by Ctrl-C, by SIGTERM, by kill -9 at any moment. Nothing is left running, nothing is lost."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from faulty import pids
from processes import is_running, wait_for
from stored_study import selected

from framework_compare import compare, largest_batch
from framework_compare.comparison import Comparison
from framework_compare.launch import supervised_worker
from framework_compare.launch.supervised_worker import SupervisedWorker
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store
from framework_compare.study import schedules

PLUGINS = Path(__file__).parent / "plugins"
PARENT = """
import json, sys
sys.path.insert(0, {plugins!r})
from faulty import FAULTS
from framework_compare import registry
from framework_compare.cli import root
registry.register_framework(registry.Framework("faulty", {adapter!r}, "", "numpy", ((3, 8), (3, 99))))
for name in FAULTS:
    registry.register_model(name, "linear:" + name)
sys.argv = ["framework-compare", *json.loads(sys.argv[1])]
root.main()
"""


def take_ctrl_c() -> None:
    """In the child: as from a terminal, where a suite started in the background by a shell has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Parent:
    """`framework-compare` with the test framework, in a process of its own."""

    def __init__(self, images: Path, cache: Path, study: Path, models: str, **options: object) -> None:
        given = {"frameworks": "faulty", "models": models, "dataset": images, "out": study, **options}
        basics = {"batch-size": 4, "epochs": 2, "threads": 1, "loader-workers": 1, "image-size": 32, "sampling-hz": 10}
        basics["repeats"] = 1
        arguments = ["run", *(f"--{name}={value}" for name, value in {**basics, **given}.items())]
        code = PARENT.format(plugins=str(PLUGINS), adapter=f"{PLUGINS / 'faulty.py'}:FaultyTrainer")
        self.study = study
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(arguments)],
            env={**os.environ, "FRAMEWORK_COMPARE_CACHE": str(cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=take_ctrl_c,
            start_new_session=True,  # as a terminal's foreground group: a Ctrl-C is for this one alone
        )

    def wait_for(self, query: str, timeout_s: float = 60) -> None:
        """Until the query on its study finds something."""
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                if selected(self.study, query):
                    return
            except Exception:
                pass
            time.sleep(0.02)
        pytest.fail(f"{query} found nothing; {self.process.poll()}")

    def end(self) -> str:
        return self.process.communicate(timeout=60)[1]


def left(study: Path, within_s: float = 5.0) -> "list[int]":
    wait_for(lambda: not any(map(is_running, pids(study))), within_s)
    return [pid for pid in pids(study) if is_running(pid)]


def epochs_of(study: Path) -> "list[int]":
    """The epochs that the second run's worker has told of so far."""
    found = [path.read_text().splitlines(keepends=True) for path in study.glob("runs/00002*/events.jsonl")]
    told = [json.loads(line) for lines in found for line in lines if line.endswith("\n")]
    return [line["number"] for line in told if line["event"] == "epoch"]


# SIGTERM is taken as Ctrl-C is: by day the tests of a starting program, of a sweep and of a last cell send it.
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_a_stopped_parent_keeps_what_was_measured(number, images, tmp_path):
    parent = Parent(images, tmp_path / "cache", tmp_path / "study", "fine,slow,raise", epochs=1000)
    parent.wait_for("SELECT 1 FROM run WHERE run_id = 2 AND status = 'running'")
    assert wait_for(lambda: epochs_of(tmp_path / "study"), 60)
    parent.process.send_signal(number)
    told = parent.end()
    assert parent.process.returncode == 130, told
    assert "stopped; measured epochs are stored in" in told and "Traceback" not in told
    statuses = selected(tmp_path / "study", "SELECT status FROM run ORDER BY run_id")
    assert statuses == [("ok",), ("interrupted",), ("planned",)]
    assert selected(tmp_path / "study", "SELECT count(*) FROM epoch WHERE run_id = 2")[0][0] >= 1
    told = selected(tmp_path / "study", "SELECT died_in, reason FROM run WHERE run_id = 2")
    assert told == [("epochs", "stopped by the user")]
    assert not left(tmp_path / "study", within_s=0)


@pytest.mark.parametrize("came", ["started", "started and ended"])
def test_an_interrupt_while_a_worker_starts_is_an_interrupt(came, tmp_path, monkeypatch):
    command = [sys.executable, "-c", "pass" if came == "started and ended" else "import time; time.sleep(600)"]
    original, before = supervised_worker.select.select, set(psutil.Process().children())

    def interrupted(descriptors, *rest):
        monkeypatch.undo()
        time.sleep(0.2 if came == "started and ended" else 0.0)
        original(descriptors, [], [], 10)
        raise KeyboardInterrupt

    monkeypatch.setattr(supervised_worker.select, "select", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SupervisedWorker(command, log=tmp_path / "log.txt", folder=tmp_path, environment={})
    assert not set(psutil.Process().children()) - before


SLOW_IMPORT = """
import sys, time
at = "framework_compare." + sys.argv[1]
from framework_compare.cli.entry import main

class Slow:
    def find_spec(name, *_):
        if name == at:
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow)
sys.argv[1:] = ["list"]
main()
"""


@pytest.mark.parametrize("at, number", [("cli.root", signal.SIGINT), ("plan.planning", signal.SIGTERM)])
def test_a_stop_while_the_program_starts_is_one_line(at, number):
    command = [sys.executable, "-c", SLOW_IMPORT, at]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=take_ctrl_c
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    told = process.communicate(timeout=30)[1]
    assert (process.returncode, told.strip()) == (130, "framework-compare: stopped")


def terminate(*_: object) -> None:
    """SIGTERM to this process, which would be the end of it where nobody takes it."""
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def test_a_sigterm_between_two_probes_or_after_the_last_cell_is_an_interrupt(
    faulty, images, own_cache, tmp_path, monkeypatch
):
    monkeypatch.setattr(Comparison, "load", terminate)
    with pytest.raises(KeyboardInterrupt):
        compare(faulty, "fine", dataset=images, out=tmp_path / "study", epochs=1, batch_size=4, image_size=32)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr(Store, "extend", terminate)
    with pytest.raises(KeyboardInterrupt):
        largest_batch(faulty, "fine", dataset=images, out=tmp_path / "sweep-study", batch_sizes=[2], image_size=32)


def test_a_killed_parent_takes_its_worker_and_that_ones_daemon_with_it(images, tmp_path):
    parent = Parent(images, tmp_path / "cache", tmp_path / "study", "leak-in-a-daemon", epochs=1_000_000)
    assert wait_for(lambda: len(pids(tmp_path / "study")) >= 2, 60)
    assert all(map(is_running, pids(tmp_path / "study")))
    parent.process.kill()
    parent.end()
    assert not left(tmp_path / "study")


def test_a_killed_parent_leaves_the_epochs_of_the_run_it_was_at(images, tmp_path):
    """And a resume takes the run for unfinished."""
    study = tmp_path / "study"
    parent = Parent(images, tmp_path / "cache", study, "fine,slow", epochs=12)
    parent.wait_for("SELECT 1 FROM run WHERE run_id = 2 AND status = 'running'")
    assert wait_for(lambda: len(epochs_of(study)) >= 3, 60)
    parent.process.kill()
    parent.end()
    with Store.open(study) as store:
        assert list(store.outcomes().values())[1] == ["running"]
        assert [run_id for run_id, _, _ in store.plan()] == [2]
    numbers = epochs_of(study)
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) < 12


def kill_and_resume(kills: int, sizes: int, images: Path, folder: Path, seed: int) -> int:
    """A study of three cells a batch size, its parent killed at random moments until it is done; how often it was."""
    random_moment = random.Random(seed)
    study, finished, killed = folder / "study", {}, 0
    models = "fine,raise,segfault"
    sizes_asked = ",".join(map(str, range(1, sizes + 1)))
    options = {
        "batch-size": sizes_asked,
        "sampling-hz": 20,
        "retries-when-disturbed": 0,
    }  # what else runs here adds no run
    while True:
        parent = Parent(images, folder / "cache", study, models, **options)
        if killed < kills:
            try:
                parent.process.wait(random_moment.uniform(0.0, 3.0))
            except subprocess.TimeoutExpired:
                parent.process.kill()
                killed += 1
        told = parent.end()
        assert not left(study), "a worker outlived its parent"
        if (study / FILE).exists():
            check_whole(study)
            now = outcomes(study)
            assert all(now[run_id] == row for run_id, row in finished.items()), "a finished run was lost or run again"
            finished = {run_id: row for run_id, row in now.items() if row[1] not in ("planned", "running")}
        if parent.process.returncode == 0:
            return killed
        assert parent.process.returncode == -signal.SIGKILL, told


def check_whole(study: Path) -> None:
    connection = sqlite3.connect(study / FILE)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def outcomes(study: Path) -> dict:
    rows = selected(study, "SELECT run_id, status, started_at, wall_s, reason FROM run")
    epochs = dict(selected(study, "SELECT run_id, count(*) FROM epoch GROUP BY run_id"))
    return {row[0]: (*row, epochs.get(row[0], 0)) for row in rows}


def check_done(study: Path, sizes: int) -> None:
    cells = selected(study, "SELECT framework, model, dataset, device, config FROM cell")
    planned = selected(study, "SELECT cell_id, count(*) FROM run GROUP BY cell_id")
    anchors = int(sizes > schedules.MOST_RIVALS)  # the rest takes turns with one of those before
    assert len(cells) == len(set(cells)) == 3 * sizes
    assert sorted(count for _, count in planned) == [1] * (3 * sizes - anchors) + [2] * anchors
    found = outcomes(study)
    statuses = ["crashed"] * sizes + ["failed"] * sizes + ["ok"] * (sizes + anchors)
    assert sorted(row[1] for row in found.values()) == statuses
    assert all(row[5] == (2 if row[1] == "ok" else 0) for row in found.values())


@pytest.mark.parametrize("kills, sizes", [(2, 1), pytest.param(50, 10, marks=pytest.mark.nightly)])
def test_kill_9_of_the_parent_at_random_points_loses_nothing(kills, sizes, images, tmp_path):
    killed, seed = 0, 0
    while killed < kills:
        folder = tmp_path / str(seed)
        folder.mkdir()
        killed += kill_and_resume(kills - killed, sizes, images, folder, seed)
        check_done(folder / "study", sizes)
        seed += 1


FORKING = """
import os, sys, threading, time
from framework_compare.worker.main import have_children_die_too

def fork():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    children.append(pid)

have_children_die_too()
children = []
fork()
thread = threading.Thread(target=fork)
thread.start()
thread.join()
time.sleep(0.3)  # the second child outlives the thread that forked it
print(*children, flush=True)
time.sleep(60)
"""


def test_a_killed_worker_takes_its_loaders_with_it_and_the_end_of_a_thread_takes_none():
    worker = subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True)
    of_main, of_thread = (psutil.Process(int(pid)) for pid in worker.stdout.readline().split())
    try:
        assert of_main.is_running() and of_thread.status() != psutil.STATUS_ZOMBIE
        worker.kill()
        worker.wait()
        psutil.wait_procs([of_main], timeout=10)
        assert not of_main.is_running() or of_main.status() == psutil.STATUS_ZOMBIE
    finally:
        worker.stdout.close()
        for child in (of_main, of_thread):
            if child.is_running():
                child.kill()
