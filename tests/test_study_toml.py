"""A study as a file: what is written of a request, and that it makes the same study again; more cells for a study."""

import json
import sys

import pytest
from command_line import run

from framework_compare import Comparison, compare
from framework_compare.api import compare_file
from framework_compare.errors import StudyError, UsageError
from framework_compare.study import study_toml
from framework_compare.study.request import Request

QUICK = dict(batch_size=4, epochs=2, threads=1, loader_workers=1, image_size=32)


@pytest.fixture
def study(tiny, images, own_cache, tmp_path):
    def run(**given):
        return compare(tiny, "linear", **{**QUICK, "dataset": images, "out": tmp_path / "study", "repeats": 1, **given})

    return run


def cells(comparison):
    names = ["framework", "model", "dataset", "batch_size", "epochs", "status"]
    return [*comparison.frame[names].itertuples(index=False)]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"batch_size": [4, 8], "phase_timeout_s": {"import": 60.0}, "timeout_s": 300.0}, "timeout_s = 300.0"),
        ({"rungs": {"batch 8": {"batch_size": 8}}, "one_at_a_time": True}, '[rungs."batch 8"]\nbatch_size = 8'),
    ],
    ids=["limits", "ladder"],
)
def test_the_file_of_a_study_makes_it_again(study, tmp_path, given, line):
    first = study(**given)
    assert line in first.to_toml()
    path = tmp_path / "elsewhere" / "study.toml"
    path.parent.mkdir()
    path.write_text(first.to_toml())
    second = compare_file(path, out=tmp_path / "second")
    assert cells(second) == cells(first) and second.to_toml() == first.to_toml()
    assert second.settings["limits"] == first.settings["limits"]


def test_the_file_has_what_is_not_the_default_and_no_index(study, images):
    lines = study(index={"tiny": "https://me:secret@host/simple"}, verify="off").to_toml().splitlines()
    assert f'    "{images}",' in lines and 'verify = "off"' in lines and "batch_size = 4" in lines
    assert not any(line.startswith(("index", "out", "sampling_hz", "precision")) for line in lines)
    assert "secret" not in "".join(lines)


def test_the_file_names_the_versions_that_competed(tiny, images, own_cache, tmp_path):
    asked = {**QUICK, "dataset": images, "repeats": 1, "verify": "off"}
    first = compare([tiny, f"{tiny}={sys.executable}"], "linear", out=tmp_path / "study", **asked)
    names = first.frame.framework.tolist()
    assert names[0] == tiny and names[1].startswith(f"{tiny}@") and set(first.frame.status) == {"ok"}
    (tmp_path / "study.toml").write_text(first.to_toml())
    second = compare_file(tmp_path / "study.toml", out=tmp_path / "second")
    assert cells(second) == cells(first) and second.to_toml() == first.to_toml()


def test_the_command_line_comes_before_the_file(study, tmp_path):
    study()
    (tmp_path / "study.toml").write_text(run("show", tmp_path / "study", "--toml").stdout)
    run("run", "--from", tmp_path / "study.toml", "--epochs", "3", "--out", tmp_path / "again")
    again = Comparison.load(tmp_path / "again")
    assert again.frame.epochs.tolist() == [3] and again.frame.batch_size.tolist() == [4]


def test_data_that_lie_beside_the_file_need_no_folder(tiny, images, own_cache, tmp_path):
    (tmp_path / "images").symlink_to(images)
    lines = ['frameworks = ["tiny"]', 'models = ["linear"]', 'dataset = ["images"]', "repeats = 1", "epochs = 1"]
    (tmp_path / "study.toml").write_text("\n".join([*lines, "image_size = 32", "threads = 1"]))
    assert compare_file(tmp_path / "study.toml", out=tmp_path / "study").frame.status.tolist() == ["ok"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("frameworks = [", "is not a study to run"),
        ("batchsize = 4", "unknown key of study.toml 'batchsize' .did you mean 'batch_size'..; allowed: .*batch_size"),
        ('out = "x"', "unknown key of study.toml 'out'"),
        ("settings = 1", "unknown key of study.toml 'settings'"),
        ('frameworks = ["caffe"]\nmodels = ["linear"]', "unknown framework 'caffe'"),
    ],
)
def test_a_wrong_file_is_refused(tiny, tmp_path, own_cache, text, said):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        compare_file(tmp_path / "study.toml", out=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_study_takes_more_cells_and_keeps_its_runs(study, tmp_path):
    before = study(repeats=2).runs
    more = study(extend=True, repeats=2, batch_size=[4, 8, 2])
    assert more.frame.batch_size.tolist() == [4, 8, 2] and (more.frame.status == "ok").all()
    assert more.runs.started_at.tolist()[:2] == before.started_at.tolist()
    # Trained at other times, they share no block with those before.
    assert sorted(more.runs.block[:2]) == [1, 2] and sorted(more.runs.block[2:]) == [3, 3, 4, 4]
    with pytest.raises(StudyError, match="has no stored request"):
        more.to_toml()


def test_more_cells_may_have_other_data_but_no_other_images_of_one_name(study, images, tmp_path):
    assert study(extend=True).to_toml(), "one that is not there is made"
    (tmp_path / "others").symlink_to(images)
    more = study(extend=True, dataset=tmp_path / "others")
    assert sorted(more.frame.dataset) == ["colours", "others"] and (more.frame.status == "ok").all()
    with pytest.raises(StudyError, match="images of colours: 13 in the study, 6 now"):
        study(extend=True, limit=6, batch_size=2)
    assert json.dumps(more.settings["datasets"]["colours"])


def test_files_of_models_keep_their_folder_and_names_stay_names(tmp_path, monkeypatch):
    for name in ("net.py", "net.onnx", "alexnet"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    files, others = ["net.py:build", "net.onnx"], ["alexnet", "torchvision:resnet18", "no.py:f"]
    kept = study_toml.stated(Request.of(frameworks="torch", models=files + others))["models"]
    assert kept == [f"{tmp_path}/{name}" for name in files] + others
    (tmp_path / "study.toml").write_text('models = ["net.py:build", "alexnet"]')
    monkeypatch.chdir("/")
    read = study_toml.read(tmp_path / "study.toml", {"frameworks": "torch"})["models"]
    assert read == [f"{tmp_path}/net.py:build", "alexnet"]
