"""A study on a real Slurm of two nodes on this host: the same results as here, whatever Slurm does to its jobs."""

import json
import random
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from processes import naming, wait_for
from slurm_cluster import install_plugin, run, start_command
from stored_study import selected

from framework_compare.comparison import Comparison
from framework_compare.paths import own_name
from framework_compare.study import parts
from framework_compare.study.executors import PART

pytestmark = pytest.mark.slurm
HERE = Path(__file__).parent
PLUGIN = """
from framework_compare import registry
from framework_compare.registry import Framework

def register():
    for name in ("tiny", "small"):
        place = {place!r} + f"/{{name}}.py:TinyTrainer"
        registry.register_framework(Framework(name, place, "", "numpy", ((3, 8), (3, 99))))
    registry.register_model("linear", "linear:build")
    registry.register_model("again", "again:build")
"""
STEP_S = 0.02
CELLS_24 = {"frameworks": "tiny,small", "models": "linear,again", "batch-size": "1,2,4", "warmup-steps": "0,1"}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder for PYTHONPATH with two test frameworks, as an installed plug-in has them."""
    place = tmp_path_factory.mktemp("plugin")
    source = (HERE / "plugins" / "tiny.py").read_text()
    slow = f"        import time; time.sleep({STEP_S})\n"
    body = "    def train_step(self, batch: Batch) -> Any:\n"
    assert body in source
    for name in ("tiny", "small"):
        (place / f"{name}.py").write_text(
            source.replace('name = "tiny"', f'name = "{name}"').replace(body, body + slow)
        )
    model = (HERE / "plugins" / "linear.py").read_text()
    (place / "again.py").write_text(model.replace('GraphBuilder("linear"', 'GraphBuilder("again"'))
    return install_plugin(place, PLUGIN.format(place=str(place)))


@pytest.fixture
def command(cluster, plugin, tmp_path):
    """Runs `framework-compare` as a user of the cluster does, in a process of its own."""
    return start_command(cluster, plugin, tmp_path)


def request(images, **given):
    options = {"frameworks": "tiny", "models": "linear", "dataset": images, "batch-size": "4", "epochs": 2}
    quick = {"threads": 1, "loader-workers": 0, "image-size": 32, "repeats": 2, "disturbance-threshold": 1000}
    return ["run", *(f"--{name}={value}" for name, value in {**options, **quick, **given}.items())]


def results(folder):
    """Of each run what does not depend on time."""
    return selected(
        folder,
        "SELECT framework, model, config, repeat, status, count(epoch.number), sum(images), sum(steps), sum(loss)"
        " FROM run JOIN cell USING (cell_id) LEFT JOIN epoch USING (run_id) GROUP BY run_id"
        " ORDER BY framework, model, config, repeat",
    )


def statuses(folder):
    return [status for (status,) in selected(folder, "SELECT status FROM run")]


def is_sound(folder):
    ((runs, once),) = selected(folder, "SELECT count(*), count(DISTINCT cell_id || '-' || repeat) FROM run")
    return selected(folder, "PRAGMA integrity_check") == [("ok",)] and runs == once


def processes(folder):
    """Of workers and parts of a study that still run."""
    scratch = f"/{own_name()}/{parts.PartPlan.read(folder, 1).study}-"
    return [line for word in (folder, scratch) for _, line in naming(word)]


def test_a_study_on_two_nodes_has_the_results_of_one_here(cluster, command, images, tmp_path):
    both = {"frameworks": "tiny,small", "models": "linear,again"}
    text = run(command, *request(images, **both, out=tmp_path / "there"), "--on", "slurm", "--slurm", "partition=main")
    run(command, *request(images, **both, out=tmp_path / "here"))
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert "part 4: 2 ok" in text and "planned" not in text
    runs = Comparison.load(tmp_path / "there").runs
    assert sorted(set(runs.part_id)) == [1, 2, 3, 4] and runs.node_id.nunique() == 2
    assert runs.groupby(["block", "model"]).node_id.nunique().max() == 1, "a block is of one node"
    assert is_sound(tmp_path / "there") and not processes(tmp_path / "there")
    assert not list((tmp_path / "disk").iterdir()), "nothing is left on the nodes' disk"


@pytest.mark.nightly
def test_a_part_that_is_requeued_ends_well(cluster, command, images, tmp_path):
    study = command(*request(images, repeats=1, epochs=40, out=tmp_path / "s"), "--on", "slurm")
    assert wait_for(lambda: running(tmp_path, "epochs")), study.communicate(timeout=60)
    (job,) = cluster.jobs()
    cluster.ask("scontrol", "requeue", job)
    text = study.communicate(timeout=120)[0]
    assert study.returncode == 0 and "part 1: 1 ok" in text, text
    log = next((tmp_path / "s" / "parts" / "slurm").glob("*.log")).read_text()
    assert "interrupted" in log or "stopped" in log, log
    assert statuses(tmp_path / "s") == ["ok"] and wait_for(lambda: not processes(tmp_path / "s"), 10)


@pytest.mark.nightly
def test_what_is_cancelled_is_resumed(cluster, command, images, tmp_path):
    study = command(*request(images, epochs=40, out=tmp_path / "s"), "--on", "slurm")
    assert wait_for(lambda: len(cluster.jobs()) == 2 and running(tmp_path, "epochs"))
    cluster.ask("scancel", *cluster.jobs())
    text = study.communicate(timeout=120)[0]
    assert study.returncode == 0 and "ended without a result" in text and "resume the study" in text, text
    assert statuses(tmp_path / "s") == ["planned"] * 2 and wait_for(lambda: not processes(tmp_path / "s"), 10)
    run(command, "resume", tmp_path / "s", "--on", "slurm")
    assert statuses(tmp_path / "s") == ["ok"] * 2 and is_sound(tmp_path / "s")


def test_ctrl_c_ends_the_jobs_and_a_refused_option_is_told(cluster, command, images, tmp_path):
    study = command(*request(images, epochs=40, out=tmp_path / "s"), "--on", "slurm")
    assert wait_for(cluster.jobs)
    study.send_signal(signal.SIGTERM)
    text = study.communicate(timeout=60)[0]
    assert study.returncode == 130 and "stopped; " in text and "Traceback" not in text
    assert wait_for(lambda: not cluster.ask("squeue", "-h")) and wait_for(lambda: not processes(tmp_path / "s"), 10)
    text = run(command, "resume", tmp_path / "s", "--on", "slurm", "--slurm", "partition=moon", code=2)
    assert "Slurm refused the study's parts" in text and "invalid partition" in text and "Traceback" not in text


def running(tmp_path, phase):
    """Whether a worker on some node is in this phase."""
    logs = [path.read_text() for path in (tmp_path / "disk").rglob("runs/*/events.jsonl")]
    return any(f'"name":"{phase}"' in text.replace(" ", "") for text in logs)


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1])
def test_thirty_random_kills_lose_no_run_and_blame_no_framework(seed, cluster, command, images, tmp_path):
    """Requeue, preemption, scancel, kill -9 of a part and of a node, while the study is resumed until it is done."""
    draw, folder = random.Random(seed), tmp_path / "s"
    first, events, stop = True, [], threading.Event()

    def disturb():
        while len(events) < 30 and not stop.is_set():
            stop.wait(draw.uniform(1, 6))
            event = draw.choice(EVENTS)
            try:
                if event(cluster, draw):
                    events.append(event.__name__)
            except (psutil.Error, OSError):
                continue

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        give_up = time.monotonic() + 1500
        while time.monotonic() < give_up:
            start = request(images, **CELLS_24, epochs=8, repeats=3, out=folder) if first else ["resume", folder]
            study = command(*start, "--on", "slurm")
            text = study.communicate(timeout=900)[0]
            assert study.returncode == 0, text
            first = False
            assert set(statuses(folder)) <= {"ok", "planned"}, text
            if set(statuses(folder)) == {"ok"}:
                break
    finally:
        stop.set()
        thread.join()
    (tmp_path / "events.json").write_text(json.dumps(events))
    assert set(statuses(folder)) == {"ok"} and len(statuses(folder)) == 72
    assert {row[5] for row in results(folder)} == {8}, "all epochs of each run, once"
    assert len(events) == 30, f"the study was done after {len(events)} events"
    assert is_sound(folder) and wait_for(lambda: not processes(folder), 20)
    runs = Comparison.load(folder).runs
    assert runs.groupby(["block", "model"]).node_id.nunique().max() == 1


def requeue(cluster, draw):
    return _of_a_job(cluster, draw, "scontrol", "requeue")


def cancel(cluster, draw):
    return _of_a_job(cluster, draw, "scancel")


def preempt(cluster, draw):
    if not cluster.jobs():
        return False
    cluster.ask("sbatch", "-p", "high", "-o", "/dev/null", "--wrap", "sleep 1")
    return True


def _of_a_job(cluster, draw, *words):
    jobs = cluster.jobs()
    if jobs:
        cluster.ask(*words, draw.choice(jobs))
    return bool(jobs)


def kill_part(cluster, draw):
    """The process that runs a part."""
    found = [process for process, line in naming(PART) if "part" in line[2:5] and cluster.owns(process)]
    if found:
        draw.choice(found).kill()
    return bool(found)


def kill_node(cluster, draw):
    node = draw.choice(cluster.nodes)
    if not cluster.jobs():
        return False
    cluster.kill_node(node)
    time.sleep(draw.uniform(0, 8))
    cluster.start_node(node)
    return True


EVENTS = (requeue, cancel, preempt, kill_part, kill_node)
