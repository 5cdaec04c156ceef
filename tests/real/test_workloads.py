"""Workloads of arrays in the real frameworks: trained through compare(), and proved equal step by step."""

import dataclasses
import itertools

import numpy as np
import pytest
from nightly import some_nightly

from framework_compare import compare, registry
from framework_compare.parity.verify import verify

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
OPTIMIZERS = ["sgd", "adam", "rmsprop", "nadam"]


@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, ["tensorflow", "mxnet", "paddle"]))
def test_rows_are_learnt_better_than_the_majority(framework, tmp_path):
    study = compare(framework, "diabetes_ann", epochs=15, threads=1, out=tmp_path / "study")
    row = study.frame.iloc[0]
    assert row.status == "ok", row.reason
    last, baseline = study.epochs.iloc[-1], study.settings["datasets"]["diabetes"]["baseline_quality"]
    assert last.validation_accuracy > baseline["accuracy"] + 0.1
    assert last.validation_auc > 0.9
    assert np.isfinite(study.epochs.validation_loss).all()
    assert study.epochs.validation_loss.iloc[-1] < study.epochs.validation_loss.iloc[0]


# The model is proved to be the oracle's in each framework, and that each trains through a study is shown with rows.
@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, [name for name in FRAMEWORKS if name != "mxnet"]))
def test_series_are_learnt(framework, tmp_path):
    study = compare(framework, "lstm_google", epochs=3, threads=1, out=tmp_path / "study")
    assert study.frame.iloc[0].status == "ok", study.frame.iloc[0].reason
    assert study.epochs.loss.iloc[-1] < study.epochs.loss.iloc[0] / 3
    assert study.epochs.validation_rmse.iloc[-1] < study.epochs.validation_rmse.iloc[0]


PAIRS = list(itertools.product(FRAMEWORKS, OPTIMIZERS))
# NAdam is the one that frameworks disagree most about; Adam takes the steps of the recurrent network below.
NIGHTLY = [pair for pair in PAIRS if pair not in (("mxnet", "nadam"), ("tensorflow", "nadam"))]


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("pair", some_nightly(PAIRS, NIGHTLY), ids="-".join)
def test_optimizer_takes_the_steps_of_its_definition(pair):
    framework, optimizer = pair
    (found,) = verify(framework, "diabetes_ann", optimizer=optimizer, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


NATIVE = list(itertools.product(FRAMEWORKS, OPTIMIZERS[1:]))
NATIVE_DAILY = [("torch", "adam"), ("paddle", "rmsprop")]


@pytest.mark.parametrize("pair", some_nightly(NATIVE, {*NATIVE} - {*NATIVE_DAILY}), ids="-".join)
def test_native_optimizer_is_the_frameworks_own_and_not_the_definition(pair):
    """Asked with an epsilon as large as the gradients, which it must not know; all below its steps holds."""
    framework, optimizer = pair
    (found,) = verify(framework, "diabetes_ann", optimizer=optimizer, optimizer_variant="native", threads=1, fresh=True)
    assert found.holds() == "0-2" and found.column().startswith("0-2, not 3"), (found.reason, found.levels)
    assert "own defaults" in found.settings["optimizer"]


NETWORKS = list(itertools.product(FRAMEWORKS, ["lstm_google", "gru_ibm"]))
BY_DAY = [("torch", "lstm_google"), ("paddle", "lstm_google")]


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("pair", some_nightly(NETWORKS, {*NETWORKS} - {*BY_DAY}), ids="-".join)
def test_recurrent_network_is_the_oracles(pair):
    framework, model = pair
    (found,) = verify(framework, model, optimizer=registry.MODELS[model].settings["optimizer"], threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


EXECUTIONS = {"tensorflow": ("eager", "compiled", "fast-math"), "mxnet": ("eager",), "paddle": ("graph",)}
EXECUTIONS["jax"] = ("eager", "fast-math")
PRESETS = [name for name in registry.workloads() if name not in ("lstm_google", "gru_ibm", "diabetes_ann")]
ANEW = ("lstm_google", "quanv_trained")  # whose ops are written anew for each framework
MORE = [(framework, model, one) for framework, of_it in EXECUTIONS.items() for one in of_it for model in ANEW]
MORE += [(framework, model, "default") for framework in FRAMEWORKS for model in PRESETS]


@pytest.mark.nightly
@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("case", MORE, ids="-".join)
def test_every_workload_and_two_in_other_executions_are_the_oracles(case):
    framework, model, execution = case
    optimizer = registry.MODELS[model].settings.get("optimizer", "sgd")
    (found,) = verify(framework, model, execution=execution, optimizer=optimizer, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


GRID = {"learning_rate": (0.01, 0.001), "layers": (1, 3), "units": (16,), "dropout": (0.2,)}


@pytest.mark.parametrize("framework", some_nightly(FRAMEWORKS, [name for name in FRAMEWORKS if name != "torch"]))
def test_a_grid_search_trains_its_candidates_in_one_process(framework, tmp_path, monkeypatch):
    entry = dataclasses.replace(registry.MODELS["diabetes_search"], search=GRID)
    monkeypatch.setitem(registry.MODELS, "diabetes_search", entry)
    study = compare(framework, "diabetes_search", epochs=6, threads=1, repeats=1, out=tmp_path / "study")
    assert study.frame.iloc[0].status == "ok", study.frame.iloc[0].reason
    assert len(study.candidates) == 4 and np.isfinite(study.candidates).all(axis=None)
    (row,) = study.searches.itertuples()
    assert row.best_value > study.settings["datasets"]["diabetes-folds"]["baseline_quality"]["accuracy"] + 0.1
