"""A test framework's worker that is forked does what one that is started does."""

import subprocess

import pytest

from framework_compare import compare
from framework_compare.launch import staging, supervised_worker

QUICK = dict(batch_size=4, epochs=2, threads=1, loader_workers=1, image_size=32, sampling_hz=0)
ALIKE = ["status", "reason", "parameters", "loss_first", "loss_last", "framework_version", "execution", "warnings"]


@pytest.fixture
def both(worker_server, images, own_cache, tmp_path):
    """Cells in workers that are forked, and in such that are started."""

    def run(framework, *models):
        before = worker_server.forked
        forked = compare(framework, list(models), dataset=images, out=tmp_path / "forked", **QUICK)
        assert worker_server.forked == before + len(models)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(supervised_worker, "subprocess", subprocess)
            started = compare(framework, list(models), dataset=images, out=tmp_path / "started", **QUICK)
        assert worker_server.forked == before + len(models)
        return forked, started

    return run


def test_a_forked_worker_trains_what_a_started_one_does(tiny, both):
    forked, started = both(tiny, "linear")
    assert forked.frame[ALIKE].equals(started.frame[ALIKE]) and list(forked.frame.status) == ["ok"]
    assert list(forked.epochs.loss) == list(started.epochs.loss)
    assert list(forked.phases.phase) == list(started.phases.phase)


def test_a_forked_worker_ends_as_a_started_one_does(faulty, both):
    forked, started = both(faulty, "exit-3", "killed", "sys-exit", "raise")
    assert forked.frame[ALIKE].equals(started.frame[ALIKE])


def test_a_forked_worker_runs_the_source_that_is_staged(tiny, images, own_cache, tmp_path, monkeypatch):
    files = dict(staging._worker_side())
    files["framework_compare/batches/preprocess.py"] += b"\nraise RuntimeError('another state of the source')\n"
    monkeypatch.setattr(staging, "_worker_side", files.items)
    frame = compare(tiny, "linear", dataset=images, out=tmp_path / "study", pipeline="native", **QUICK).frame
    assert frame.status[0] == "failed" and "another state of the source" in frame.reason[0]
