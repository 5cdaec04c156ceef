"""A study gone on with: what is run, what is kept, what is refused."""

import contextlib
import json
import shutil

import pytest
from stored_study import selected

from framework_compare import Comparison, compare, largest_batch, resume
from framework_compare.cli import studies
from framework_compare.errors import DataError, StudyError, UsageError
from framework_compare.parity import in_study
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.results.columns import row_of
from framework_compare.results.parity import verdict_key
from framework_compare.store.study_file import Store
from framework_compare.study.resumption import check_retry, check_same_machine

QUICK = dict(batch_size=4, epochs=2, threads=1, loader_workers=1, image_size=32)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Studies that were run with QUICK, by their models."""
    return {}, tmp_path_factory.mktemp("ran")


@pytest.fixture
def study(faulty, images, own_cache, tmp_path, ran):
    """Compares models of the test framework; the first time in a test it may be a copy of what another test ran."""
    known, place = ran

    def run(*models, **given):
        settings = {**QUICK, "dataset": images, "out": tmp_path / "study", **given}
        if given or settings["out"].exists():
            return compare(faulty, list(models), **settings)
        if models not in known:
            done = compare(faulty, list(models), **settings)
            known[models] = shutil.copytree(done.folder, place / "-".join(models))
            return done
        return Comparison.load(shutil.copytree(known[models], settings["out"]))

    return run


def runs(folder):
    return selected(folder, "SELECT run_id, status, started_at, wall_s FROM run ORDER BY run_id")


def forget(folder, run_id, status="interrupted"):
    with Store.open(folder, readonly=False) as store:
        store.record(run_id, Run(status))


@pytest.mark.parametrize("how", ["compare", "resume"])
def test_only_what_was_interrupted_is_run(how, study):
    folder = study("fine", "raise", "slow").folder
    before = runs(folder)
    for number in (None, 3):
        if number:
            forget(folder, number)
        study("fine", "raise", "slow") if how == "compare" else resume(folder)
        after = runs(folder)
        assert after[:2] == before[:2] and (number or after == before), "a finished study is left as it is"
    assert after[2][1] == "ok" and after[2][3] is not None


def test_retry_picks_statuses(study):
    folder = study("fine", "raise", "segfault").folder
    for retry in (["failed"], "failed"):
        before = runs(folder)
        resume(folder, retry=retry)
        after = runs(folder)
        assert (after[0], after[2]) == (before[0], before[2])
        assert after[1][1] == "failed" and after[1][3] != before[1][3]
    with pytest.raises(UsageError, match=r"unknown status 'fail' \(did you mean 'failed'\?\); allowed: ok, "):
        resume(folder, retry="fail")
    for status in ("planned", "running", "broken", "interrupted"):  # which are no endings
        with pytest.raises(UsageError, match="allowed: ok, unsupported, .*failed"):
            check_retry([status])


def test_limits_given_to_a_resume_hold_for_what_is_run_then(study):
    folder = study("fine", "hang-silent", timeout_s=2).folder
    resume(folder, retry=["timed-out"], silence_timeout_s=1)
    found = selected(folder, "SELECT limits, reason FROM run ORDER BY run_id")
    assert found[0][0] == '{"timeout_s": 2}'
    assert found[1][0] == '{"timeout_s": 2, "silence_timeout_s": 1}' and "silent for 1 s" in found[1][1]


CHANGES = (
    (dict(batch_size=8), "batch_size: 4 in the study, 8 now"),
    (dict(epochs=3), "epochs: 2 in the study, 3 now"),
    (dict(batch_size=[4, 8]), "batch_size: 4 in the study, 4 and 8 now"),
    (dict(sampling_hz=0), "sampling_hz: 10.0 in the study, 0 now"),
    (dict(profile=True), "profile: False in the study, True now"),
    (dict(verify="off"), "verify: warn in the study, off now"),
    (dict(repeats=2), "repeats: 1 in the study, 2 now"),
    (dict(limit=6), "images of colours: 13 in the study, 6 now"),
    (dict(classes=["smoke", "fire", "no_fire"]), "images of colours: 13 in the study, 13 now, but not the same"),
)


def test_changed_settings_and_other_models_are_refused_with_the_difference(study):
    folder = study("fine").folder
    before = runs(folder)
    for change, said in CHANGES:
        with pytest.raises(StudyError, match=said) as error:
            study("fine", **change)
        assert "\n" not in str(error.value) and runs(folder) == before
    with pytest.raises(StudyError, match="model: fine in the study, fine and slow now"):
        study("fine", "slow")


@pytest.mark.parametrize(
    "change", [dict(memory_limit="3GiB"), dict(timeout_s=90), dict(index={"torch": "none"})], ids=str
)
def test_what_a_request_may_change_is_as_it_says_now(change, study):
    folder = study("fine").folder
    forget(folder, 1)
    assert list(study("fine", **change).frame.status) == ["ok"]
    limits = json.loads(selected(folder, "SELECT limits FROM run")[0][0])
    assert limits.pop("timeout_s", None) == change.get("timeout_s")
    assert (limits.get("memory_bytes") == 3 << 30) == ("memory_limit" in change)


def refusing(monkeypatch):
    """Notes what parity is asked for of a study's cells, and refuses those where it is required."""
    modes = []

    def record(folder, cells, ready, mode, say, task_of):
        modes.append(mode)
        refused = cells if mode == "require" else ()
        return {verdict_key(row_of(cell)): "parity is required" for cell in refused}

    monkeypatch.setattr(in_study, "record", record)
    return modes


def test_a_resume_requires_the_parity_that_the_study_required_unless_told_otherwise(study, monkeypatch):
    modes = refusing(monkeypatch)
    folder = study("fine", verify="require").folder
    resume(folder, retry=["failed"])
    assert modes == ["require", "require"]
    assert list(resume(folder, retry=["failed"], verify="warn").frame.status) == ["ok"]
    for call in (lambda: resume(folder, verify="x"), lambda: studies.resume(study=folder, strict=False, verify="x")):
        with pytest.raises(UsageError, match="unknown verify 'x'; allowed: require, warn, off"):
            call()


def test_a_sweep_is_resumed_by_its_folder(faulty, images, own_cache, tmp_path):
    settings = {**QUICK, "dataset": images, "out": tmp_path / "study"}
    del settings["batch_size"]
    largest_batch(faulty, "fine", batch_sizes=[2, 4], **settings)
    with Store.open(tmp_path / "study", readonly=False) as store:
        store._connection.execute("PRAGMA foreign_keys = OFF")
        store._connection.execute("DELETE FROM run WHERE cell_id = 2")
        store._connection.execute("DELETE FROM cell WHERE cell_id = 2")
    assert list(resume(tmp_path / "study").frame.batch_size) == [2, 4]
    with pytest.raises(StudyError, match="memory_limit: none in the study, .* now; resume it without naming limits"):
        resume(tmp_path / "study", memory_limit="4GiB")


def test_another_machine_is_refused(study, monkeypatch):
    folder = study("fine").folder
    monkeypatch.setattr("framework_compare.samplers.host.cpu_model", lambda: "Another CPU")
    with pytest.raises(StudyError, match="cpu: .* in the study, Another CPU now; .* from one machine"):
        resume(folder)


H200, A100 = ({"name": name, "memory_bytes": 1 << 37, "compute_capability": "9.0"} for name in ("H200", "A100"))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"memory_bytes": 16 << 30}, {"memory_bytes": 8 << 30}, "memory_bytes: 17179869184 in the study, 8589934592"),
        ({"memory_limit_bytes": None}, {"memory_limit_bytes": 1 << 30}, "memory_limit_bytes: none in the study"),
        ({"quota_cores": 2.5}, {"quota_cores": 2.0}, "quota_cores: 2.5 in the study, 2.0 now"),
        (
            {"gpus": {"devices": [H200]}},
            {"gpus": {"devices": [A100, A100]}},
            "gpus: H200 in the study, A100 and A100 now",
        ),
        ({"gpus": {"devices": [H200]}}, {"gpus": None}, "gpus: H200 in the study, none now"),
        ({"gpus": {"devices": [H200], "driver": "1"}}, {"gpus": {"devices": [H200], "driver": "2"}}, ""),
        ({"memory_bytes": 16 << 30}, {"memory_bytes": (16 << 30) - (100 << 20)}, ""),  # of another kernel
        ({"cpu": "AMD EPYC"}, {"cpu": "AMD EPYC (AVX-512)"}, ""),  # of an earlier version
        ({"cpu": "AMD EPYC (AVX2)"}, {"cpu": "AMD EPYC (AVX-512)"}, r"cpu: AMD EPYC \(AVX2\) in the study"),
        ({"cpu": "AMD EPYC"}, {"cpu": "Intel Xeon (AVX-512)"}, "cpu: AMD EPYC in the study, Intel Xeon"),
        ({}, {"memory_bytes": 1}, ""),  # not known
    ],
)
def test_another_memory_limit_or_gpu_is_another_machine(before, now, said, tmp_path):
    for device in ("cuda", "cpu"):
        cells = [Cell("torch", "alexnet", "small", device, TrainConfig(device=device))]
        refused = said and (device == "cuda" or "gpus" not in said)  # a study on the CPU has no use for a GPU
        with Store.create(tmp_path / device, settings={}, machine=before, cells=cells, repeats=1) as store:
            with pytest.raises(StudyError, match=said) if refused else contextlib.nullcontext():
                check_same_machine(store, now)
            check_same_machine(store, before)


def test_another_version_of_a_framework_is_refused_where_it_has_finished_runs(study, monkeypatch):
    folder = study("fine", "slow").folder
    forget(folder, 2)
    with Store.open(folder, readonly=False) as store:
        document = store.environments()["faulty"]
        packages = {**document["packages"], "pip": "0", "numpy": "1.0"}
        store.environment("faulty", {**document, "packages": packages})
    with pytest.raises(
        StudyError, match="resumed: numpy: 1.0 in the study, [^;]* now; restore the environment of faulty"
    ):
        resume(folder)


def test_images_that_were_changed_or_are_gone_are_named(study, images, tmp_path):
    shutil.copytree(images, tmp_path / "copy")
    folder = study("fine", dataset=tmp_path / "copy").folder
    forget(folder, 1)
    shutil.copy(tmp_path / "copy" / "fire" / "0.jpg", tmp_path / "copy" / "smoke" / "1.jpg")
    with pytest.raises(StudyError, match="cannot be resumed: .*began: '.*/smoke/1.jpg'; restore them, or"):
        resume(folder)
    shutil.copy(images / "smoke" / "1.jpg", tmp_path / "copy" / "smoke" / "1.jpg")
    assert set(resume(folder).frame.status) == {"ok"}
    forget(folder, 1)
    shutil.rmtree(tmp_path / "copy")
    with pytest.raises(DataError, match="images of data set 'copy' can no longer be read"):
        resume(folder)


def test_a_list_of_images_that_is_gone_or_not_the_studys_is_told_and_written_again(study):
    folder = study("fine").folder
    forget(folder, 1)
    path = folder / "images" / "colours.json"
    for content in ("{}", "[]", '{"paths": []}', '{"pa', None):
        path.unlink() if content is None else path.write_text(content)
        said = "cannot be" if content is None else "cannot be used: .*; repeat the"
        with pytest.raises(StudyError, match=f"own list of the images of 'colours', .*colours.json, {said}"):
            resume(folder)
    assert set(study("fine").frame.status) == {"ok"}


def test_checksums_of_images_that_cannot_be_read_are_told_and_kept(study):
    folder = study("fine").folder
    forget(folder, 1)
    path = folder / "images" / "colours.checksums"
    for content in ("[]", '{"/a.jpg": "12', ""):
        path.write_text(content)
        with pytest.raises(StudyError, match="colours.checksums, the checksums .* cannot be read: .*; delete it"):
            resume(folder)
        assert path.read_text() == content
    path.unlink()
    assert set(resume(folder).frame.status) == {"ok"}


def test_a_study_that_cannot_be_written_says_how_to_run_the_rest_of_it(study, monkeypatch):
    folder = study("fine").folder

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(StudyError, match="Read-only file system; copy the folder to a writable disk"):
        resume(folder)


def test_a_run_that_stops_the_study_stays_to_be_run(study, monkeypatch):
    """A full disk while a run is recorded: told, nothing else lost."""
    original = Store.record_all

    def full(self, runs):
        if 2 in runs:
            raise StudyError("study.sqlite cannot be used: database or disk is full")
        original(self, runs)

    monkeypatch.setattr(Store, "record_all", full)
    with pytest.raises(StudyError, match="disk is full"):
        study("fine", "slow", "raise")
    monkeypatch.setattr(Store, "record_all", original)
    result = study("fine", "slow", "raise")
    assert list(result.frame.status) == ["ok", "ok", "failed"]
