"""What becomes of verdicts: the cache, the command, studies that show or require them."""

import dataclasses
import functools
import re
import sys

import pytest
from command_line import run
from network_mistakes import DECAYED, NO_LOADER, SUMMED
from parity_fixtures import climb

from framework_compare import Comparison, compare, registry
from framework_compare.api import verify_study
from framework_compare.errors import StudyError
from framework_compare.parity import cache
from framework_compare.records import Run
from framework_compare.results.parity import VERDICT_COLUMNS
from framework_compare.store.study_file import Store


def test_a_verdict_is_cached_until_the_adapter_changes(mutate, pipeline_held):
    mutate()
    said = []
    climb(say=said.append)
    assert any("levels" in line for line in said)
    said.clear()
    found = climb(say=said.append)
    assert found.status == "passed" and type(found).from_dict(found.to_dict()) == dataclasses.replace(found)
    assert said == []
    mutate("    name = 'mutated'\n    # another state of the source\n")
    climb(say=said.append)
    assert any("levels" in line for line in said)


def test_a_framework_that_is_not_there_is_no_proof(own_cache, tmp_path):
    python = ("--python", f"torch={tmp_path}/none")
    said = run("verify", "torch", "alexnet", *python, check=1)
    assert "not-installed" in said.stdout and "does not exist" in " ".join(said.stdout.split())
    assert "nothing was verified" in said.stderr
    # a network that cannot be is refused before an environment is sought
    refused = run("verify", "torch", "resnet50,alexnet", "--image-size", "8", *python, check=2).stderr
    assert re.search("alexnet does not accept image_size 8: .*; use a larger one", refused)


VERIFY = ("verify", "mutated", "small", "--python", f"mutated={sys.executable}")


def test_what_no_framework_supports_is_no_proof(mutate):
    mutate()
    assert "nothing was verified" in run(*VERIFY, "--precision", "fp16", check=1).stderr


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_without_a_version_a_verdict_is_kept_by_all_packages(mutate, monkeypatch):
    from framework_compare.environments import externals

    mutate()
    entry = dataclasses.replace(registry.FRAMEWORKS["mutated"], imports="json")  # a module that no distribution has
    monkeypatch.setitem(registry.FRAMEWORKS, "mutated", entry)
    said = []
    climb(say=said.append)
    said.clear()
    climb(say=said.append)
    assert said == []
    given = externals.given
    monkeypatch.setattr(
        externals, "given", lambda *a: dataclasses.replace(found := given(*a), packages={**found.packages, "new": "2"})
    )
    climb(say=said.append)
    assert any("levels" in line for line in said)


def test_a_level_that_could_not_be_asked_is_no_proof_but_of_cells_without_it(mutate, images, tmp_path):
    mutate(NO_LOADER)
    run(*VERIFY, "--image-size", "32", "--threads", "1", check=1)
    assert "0-3, 5" in run(*VERIFY, "--image-size", "32", "--threads", "1", "--pipeline", "shared").stdout
    mutate(NO_LOADER)
    study = train(images, tmp_path, verify="require")
    assert study.frame.status[0] == "failed" and "0-3, 5, not asked: 4" in study.frame.reason[0]


@pytest.mark.usefixtures("pipeline_held")
def test_a_training_that_fails_is_known_to_studies(mutate, images, tmp_path):
    mutate(DECAYED)
    climb(batch_size=4)
    assert train(images, tmp_path).frame.parity[0].startswith("0-2, not 3: as a cell trains")


@pytest.mark.usefixtures("pipeline_held")
@pytest.mark.parametrize("pipeline, known", [("memory", True), ("shared", False)])
def test_what_is_proved_of_the_native_pipelines_cells_holds_for_those_from_memory(mutate, pipeline, known):
    mutate()
    climb()
    said = []
    found = climb(pipeline=pipeline, say=said.append)
    assert found.column() == "0-3, 5"
    assert any("training as cells train" in line for line in said) is not known


def train(images, tmp_path, **settings):
    quick = {"batch_size": 4, "epochs": 1, "image_size": 32, "threads": 1, "sampling_hz": 0, **settings}
    python = {"mutated": sys.executable}
    return compare(["mutated"], ["small"], dataset=images, out=tmp_path / "study", python=python, **quick)


def test_a_cell_without_a_verdict_is_shown_and_marked_unless_parity_is_left_out(mutate, images, tmp_path):
    mutate()
    found = train(images, tmp_path / "off", verify="off")
    assert found.frame["parity"].isna().all() and "parity" not in found.table("time", width=200)
    found = train(images, tmp_path)
    assert found.frame["status"].tolist() == ["ok"] and found.frame["parity"].tolist() == ["unverified"]
    assert "parity unverified" in found.table("time", width=200)


def test_a_proved_cell_has_its_level_and_no_mark(mutate, short_level_4, images, tmp_path):
    mutate()
    climb(batch_size=4)
    found = train(images, tmp_path)
    assert found.frame["parity"].tolist() == ["0-5"] and found.frame["parity_error"].notna().all()
    assert "parity" not in found.table("time", width=200)


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_cell_that_is_required_to_pass_and_does_not_is_not_run(mutate, images, tmp_path):
    mutate(SUMMED)
    row = train(images, tmp_path, verify="require").frame.iloc[0]
    assert row["status"] == "failed" and "not 2" in row["reason"]


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_worker_that_was_killed_is_asked_again(mutate, tmp_path):
    mark = tmp_path / "killed"
    body = f"""
    def gradients(self, batch):
        import os, signal
        if not os.path.exists({str(mark)!r}):
            open({str(mark)!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradients(batch)
"""
    mutate(body)
    assert climb().status == "failed"
    assert climb().status == "passed"


THREE_THREADS = """
    def forward(self, batch, *, training=False):
        return super().forward(batch, training=training) * numpy.float32(1.01 if self.config.threads == 3 else 1)
"""


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_verdict_is_of_one_number_of_threads(mutate):
    mutate(THREE_THREADS)
    assert [climb(threads=threads).status for threads in (1, 3)] == ["passed", "failed"]


@pytest.fixture
def trained(mutate, images, tmp_path):
    """Runs a study of the float32 reference from memory."""
    mutate()
    return functools.partial(train, images, tmp_path, pipeline="memory")


def test_a_study_gets_its_verdicts_without_being_run_again(trained):
    before = trained(batch_size=[2, 4])
    assert before.frame.parity.tolist() == ["unverified"] * 2
    shown = run("verify", before.folder, "--dry-run")
    assert "2 checks. Nothing was started." in shown.stdout and not shown.stderr
    shown = run("verify", before.folder)
    assert "2 checks, about " in shown.stderr and "0-3, 5" in shown.stdout
    assert shown.stderr.count("levels 0 to 3 and 5") == 2
    after = Comparison.load(before.folder)
    assert after.frame.parity.tolist() == ["0-3, 5"] * 2 and "parity" not in str(after.table())
    assert after.frame.drop(columns=list(VERDICT_COLUMNS)).equals(before.frame.drop(columns=list(VERDICT_COLUMNS)))
    again = run("verify", before.folder).stderr
    assert "levels" not in again and "no cell was checked" in again


def test_a_verdict_that_is_known_is_not_sought_again_though_the_cache_is_gone(trained):
    study = trained()
    assert [one.column() for one in verify_study(study.folder).verdicts] == ["0-3, 5"]
    for path in (cache._path("x").parent).glob("*.json"):
        path.unlink()
    said = []
    assert verify_study(study.folder, say=said.append).verdicts == [] and said == []


def test_other_sources_packages_and_older_studies_get_no_verdict(trained, mutate):
    study = trained()
    with Store.open(study.folder) as store:
        kept = store.environments()["mutated"]
    for document, said in (
        ({"version": "0.9"}, "mutated: 0.9 in the study"),
        ({"sources": None}, "no checksum"),
        ({}, ""),
    ):
        with Store.open(study.folder, readonly=False) as store:
            store.environment("mutated", {**kept, **document})
        assert not said or said in verify_study(study.folder).reasons[0]
    mutate("    later = True\n")
    verdicts_now, reasons = verify_study(study.folder)
    assert verdicts_now == [] and len(reasons) == 1
    assert reasons[0].startswith("mutated: no verdict: the source that its cells ran has changed since")
    assert Comparison.load(study.folder).frame.parity.tolist() == ["unverified"]
    with Store.open(study.folder, readonly=False) as store:
        store.record(1, Run("crashed", "SIGSEGV"))
    assert verify_study(study.folder) == ([], ()), "cells that did not work are not checked"


def test_a_folder_without_a_study_and_an_option_that_it_has_decided_are_refused(tmp_path):
    with pytest.raises(StudyError, match="contains no study"):
        verify_study(tmp_path)
    refused = run("verify", tmp_path, "--models", "vgg16", check=2).stderr
    assert "--models cannot be combined with a study, whose cells fix it" in refused
