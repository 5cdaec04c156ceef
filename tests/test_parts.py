"""A study in parts: planned, each run alone, taken over whole or not at all, once, and of one kind of machine."""

import json
import os
import shutil
import threading
import time

import pytest
from command_line import run
from heard import Heard
from stored_study import selected

from framework_compare import api, compare, largest_batch, resume
from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError, UsageError
from framework_compare.launch import nodes
from framework_compare.paths import own_name
from framework_compare.records import Run
from framework_compare.results.block_times import block_seconds
from framework_compare.samplers import host
from framework_compare.store.folder import FILE
from framework_compare.store.schema import CHILDREN
from framework_compare.store.study_file import Store
from framework_compare.study import part_run, parts
from framework_compare.study.executors import Executor
from framework_compare.study.part_run import run_part
from framework_compare.study.progress import PlainWatcher, Watcher

QUICK = {"batch_size": [2, 4], "epochs": 2, "threads": 1, "loader_workers": 0, "image_size": 32, "repeats": 2}


@pytest.fixture
def node(monkeypatch, tmp_path):
    """Pretends to be a node of a cluster, by its name, with a disk of its own."""

    def be(name):
        monkeypatch.setenv("SLURMD_NODENAME", f"{name}-{os.getpid()}")
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / name))

    be("n1")
    return be


@pytest.fixture
def planned(tiny, images, own_cache, tmp_path, node):
    """A study of two cells and two turns, so of two parts, none of which has run."""

    def plan(**given):
        settings = {**QUICK, "dataset": images, "out": tmp_path / "study", "schedule": "sequential", **given}
        return compare(tiny, "linear", executor=Executor(), **settings).folder

    return plan


def run_all(folder):
    for number in sorted(parts.numbers(folder)):
        run_part(folder, number, Watcher())


def absorb(folder):
    lines = []
    return lines, api.absorb(folder, say=lines.append)[1]


def content(folder):
    """Everything in a study's file."""
    tables = [name for (name,) in selected(folder, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: selected(folder, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables}


def test_a_study_in_parts_has_the_table_of_one_that_ran_here(planned, node, tiny, images, tmp_path):
    folder = planned()
    for number, name in ((1, "n1"), (2, "n2")):
        node(name)
        run_part(folder, number, Watcher())
    lines, refused = absorb(folder)
    assert lines == ["part 1: 2 ok", "part 2: 2 ok"] and refused == {}
    here = compare(tiny, "linear", dataset=images, out=tmp_path / "here", **QUICK)
    there = Comparison.load(folder)
    same = ["framework", "model", "batch_size", "status", "runs_ok", "epochs_measured", "loss_last", "parameters"]
    assert there.frame[same].to_dict() == here.frame[same].to_dict()
    columns = ["cell", "block", "epoch", "images", "steps", "loss"]
    a, b = (one.epochs[columns].sort_values(columns[:3]).to_numpy().tolist() for one in (there, here))
    assert a == b
    assert str(there.table()).splitlines()[1].split()[0] == str(here.table()).splitlines()[1].split()[0]
    assert sorted(set(there.runs.node_id)) == [1, 2] and list(there.runs.part_id) == [1, 2, 1, 2]
    with Store.open(folder) as store:
        nodes, machine = store.nodes(), store.machine()
    assert machine["cpu"] == host.describe()["cpu"] and len(nodes) == 2
    assert all(os.uname().nodename not in json.dumps(document) for document in nodes.values())
    assert all((folder / path).is_file() for path in there.runs.log_path)
    assert len(there.steps) == there.epochs.steps.sum()


def test_a_part_is_absorbed_once(planned):
    folder = planned()
    run_part(folder, 1, Watcher())
    assert absorb(folder)[0] == ["part 1: 2 ok"]
    before = content(folder)
    assert absorb(folder) == ([], {}) and content(folder) == before
    run_part(folder, 2, Watcher())
    assert absorb(folder)[0] == ["part 2: 2 ok"]
    after = content(folder)
    assert [row for row in after["epoch"] if row in before["epoch"]] == before["epoch"]
    assert len(after["epoch"]) == 8 and len(after["part"]) == 2


def test_a_part_that_cannot_be_taken_whole_leaves_the_study_as_it_was(planned):
    folder = planned()
    run_part(folder, 1, Watcher())
    before = content(folder)
    for table in sorted(CHILDREN):
        for names in ((table, "gone"), ("gone", table)):
            with Store.open(parts.result_path(folder, 1), readonly=False) as store:
                store._connection.execute("ALTER TABLE {} RENAME TO {}".format(*names))
            if names[1] == "gone":
                lines, refused = absorb(folder)
                assert list(refused) == [1] and "part 1 is refused" in lines[0] and "delete" in lines[0], table
                after = content(folder)
                assert all(after[name] == before[name] for name in ("run", "epoch", "phase", "part", "node")), table
    assert absorb(folder)[0] == ["part 1: 2 ok"]


def test_a_damaged_part_is_refused_and_runs_again_once_it_is_deleted(planned):
    folder = planned()
    run_all(folder)
    file = parts.result_path(folder, 1) / FILE
    file.write_bytes(file.read_bytes()[:5000])
    lines, refused = absorb(folder)
    assert list(refused) == [1] and "damaged" in refused[1] and "part 2: 2 ok" in lines
    shutil.rmtree(parts.result_path(folder, 1))
    assert resume(folder, executor=Executor()).frame.runs_ok.tolist() == [1, 1]
    run_part(folder, 1, Watcher())
    assert absorb(folder)[0] == ["part 1: 2 ok"]
    assert Comparison.load(folder).frame.runs_ok.tolist() == [2, 2]


def test_a_part_of_another_turn_or_of_another_study_is_refused(planned, tmp_path):
    """Folders that were copied by hand under a wrong number: one turn would be counted twice."""
    folder = planned()
    run_part(folder, 1, Watcher())
    other = planned(out=tmp_path / "other")
    run_part(other, 2, Watcher())
    absorb(folder)
    before = content(folder)
    for source in (parts.result_path(folder, 1), parts.result_path(other, 2)):
        copy = shutil.copytree(source, parts.result_path(folder, 2))
        _, refused = absorb(folder)
        assert list(refused) == [2] and "of another part or of another study" in refused[2]
        shutil.rmtree(copy)
    assert content(folder) == before


def test_what_a_power_cut_left_of_a_part_on_its_node_is_thrown_away(planned, tmp_path, monkeypatch):
    folder = planned()
    with monkeypatch.context() as patch:
        patch.setattr(part_run, "_publish", lambda place, result: None)
        run_part(folder, 1, Watcher())
    (left,) = (tmp_path / "n1").glob("*/*/study.sqlite")
    os.truncate(left, 20_000)
    lines = Heard()
    run_part(folder, 1, lines)
    assert "on this node are damaged; starting it again" in " ".join(lines.said)
    assert absorb(folder) == (["part 1: 2 ok"], {})


def test_a_part_that_is_done_is_left_and_one_that_was_stopped_continues_on_its_node(planned, node, monkeypatch):
    folder = planned()
    stopped = Stopping(after=1)
    with pytest.raises(KeyboardInterrupt):
        run_part(folder, 1, stopped)
    assert not parts.result_path(folder, 1).exists() and absorb(folder) == ([], {})
    again = Counting()
    run_part(folder, 1, again)
    assert again.ended == 1, "the run that was done before is not done again"
    run_part(folder, 1, again)
    assert again.ended == 1 and "nothing left to do" in again.said[-1]
    absorb(folder)
    assert selected(folder, "SELECT status FROM run WHERE repeat = 1") == [("ok",), ("ok",)]


def test_a_part_that_was_stopped_begins_anew_on_another_node(planned, node, tmp_path):
    folder = planned()
    with pytest.raises(KeyboardInterrupt):
        run_part(folder, 1, Stopping(after=1))
    (place,) = (tmp_path / "n1").iterdir()
    assert place.stat().st_mode & 0o777 == 0o700, "only its user can enter it"
    node("n2")
    again = Counting()
    run_part(folder, 1, again)
    assert again.ended == 2
    absorb(folder)
    assert selected(folder, "SELECT count(DISTINCT node_id) FROM run WHERE repeat = 1") == [(1,)]
    assert len(list((tmp_path / "n1").glob("*/*"))) == 1
    node("n1")
    run_part(folder, 2, Watcher())
    assert list((tmp_path / "n1").glob("*/*")) == [], "the next part removes what attempts have left"


@pytest.mark.parametrize("planted", ["open to others", "a link", "another user's"])
def test_a_part_takes_nothing_that_another_user_may_have_planted_on_its_node(planted, planned, tmp_path, monkeypatch):
    folder, place = planned(), tmp_path / "n1" / own_name()
    if planted == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "theirs")
    elif planted == "open to others":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.mkdir(mode=0o700)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        place.rename(tmp_path / "n1" / own_name())
    with pytest.raises(UsageError, match="not a folder that only you can enter.*TMPDIR"):
        run_part(folder, 1, Watcher())
    assert not parts.result_path(folder, 1).exists()


class Counting(Heard):
    ended = 0

    def end(self, cell, run):
        self.ended += 1


class Stopping(Counting):
    """Ctrl-C after so many runs."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def begin(self, cell, number, total):
        if self.ended == self.after:
            raise KeyboardInterrupt


def test_what_is_left_of_a_study_is_planned_and_no_more(planned):
    folder = planned()
    with Store.open(folder) as store:
        assert parts.numbers(folder) == {1, 2} and store.parts() == set()
    run_part(folder, 1, Watcher())
    resume(folder, executor=Executor())
    assert parts.numbers(folder) == {1, 2}, "part 2 is still to do and planned once"
    resume(folder)
    assert Comparison.load(folder).frame.runs_ok.tolist() == [2, 2]
    assert selected(folder, "SELECT count(*) FROM run WHERE part_id IS NULL") == [(2,)], "this machine did part 2"
    resume(folder, executor=Executor())
    assert parts.PartPlan.read(folder, 2).cells == ()


def test_runs_are_retried_in_a_part_of_their_own(planned, faulty, images, tmp_path):
    settings = {**QUICK, "batch_size": 4, "dataset": images, "out": tmp_path / "faults"}
    folder = compare(faulty, ["fine", "raise"], executor=Executor(), **settings).folder
    run_all(folder)
    lines, _ = absorb(folder)
    assert sorted(line.split(": ")[1] for line in lines) == ["1 failed", "1 failed", "1 ok", "1 ok"]
    before = selected(folder, "SELECT run_id, started_at, part_id FROM run WHERE status = 'failed'")
    resume(folder, executor=Executor(), retry="failed")
    assert parts.numbers(folder) == {1, 2, 3, 4, 5, 6}
    for number in (5, 6):
        run_part(folder, number, Watcher())
    assert sorted(absorb(folder)[0]) == ["part 5: 1 failed", "part 6: 1 failed"]
    after = selected(folder, "SELECT run_id, started_at, part_id FROM run WHERE status = 'failed'")
    assert [row[0] for row in before] == [row[0] for row in after] and {row[2] for row in after} == {5, 6}


def test_runs_that_repeat_a_disturbed_one_stay_in_its_block(planned, monkeypatch):
    folder = planned(retries_when_disturbed=1, batch_size=4)
    result = Run("ok", disturbed_epochs=1, disturbed_s=1.0, disturbed_share=0.5)
    monkeypatch.setattr("framework_compare.study.study.run_worker", lambda *given, **options: result)
    run_all(folder)
    assert absorb(folder)[0] == ["part 1: 2 ok", "part 2: 2 ok"]
    found = selected(folder, "SELECT repeat, retry_of, part_id FROM run ORDER BY run_id")
    assert found == [(1, None, 1), (2, None, 2), (3, 1, 1), (4, 2, 2)]
    assert sorted(Comparison.load(folder).runs.block) == [1, 1, 2, 2]


def test_machines_of_another_kind_are_refused_before_they_measure_and_when_they_have(planned, monkeypatch):
    folder = planned()
    run_part(folder, 1, Watcher())
    described = host.describe()
    monkeypatch.setattr(host, "describe", lambda: {**described, "cpu": "another"})
    with pytest.raises(
        StudyError, match="part 2 cannot run on this node: cpu: .* in the study, another now; .* one kind"
    ):
        run_part(folder, 2, Watcher())
    assert not parts.result_path(folder, 2).exists()
    (folder / parts.PARTS / parts.MACHINE).unlink()
    run_part(folder, 2, Watcher())
    lines, refused = absorb(folder)
    assert lines[0] == "part 1: 2 ok" and list(refused) == [2] and "one kind" in refused[2]
    assert Comparison.load(folder).frame.runs_ok.tolist() == [1, 1]


def test_a_part_of_other_images_or_packages_is_refused(planned):
    folder = planned()
    run_part(folder, 1, Watcher())
    absorb(folder)
    run_part(folder, 2, Watcher())
    (sums,) = (parts.result_path(folder, 2) / "images").glob("*.checksums")
    text = sums.read_text()
    sums.write_text(text.replace(text.split('"')[3], "0" * 16))
    assert "its images of colours differ from those" in absorb(folder)[1][2]
    sums.write_text(text[:9])
    assert f"{sums.name} is damaged" in absorb(folder)[1][2]
    sums.write_text(text)
    with Store.open(parts.result_path(folder, 2), readonly=False) as store:
        store.environment("tiny", {**store.environments()["tiny"], "version": "9.9"})
    assert "9.9 now" in absorb(folder)[1][2]


def test_no_ratio_is_of_two_nodes(planned, node):
    """Of a block, the run of another node has a block of its own: its figure stands, a ratio does not."""
    folder = planned(batch_size=[1, 2, 4])
    run_all(folder)
    absorb(folder)
    with Store.open(folder, readonly=False) as store:
        store.record(1, Run("failed", "to be run again"))
    node("n2")
    resume(folder, executor=Executor(), retry="failed")
    run_part(folder, 3, Watcher())
    absorb(folder)
    result = Comparison.load(folder)
    seconds = block_seconds(result.epochs)
    moved = int(result.runs[result.runs.run_id == 1].cell.iloc[0])
    assert all(sorted(of) == ([2, 3] if cell == moved else [1, 2]) for cell, of in seconds.items())


def test_failed_runs_take_turns_in_a_part_of_their_own_with_the_fastest_of_their_rivals(
    images, own_cache, tmp_path, node, paced
):
    names = [paced(name, pace_s=0.001) for name in ("a", "b", "c", "d")]
    asked = {**QUICK, "batch_size": 4, "dataset": images, "out": tmp_path / "study", "verify": "off"}
    folder = compare(names, "linear", executor=Executor(), **asked).folder
    run_all(folder)
    absorb(folder)
    with Store.open(folder, readonly=False) as store:
        for run_id in selected(folder, "SELECT run_id FROM run WHERE cell_id <= 2"):
            store.record(*run_id, Run("failed", "to be run again"))
    resume(folder, executor=Executor(), retry="failed")
    resume(folder, executor=Executor())  # the parts were lost before they began: what they retry is still known
    plans = [parts.PartPlan.read(folder, number) for number in (3, 4)]
    assert [{cell.framework for cell in plan.cells[1:]} for plan in plans] == [{"a", "b"}] * 2
    assert {plan.cells[0].framework for plan in plans} <= {"c", "d"} and parts.numbers(folder) == {1, 2, 3, 4}
    for number in (3, 4):
        run_part(folder, number, Watcher())
    absorb(folder)
    duels = selected(folder, "SELECT part_id, count(DISTINCT duel), count(*) FROM run GROUP BY part_id")
    assert duels == [(1, 1, 2), (2, 1, 2), (3, 1, 3), (4, 1, 3)]
    assert selected(folder, "SELECT count(DISTINCT duel), min(status), max(status) FROM run") == [(4, "ok", "ok")]
    a, b, c, d = Comparison.load(folder).runs.groupby("cell").block.agg(set)
    assert a == b and len(a) == 2 and a <= c | d and c & d == (c | d) - a


def test_a_sweep_of_batch_sizes_stays_on_one_machine(faulty, images, own_cache, tmp_path):
    settings = {name: value for name, value in QUICK.items() if name not in ("batch_size", "repeats")}
    folder = largest_batch(faulty, "fine", batch_sizes=[2], dataset=images, out=tmp_path / "s", **settings).folder
    with pytest.raises(UsageError, match="chooses each run from earlier results"):
        resume(folder, executor=Executor())


def test_parts_on_the_command_line_are_forecast_and_run(planned, capsys):
    folder = planned()
    with pytest.raises(StudyError, match="has no part 3; allowed: 1 to 2"):
        run_part(folder, 3, Watcher())
    assert "2 cells, 2 runs. Nothing was started." in " ".join(run("part", folder, 1, "--dry-run").stdout.split())
    assert not parts.result_path(folder, 1).exists()
    run("part", folder, "1")
    assert api.dry_part(folder, 1).runs == 0 and api.dry_part(folder, 2).runs == 2
    run_part(folder, 2, PlainWatcher())
    assert "[2/2] tiny-linear-cpu" in capsys.readouterr().err
    absorbed = run("absorb", folder)
    assert "0 of 4 runs are unfinished" in absorbed.stdout + absorbed.stderr
    shown = run("show", folder).stdout
    assert "Measured on 1 node of a cluster" in shown and "planned" not in shown


def test_cells_are_timed_one_at_a_time_whoever_starts_them(planned, tmp_path):
    folder, lines = planned(), Heard()
    with nodes.one_timing():
        thread = threading.Thread(target=run_part, args=(folder, 1, lines))
        thread.start()
        time.sleep(0.5)
        assert rows_of_part(tmp_path) in ([], [("running",), ("planned",)])
    thread.join(60)
    assert absorb(folder)[0] == ["part 1: 2 ok"]
    assert any("another comparison" in line for line in lines.said)


def rows_of_part(tmp_path):
    places = list((tmp_path / "n1").glob(f"*/*/{FILE}"))
    return selected(places[0].parent, "SELECT status FROM run ORDER BY run_id") if places else []
