"""Recurrent layers from any state and of any kind, targets of any shape: the same function as in torch, or one clear line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework_compare import api
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.tracing import Tracer
from framework_compare.parity.verify import verify
from framework_compare.study.request import Request

NETS = Path(__file__).parents[1] / "plugins" / "recurrent_nets.py"
RNG = np.random.default_rng(1)
SERIES = {"x": RNG.standard_normal((60, 20, 3)), "y": RNG.standard_normal(60)}
PIXELS = {"image": RNG.standard_normal((60, 3, 8, 8)), "y": RNG.integers(0, 4, (60, 8, 8))}
KINDS = ["no_biases", "plain", "projected", "CellState", "LearntState", "Cell", "Decoder", "Gate"]


def imported(name: str, data: dict[str, np.ndarray], **options: Any) -> ImportedModel:
    _, _, (model,) = api.with_own(Request.of([], f"{NETS}:{name}", dataset=data, **options), Tracer())
    assert model.level is not None and model.level.passed and model.level.error <= TOLERANCE
    return model


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", KINDS)
def test_the_import_is_the_same_function(name: str) -> None:
    imported(name, SERIES)


@pytest.mark.nightly
@pytest.mark.parametrize("name", KINDS)
def test_frameworks_compute_the_same(name: str) -> None:
    for found in verify(["torch", "tensorflow", "jax"], imported(name, SERIES).name, threads=1):
        assert found.proves(), (found.framework, found.reason, found.levels)


@pytest.mark.usefixtures("together")
def test_a_loss_of_its_own_takes_a_label_for_each_pixel_and_a_table_may_have_sparse_gradients() -> None:
    model = imported("Pixels", PIXELS, loss_function=f"{NETS}:by_pixel")
    assert [(field.name, field.shape) for field in model().task.inputs] == [("image", (3, 8, 8)), ("target", (8, 8))]
    imported("Few", {"user": RNG.integers(0, 40, 60), "y": SERIES["y"]}, inputs={"user": "user"})


REFUSED = {
    "Branch": (SERIES, {}, r"trace it at recurrent_nets\.py:\d+ \(if y\.sum\(\) > 0:\): it branches on values; what"),
    "Chosen": (SERIES, {}, r"size of which depends on values \(1 x, first at index \(recurrent_nets\.py:\d+\)\)$"),
    "Few": (
        {"user": np.arange(60) % 41, "y": SERIES["y"]},
        {"inputs": {"user": "user"}},
        r"out of range at recurrent_nets\.py:\d+ .*the data have user to 40, and an nn\.Embedding needs one row more",
    ),
    "Pixels": (PIXELS, {}, r"shape \(8, 8\) of int64 for a sample; .*or any with a loss function of your own"),
    "ignored": (
        {**PIXELS, "y": PIXELS["y"] - 1},
        {"loss_function": f"{NETS}:by_pixel"},
        "the target y has labels below 0, .* such as 3, and ignore_index=3",
    ),
}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_one_line_with_its_place(kind: str) -> None:
    data, options, words = REFUSED[kind]
    with pytest.raises(UsageError, match=words) as raised:
        imported("Pixels" if kind == "ignored" else kind, data, **options)
    assert "\n" not in str(raised.value)
