"""Models of the user's on arrays of the user's: the same function as in torch, and the same in five frameworks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework_compare import api, compare
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.tracing import Tracer
from framework_compare.parity.training.curves import train_workload_curves
from framework_compare.parity.verify import verify
from framework_compare.study.request import Request

NETS = Path(__file__).parents[1] / "plugins" / "array_nets.py"
FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
RNG = np.random.default_rng(1)
LABELS = np.arange(120) % 3
DATA: dict[str, dict[str, np.ndarray]] = {
    "Series": {"x": RNG.standard_normal((120, 10, 2)), "y": RNG.standard_normal(120)},
    "Two": {
        "row": RNG.standard_normal((120, 5)),
        "image": RNG.integers(0, 256, (120, 8, 8)).astype(np.uint8),
        "label": LABELS,
    },
    "yes_or_no": {"x": RNG.standard_normal((120, 5)), "y": LABELS % 2},
    **{name: {"x": RNG.standard_normal((120, 10, 2)), "y": RNG.standard_normal(120)} for name in ("Queries", "Writes")},
    "Bags": {"tokens": RNG.integers(0, 50, (120, 4)), "counts": RNG.random((120, 5)), "y": LABELS},
    "Tied": {"tokens": RNG.integers(0, 50, (120, 8)), "y": RNG.integers(0, 50, (120, 8))},
    "Windows": {"x": RNG.standard_normal((120, 10, 2)), "y": np.arange(120) % 4},
    "columns": {"a": RNG.standard_normal(120), "b": RNG.standard_normal(120), "y": LABELS},
    "Padded": {"tokens": RNG.integers(1, 50, (120, 9)) * (np.arange(9) < RNG.integers(3, 9, (120, 1))), "y": LABELS},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "Series": {"normalize": "standard"},
    "Two": {"model_output": "label"},
    **{name: {} for name in ("yes_or_no", "Queries", "Writes", "Bags", "Padded", "Tied", "Windows")},
    "loss": {"loss_function": f"{NETS}:weighted"},
    **{name: {"loss_function": f"{NETS}:{name}"} for name in ("by_label", "twice", "ready", "shares", "away")},
}
# The model that each loss is for.
LOSSES = {**dict.fromkeys(("loss", "away", "ready", "shares"), "Series"), "by_label": "Windows", "twice": "Windows"}


def imported(name: str, **options: Any) -> ImportedModel:
    net = LOSSES.get(name, name)
    request = Request.of([], f"{NETS}:{net}", dataset=DATA[net], **{**OPTIONS[name], **options})
    _, _, (model,) = api.with_own(request, Tracer())
    return model


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", OPTIONS)
def test_the_import_is_the_same_function(name: str) -> None:
    model = imported(name)
    task = model().task
    assert model.level is not None and model.level.passed and model.level.error <= TOLERANCE
    losses = {**dict.fromkeys(("Series", "Queries", "Writes"), "mse"), **dict.fromkeys(LOSSES, "mean_output")}
    losses.update(yes_or_no="binary_cross_entropy", Tied="token_cross_entropy")
    assert task.loss == losses.get(name, "cross_entropy")
    if name == "Two":  # in forward's order
        assert [field.name for field in task.inputs] == ["image", "row"] and task.outputs == 3
    if name == "Tied":  # the head, to the embedding
        layers = {node.arrays: node.op for node in model().nodes if node.op in ("Embedding", "Unembedding")}
        assert list(layers.values()) == ["Unembedding"]


REFUSED = {
    "inputs": ("yes_or_no", "Two", {}, r"forward takes 1 input \(input\); the data have 2 inputs"),
    "fewer": ("Two", "yes_or_no", {}, r"forward takes 2 inputs \(image, row\); the data have 1 input \(x\)"),
    "columns": (
        "Two",
        "columns",
        {},
        r"have 1 input \(features\); a column is an input of its own if it is named: inputs image=",
    ),
    "output": ("Two", "Two", {"model_output": "logits"}, "it has no output 'logits'; allowed: hidden, label"),
    "shape": ("Series", "Two", {"inputs": ["row"]}, r"forward fails on a batch of rows \(2, 5\)"),
    "widths": ("yes_or_no", "Series", {"inputs": "x", "target": "y"}, "forward fails"),
    "one loss": ("Series", "Series", {"loss_function": f"{NETS}:of_the_batch"}, "allowed: one loss for each sample"),
    "no loss": ("Series", "Series", {"loss_function": f"{NETS}:other"}, "has no 'other'"),
    "no file": ("Series", "Series", {"loss_function": "missing.py:loss"}, "is not a Python file"),
}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_one_line(kind: str) -> None:
    net, data, options, words = REFUSED[kind]
    request = Request.of([], f"{NETS}:{net}", dataset=DATA[data], **options)
    with pytest.raises(UsageError, match=words) as raised:
        api.with_own(request, Tracer())
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("together")
def test_two_frameworks_learn_the_same_from_several_inputs() -> None:
    request = Request.of([], f"{NETS}:Two", dataset=DATA["Two"], **OPTIONS["Two"])
    own, _, (model,) = api.with_own(request, Tracer())
    found = train_workload_curves(["torch", "jax"], model.name, own, steps=6, threads=1, batch_size=16)
    assert found.losses.keys() == {"torch", "jax"} and found.hold, (found.apart(), found.yardstick)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPTIONS)
def test_five_frameworks_compute_the_same(name: str) -> None:
    model = imported(name)
    for found in verify(FRAMEWORKS, model.name, threads=1):
        assert found.proves(), (found.framework, found.reason, found.levels)


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", ["away", "shares"])
def test_mxnet_adds_an_array_without_a_gradient_and_takes_an_exact_logarithm_of_a_softmax(name: str) -> None:
    (found,) = verify("mxnet", imported(name).name, threads=1)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.usefixtures("together")
def test_singa_says_that_it_has_one_input() -> None:
    (found,) = verify("singa", imported("Two").name, threads=1)
    assert found.status == "unsupported" and "declares no" in found.reason


@pytest.mark.usefixtures("together")
def test_several_inputs_are_trained_and_resumed_without_the_users_files(tmp_path: Path) -> None:
    study = compare(
        *("torch", f"{NETS}:Two"),
        **{"dataset": DATA["Two"], "out": tmp_path / "s", "epochs": 1, "repeats": 1, "limit": 40, "threads": 1},
        **OPTIONS["Two"],
    )
    assert list(study.frame.status) == ["ok"] * 2, list(study.frame.reason)
    assert api.resume(tmp_path / "s").frame.shape[0] == 2
