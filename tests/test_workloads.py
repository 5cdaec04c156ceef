"""Workloads: tasks of arrays planned, run, validated, stored, resumed and shown, with the reference as a framework."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from heard import Heard
from nightly import some_nightly
from parity_fixtures import TRAINER

from framework_compare import compare, ladder, registry
from framework_compare.api import resume
from framework_compare.batches import quality
from framework_compare.batches.arrays import read_split
from framework_compare.datasets import arrays
from framework_compare.errors import DataError, ProtocolError, StudyError, UsageError
from framework_compare.graph import Graph
from framework_compare.launch.transcript import Transcript
from framework_compare.parity.verify import Where, verify
from framework_compare.plan import planning

PYTHON = {"mutated": sys.executable}


@pytest.fixture
def run(register_mutated, tmp_path):
    """Compares the reference on a workload; the study."""

    def compare_it(model="diabetes_ann", source=TRAINER, **settings):
        register_mutated(source)
        quick = {"out": tmp_path / "study", "threads": 1, "python": PYTHON, "sampling_hz": 0, "epochs": 3}
        return compare("mutated", model, **{**quick, **settings})

    return compare_it


def test_a_workload_is_trained_on_generated_data_and_says_so(run):
    told = Heard()
    study = run(watcher=told, epochs=12)
    row = study.frame.iloc[0]
    assert row.status == "ok", row.reason
    assert (row.optimizer, row.loss_function, row.pipeline) == ("adam", "binary_cross_entropy", "shared")
    assert (row.batch_size, row.loader_workers, row.image_size, row.images) == (32, 0, 0, 614)
    assert "diabetes: 614 rows to train on, 154 to validate; generated, a stand-in for the real data" in told.said
    assert any("by majority class: accuracy 0.6818" in sentence for sentence in told.said)
    baseline = study.settings["datasets"]["diabetes"]["baseline_quality"]
    assert study.epochs.validation_accuracy.iloc[-1] > baseline["accuracy"] + 0.05
    quality = str(study.table("quality"))
    assert "(majority class)" in quality and "accuracy" in quality and "auc" in quality
    data, held = arrays.load("diabetes"), read_split(study.folder / "images" / "diabetes.npz", "train")
    assert np.array_equal(held.inputs[0], data.train.inputs["features"]), "the file of a study is the data set"
    assert dataclasses.replace(data, name="diabetes").checksum() == study.settings["datasets"]["diabetes"]["checksum"]
    table = " ".join(str(study.table()).split())
    assert "images" not in table and "614 generated rows" in table
    assert "rows/s" in str(study.table("resources")) and "images" not in str(study.table("resources"))


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_the_unit_of_a_table_renames_no_data_set(run, tmp_path, mode):
    path = tmp_path / "my-images.csv"
    write_rows(path, 60)
    study = run(dataset=path, mode=mode, epochs=1)
    for kind in study.kinds:
        text = study.table(kind, width=200)
        assert "my-images: 48 rows" in text and "image" not in text.replace("my-images", ""), text
    assert "my-images: 48 rows." in study.cost(per_hour=1).to_text(width=200)
    assert "my-images: 48 rows; images/s are rows/s." in study.plot("F2").caption


def test_quality_after_each_epoch_is_of_the_weights_then_and_early_stopping_follows_keras_rule(run):
    """With a rate of zero the network stays as it was made: its quality is known, and its loss never falls."""
    study = run(learning_rate=0.0, epochs=9, patience=2)
    assert list(study.frame.status) == ["ok"] and len(study.epochs) == study.quality.epochs_run.iloc[0] == 3
    epochs = study.epochs
    data = arrays.load("diabetes")
    outputs = initial_outputs(data)
    wanted = quality.evaluate(data.task, outputs, data.validation.target)
    for name, value in wanted.items():
        assert epochs[f"validation_{name}"].to_numpy() == pytest.approx([value] * 3)


def initial_outputs(data):
    from framework_compare.graph import initial_weights, weights_size
    from framework_compare.parity.network.oracle import Oracle

    graph = planning.build_graph("diabetes_ann", planning.DEFAULTS, data.task)
    weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    return Oracle(graph, weights).forward(data.validation.inputs["features"])


def test_a_users_file_is_read_under_its_name_and_no_other_data_of_that_name(run, trained, tmp_path):
    assert not [name for name in trained.epochs if name.startswith("validation")], "of images"
    path = tmp_path / "clinic.csv"
    write_rows(path, 60)
    study = run(dataset=path)
    assert list(study.frame.dataset) == ["clinic"] and list(study.frame.images) == [48]
    assert study.settings["datasets"]["clinic"]["facts"]["generated"] is False
    assert (study.folder / "images" / "clinic.npz").is_file()
    write_rows(path, 70)
    with pytest.raises(StudyError, match="clinic"):
        run(dataset=path)


def write_rows(path, count, broken=""):
    from framework_compare.datasets.diabetes import COLUMNS, OUTCOME, generate

    table, outcome = generate(count, 1)
    lines = [",".join((*COLUMNS, OUTCOME))]
    lines += [",".join([*map(str, row), str(label)]) for row, label in zip(table, outcome)]
    path.write_text("\n".join(lines) + broken + "\n")


def test_a_study_is_resumed_with_its_own_copy_of_the_data(run, tmp_path):
    path = tmp_path / "clinic.csv"
    write_rows(path, 60)
    study = run(dataset=path, source=TRAINER + "\n    def unsupported(self):\n        return 'not today'\n")
    assert list(study.frame.status) == ["unsupported"]
    path.unlink()
    again = resume(study.folder, retry=["unsupported"])
    assert list(again.frame.status) == ["unsupported"]
    data = study.folder / "images" / "clinic.npz"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(StudyError, match="not the file with which the study was planned"):
        resume(study.folder, retry=["unsupported"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"image_size": 32}, "image_size is 32; diabetes_ann does not use it"),
        ({"momentum": 0.5}, "momentum is 0.5; only sgd uses it, but the optimizer is adam: leave it out"),
        ({"rungs": {"moved": {"momentum": 0.5}}}, "momentum is 0.5; only sgd uses it"),
        ({"flip": "none"}, "flip is 'none'"),
        ({"limit": 0}, "limit is 0; allowed: a whole number of at least 1 and at most 1000000000, or None for all"),
        ({"classes": ["a"]}, "diabetes_ann does not use it"),
        ({"patience": 2, "mode": "inference"}, "trains nothing that could stop early"),
        ({"rungs": {}}, "no rung is given"),
        ({"rungs": {"base": {"epochs": 2}}}, "two rungs are called 'base'"),
        ({"rungs": {"more": {"image_size": 64}}}, "setting of rung 'more'"),
        ({"rungs": {"same": {"epochs": 30}}}, "is the same as"),
        ({"rungs": {"other": {"loss_function": "mse"}}}, "loss_function is 'mse'; diabetes is for 'binary_cross_"),
        ({"rungs": {"moved": {"flip": "horizontal"}}}, "flip is 'horizontal'; diabetes_ann does not use it"),
        ({"rungs": {"fed": {"loader_workers": 2}}}, "rung 'fed' is the same as 'base'"),
        ({"rungs": {"answers": {"mode": "inference"}}}, "unknown setting of rung 'answers' 'mode'"),
        ({"rungs": {"two": {"device": "cpu:0,1"}, "early": {"patience": 2}}}, "allowed on several devices: 0"),
        ({"rungs": {"early": {"patience": 2}}, "mode": "inference"}, "trains nothing that could stop early"),
        ({"rungs": {"early": {"patience": 2}}, "models": "diabetes_search"}, "is a search, which allows only 0"),
        ({"rungs": {"rate": {"learning_rate": 0.1}}, "models": "diabetes_search"}, "diabetes_search tries 0.01, 0.001"),
        ({"loss_function": "mse"}, "loss_function is 'mse'; diabetes is for 'binary_cross_entropy'"),
        ({"label_smoothing": 0.1}, "label_smoothing is 0.1; allowed for loss 'binary_cross_entropy': 0"),
        ({"label_smoothing": 0.1, "models": "diabetes_search"}, "label_smoothing is 0.1"),
        ({"optimizer": "lion"}, "lion"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"dataset": "no/such.csv"}, "does not exist"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_workload_has_no_use_for_is_refused(tmp_path, settings, words):
    models = settings.pop("models", "diabetes_ann")
    with pytest.raises((UsageError, DataError), match=words.replace("(", r"\(")):
        compare("torch", models, out=tmp_path / "study", **settings)
    assert not (tmp_path / "study").exists()


def test_a_rung_of_images_is_refused_what_a_study_of_them_is(tiny, images, tmp_path):
    for changes, words in (({"loss": "mse"}, "colours is for"), ({"patience": 2}, "no validation split to watch")):
        with pytest.raises(UsageError, match=words):
            compare(tiny, "linear", dataset=images, out=tmp_path / "s", rungs={"rung": changes})


@pytest.mark.parametrize("name", registry.workloads())
def test_every_workload_is_what_its_data_set_says(name):
    workload = registry.MODELS[name]
    graph = planning.build_graph(name, planning.DEFAULTS)
    assert graph.task == arrays.load(workload.dataset, **workload.options).task and graph.task.unit == workload.unit
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))).task == graph.task
    planning.expand_configs(workload.settings)


# NAdam has the most parts; rules are held to their definitions in test_optimizers.py, and Adam to mistakes below.
@pytest.mark.parametrize("optimizer", some_nightly(["sgd", "adam", "rmsprop", "nadam"], ["sgd", "adam", "rmsprop"]))
def test_the_reference_proves_equal_with_each_optimizer(register_mutated, optimizer):
    register_mutated(TRAINER)
    (found,) = verify("mutated", "diabetes_ann", where=Where(python=PYTHON), optimizer=optimizer, threads=1)
    assert found.proves(), found.levels


MISTAKES = {
    "half of the loss": """
whole = LOSSES["binary_cross_entropy"]
LOSSES["binary_cross_entropy"] = lambda outputs, target: tuple(part / 2 for part in whole(outputs, target))
""",
    "another epsilon": """
class Mutated(Mutated):
    def train_step(self, batch):
        optimizer = Optimizer("adam", self.config.learning_rate)
        return self.oracle.train_step(batch.images, batch.labels, optimizer=optimizer, dropout=self.random)[0]
""",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_loss_or_optimizer_fails(register_mutated, mistake):
    register_mutated(TRAINER + MISTAKES[mistake])
    (found,) = verify("mutated", "diabetes_ann", where=Where(python=PYTHON), optimizer="adam", threads=1)
    assert found.status == "failed"


def transcript():
    told = Transcript(0, 3)
    times = {"start_ns": 1, "end_ns": 9, "data_wait_ns": 0, "step_ns": [1, 1, 1]}
    told.add({"event": "epoch", "t_ns": 10, "number": 1, "images": 4, "steps": 2, "loss": 0.5, **times})
    return told


def test_quality_is_taken_from_events():
    told = transcript()
    told.add({"event": "quality", "t_ns": 11, "epoch": 1, "split": "validation", "values": {"loss": 0.5, "auc": None}})
    assert [(q.name, q.value) for q in told.quality] == [("loss", 0.5), ("auc", None)]
    event = {"event": "quality", "t_ns": 11, "epoch": 1, "split": "validation", "values": {"loss": 0.5}}
    many = {str(n): 1.0 for n in range(21)}
    for wrong in ({"epoch": 2}, *({"values": values} for values in ({"loss": "low"}, {"loss": float("nan")}, many))):
        with pytest.raises(ProtocolError, match="malformed quality"):
            transcript().add({**event, **wrong})


def test_quality_of_prices_is_told_with_their_unit(run):
    told = Heard()
    study = run("lstm_google", limit=8, epochs=1, repeats=1, watcher=told)
    assert "rmse $" in str(study.table("quality"))
    assert any("by last day's price: rmse" in sentence and sentence.endswith(" $") for sentence in told.said)


RUNGS = {"batch 64": {"batch_size": 64}, "nadam": {"optimizer": "nadam"}}


def test_a_ladder_has_a_row_per_rung_with_its_gain(run):
    gains = run(rungs=RUNGS, repeats=2).gains
    assert list(gains.rung) == ["base", "batch 64", "nadam"]
    assert list(gains.batch_size) == [32, 64, 64] and list(gains.optimizer) == ["adam", "adam", "nadam"]
    assert gains.gain.isna().tolist() == [True, False, False]
    first, second = gains.gain.iloc[1:]
    assert gains.gain_in_all.iloc[2] == pytest.approx(first * second)
    assert (gains.gain_low[1:] < gains.gain[1:]).all() and (gains.gain[1:] < gains.gain_high[1:]).all()


def test_a_rung_alone_is_compared_with_the_base(run):
    study = run(rungs=RUNGS, one_at_a_time=True, repeats=2)
    gains, table = study.gains, str(study.table("gains"))
    assert list(gains.before) == ["", "base", "base"] and list(gains.batch_size) == [32, 64, 32]
    assert gains.gain[1:].tolist() == pytest.approx(gains.gain_in_all[1:].tolist())
    assert (gains.gain_low[1:] < gains.gain[1:]).all() and (gains.gain[1:] < gains.gain_high[1:]).all()
    assert "over base" in table and "in all" not in table


def test_rungs_on_the_command_line_are_read_and_of_several_models_refused(tmp_path):
    from framework_compare.plan.ladders import rungs_of_text

    (rung,) = rungs_of_text(["big: batch_size=64, optimizer=nadam"])
    assert rung == ("big", {"batch_size": 64, "optimizer": "nadam"})
    with pytest.raises(UsageError, match="--rung is 'big'; allowed: 'NAME: SETTING=VALUE"):
        rungs_of_text(["big"])
    (rung,) = rungs_of_text(["two: device=cuda:0,1, batch_size=64"])
    assert rung == ("two", {"device": "cuda:0,1", "batch_size": 64})
    with pytest.raises(UsageError, match="it names batch_size twice"):
        rungs_of_text(["big: batch_size=64, batch_size=65"])
    with pytest.raises(UsageError, match="allowed: 'NAME: SETTING=VALUE"):
        rungs_of_text([": batch_size=64"])
    with pytest.raises(UsageError, match="a ladder starts from one cell per framework"):
        ladder("torch", ["diabetes_ann", "lstm_ibm"], {"more": {"epochs": 2}}, out=tmp_path / "study")


def test_inference_has_latency_and_no_loss_and_a_framework_without_it_says_so(run):
    infers = TRAINER + "\n    def infer(self, batch):\n        return self.forward(batch)\n"
    study = run(source=infers, mode="inference", batch_size=[8, 32], repeats=1, epochs=2)
    assert list(study.frame.status) == ["ok", "ok"], study.frame.reason.tolist()
    assert study.epochs.loss.isna().all() and (study.epochs.step_s_median > 0).all()
    assert not [name for name in study.epochs if name.startswith("validation")]
    assert "batch 8" in str(study.table("inference"))
    assert str(study.table("quality")).strip() == "No model in this study has a validation split."
    study = run(mode="inference", repeats=1, out=study.folder.parent / "without")
    assert list(study.frame.status) == ["unsupported"]
    assert "has no inference; allowed: mode 'train'" in study.frame.reason.iloc[0]


def test_images_are_scaled_and_limited_as_asked():
    plan = planning.plan("torch", "guava_cnn", "cpu", None, {"image_size": 32}, limit=40)
    (data,) = plan.datasets.values()
    assert data.task.inputs[0].shape == (3, 32, 32) and len(data.train) == 40
    assert set(data.train.target) == set(range(8))  # no class is lost
