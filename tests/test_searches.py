"""Grid searches: the whole is one epoch; each candidate is trained and judged as it would be by itself."""

import dataclasses
import sys

import numpy as np
import pytest
from bounds import rounding
from parity_fixtures import TRAINER

from framework_compare import compare, registry
from framework_compare.batches import quality
from framework_compare.batches.arrays import ArrayPipeline
from framework_compare.datasets import arrays
from framework_compare.errors import UsageError
from framework_compare.graph import Optimizer, initial_weights, weights_size
from framework_compare.parity.network.oracle import Oracle
from framework_compare.plan import planning, searches
from framework_compare.worker.search import Fold, best_of, mean_of, read_folds

GRID = {"learning_rate": (0.05, 0.001), "layers": (1, 2), "units": (16,), "dropout": (0.0,)}


@pytest.fixture
def small_grid(monkeypatch):
    entry = dataclasses.replace(registry.MODELS["diabetes_search"], search=GRID)
    monkeypatch.setitem(registry.MODELS, "diabetes_search", entry)


@pytest.fixture
def search(register_mutated, tmp_path):
    """Searches in the float64 reference; the study."""

    def run(source=TRAINER, **settings):
        register_mutated(source)
        settings = {"python": {"mutated": sys.executable}, "threads": 1, "sampling_hz": 0, "repeats": 1, **settings}
        return compare("mutated", "diabetes_search", out=tmp_path / "study", **settings)

    return run


def folds_of_the_file(tmp_path):
    arrays.load("diabetes-folds").write(tmp_path / "folds")
    return read_folds(str(tmp_path / "folds"))


def trained_alone(fold: Fold, rate: float, layers: int, epochs: int):
    """Accuracy of one candidate on one fold, by the reference itself."""
    model = registry.load(registry.MODELS["diabetes_search"].build)
    graph = model(fold.train.task, layers=layers, units=16, dropout=0.0)
    oracle = Oracle(graph, initial_weights(graph, 0, np.empty(weights_size(graph), np.float32)), np.float32)
    optimizer = Optimizer("adam", rate, {"eps": planning.DEFAULTS.epsilon})
    pipeline = ArrayPipeline(fold.train, batch_size=32, seed=0)
    for number in range(1, epochs + 1):
        for inputs, target in pipeline.epoch(number):
            oracle.train_step(inputs, target, optimizer=optimizer)
    held = fold.validation
    return quality.evaluate(held.task, oracle.forward(held.inputs[0]), held.target)["accuracy"]


def test_candidates_reach_what_each_reaches_alone_and_the_whole_search_is_one_epoch(search, small_grid, tmp_path):
    study = search(epochs=1)
    assert list(study.frame.status) == ["ok"], study.frame.reason.iloc[0]
    found = study.candidates.set_index("candidate")
    assert list(found.index) == [1, 2, 3, 4]
    folds = folds_of_the_file(tmp_path)
    for number, (rate, layers) in enumerate([(0.05, 1), (0.05, 2), (0.001, 1), (0.001, 2)], 1):
        alone = np.mean([trained_alone(fold, rate, layers, epochs=1) for fold in folds])
        assert found.loc[number, "accuracy"] == pytest.approx(alone)
    (epoch,) = study.epochs.itertuples()
    assert epoch.images == 4 * 3 * 512 and epoch.steps == 4 * 3 * 16
    seconds = study.candidates["search_s"]
    assert 0 <= epoch.epoch_s - seconds.sum() < seconds.min(), "nothing of the size of a candidate is missing"
    (row,) = study.searches.itertuples()
    best = study.candidates.loc[study.candidates["accuracy"].idxmax()]
    assert epoch.loss == pytest.approx(best["training_loss"]) and epoch.loss != epoch.validation_loss
    assert row.candidates == 4 and row.best_metric == "accuracy"
    assert row.best_value == pytest.approx(study.candidates["accuracy"].max()) == epoch.validation_accuracy
    assert 0 < row.candidates_build_s + row.candidates_validation_s + row.candidates_first_step_s < epoch.epoch_s
    text = " ".join(str(study.table("search")).split())
    assert "learning rate 0.05" in text and "whole grid search" in text
    assert not [name for name in study.epochs if name.startswith("candidate")]


def test_each_fold_is_standardised_by_its_own_training_rows(tmp_path):
    folds = folds_of_the_file(tmp_path)
    assert [len(fold.validation) for fold in folds] == [256, 256, 256]
    for fold in folds:
        rows = fold.train.inputs[0].astype(float)
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=rounding(1, np.float32))
        np.testing.assert_allclose(rows.std(axis=0), 1, rtol=rounding(1, np.float32))
    held = np.concatenate([fold.validation.inputs[0] for fold in folds])
    assert len(np.unique(held[:, 1].round(4))) > 700  # no row is held out twice


def test_the_grid_is_the_documented_one_and_a_study_of_no_search_has_no_such_table(trained):
    assert trained.candidates.empty and "search" not in trained.kinds
    assert "This study has no grid search" in str(trained.table("search"))
    found = searches.candidates("diabetes_search")
    assert len(found) == 36 and found[0].label == "learning rate 0.01, layers 1, units 16, dropout 0"
    assert {one.settings["learning_rate"] for one in found[:18]} == {0.01}  # settings are outermost
    # one that diverges is not the best
    assert best_of([{"accuracy": None}, {"accuracy": 0.5}, {"accuracy": 0.5}], "accuracy") == 1
    assert best_of([{"loss": 2.0}, {"loss": 1.0}, {"loss": None}], "loss") == 1
    assert mean_of([{"loss": 1.0}, {"loss": 3.0}]) == {"loss": 2.0}
    assert mean_of([{"loss": 1.0}, {"loss": None}]) == {"loss": None}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": 0.1}, "learning_rate is 0.1; diabetes_search tries 0.01, 0.001"),
        ({"limit": 100}, "limit is 100; diabetes_search trains on folds of all rows"),
        ({"patience": 3}, "patience is 3; diabetes_search is a search"),
        ({"mode": "inference"}, "mode is 'inference'; diabetes_search is a search"),
        ({"pipeline": "memory"}, "pipeline is 'memory'; diabetes_search is a search"),
        ({"device": "cpu:0,1"}, "device is 'cpu:0,1'; diabetes_search is a search, which runs on one device"),
        ({"budget": "5min", "repeats": None}, "is a search, and a budget cannot measure a part of it"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_search_has_no_use_for_is_refused(search, settings, words):
    with pytest.raises(UsageError, match=words.replace("'", ".")):
        search(**settings)
