"""`verify STUDY`: verdicts on parity for a study that has run, where its source and environment are still the same."""

from __future__ import annotations

import sys

import pytest

from framework_compare import Comparison, compare, registry
from framework_compare.api import verify_study
from framework_compare.cli import root
from framework_compare.errors import StudyError
from framework_compare.parity import cache
from framework_compare.results import verdicts
from framework_compare.store.study_file import Store

CLASS = "\n\nclass Mutated(ReferenceTrainer):\n    name = 'mutated'\n"
SETTINGS = {"epochs": 1, "image_size": 32, "threads": 1, "sampling_hz": 0, "pipeline": "memory"}


@pytest.fixture
def train(register_mutated, references, monkeypatch, images, tmp_path):
    """Runs a study of the float32 reference under the name `mutated`; the study."""
    monkeypatch.setitem(registry.MODELS, "small", registry.Model("small:build"))
    register_mutated(CLASS)

    def run(**settings):
        given = {"dataset": images, "python": {"mutated": sys.executable}, "batch_size": 4, **SETTINGS, **settings}
        return compare("mutated", "small", out=tmp_path / "study", **given)

    return run


def command(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["framework-compare", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        root.main()
    return ended.value.code or 0, capsys.readouterr()


def test_a_study_gets_its_verdicts_without_being_run_again(train, capsys, monkeypatch):
    before = train(batch_size=[2, 4])
    assert before.frame.parity.tolist() == ["unverified"] * 2
    code, shown = command(capsys, monkeypatch, "verify", before.folder, "--dry-run")
    assert code == 0 and "2 checks. Nothing was started." in shown.out and not shown.err
    code, shown = command(capsys, monkeypatch, "verify", before.folder)
    assert (
        code == 0
        and "2 checks, about " in shown.err
        and "0-3, 5" in shown.out
        and shown.err.count("levels 0 to 3 and 5") == 2
    )
    after = Comparison.load(before.folder)
    assert after.frame.parity.tolist() == ["0-3, 5"] * 2 and "parity" not in str(after.table())
    assert after.frame.drop(columns=list(verdicts.COLUMNS)).equals(before.frame.drop(columns=list(verdicts.COLUMNS)))

    code, shown = command(capsys, monkeypatch, "verify", before.folder)
    assert code == 0 and "levels" not in shown.err and "no cell was checked" in shown.err


def test_a_verdict_that_is_known_is_not_sought_again_though_the_cache_is_gone(train):
    study = train()
    assert [one.column() for one in verify_study(study.folder).verdicts] == ["0-3, 5"]
    for path in (cache._path("x").parent).glob("*.json"):
        path.unlink()
    said = []
    assert verify_study(study.folder, say=said.append).verdicts == [] and said == []


def test_another_source_than_the_studys_gets_no_verdict(train, register_mutated):
    study = train()
    register_mutated(CLASS + "    later = True\n")
    verdicts_now, reasons = verify_study(study.folder)
    assert verdicts_now == [] and len(reasons) == 1
    assert reasons[0].startswith("mutated: no verdict: the source that its cells ran has changed since")
    assert Comparison.load(study.folder).frame.parity.tolist() == ["unverified"]


@pytest.mark.parametrize(
    "document, said", [({"version": "0.9"}, "mutated: 0.9 in the study"), ({"sources": None}, "no checksum")]
)
def test_other_packages_and_older_studies_get_no_verdict(train, document, said):
    study = train()
    with Store.open(study.folder, readonly=False) as store:
        store.environment("mutated", {**store.environments()["mutated"], **document})
    assert said in verify_study(study.folder).reasons[0]


def test_cells_that_did_not_work_are_not_checked(train, monkeypatch):
    study = train()
    with Store.open(study.folder, readonly=False) as store:
        from framework_compare.records import Run

        store.record(1, Run("crashed", "SIGSEGV"))
    assert verify_study(study.folder) == ([], ())


def test_an_option_that_the_study_has_decided_is_refused(tmp_path, capsys, monkeypatch):
    code, shown = command(capsys, monkeypatch, "verify", tmp_path, "--models", "vgg16")
    assert code == 2 and "--models cannot be combined with a study, whose cells fix it" in shown.err


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(StudyError, match="contains no study"):
        verify_study(tmp_path)
