"""ONNX files and Keras models on rows, series and tokens: the same function as in their source, one line otherwise."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework_compare import api
from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.tracing import Tracer
from framework_compare.parity.verify import verify
from framework_compare.study.request import Request

PLUGINS = Path(__file__).parents[1] / "plugins"
RNG = np.random.default_rng(1)
COUNT = 40
ROW, USER = RNG.standard_normal((COUNT, 5)), RNG.integers(0, 7, (COUNT, 3))
STEPS, IMAGES = RNG.standard_normal((COUNT, 20, 2)), RNG.integers(0, 256, (COUNT, 16, 16, 1)).astype(np.uint8)
TWO, THREE, AMOUNTS = np.arange(COUNT) % 2, np.arange(COUNT) % 3, RNG.standard_normal((COUNT, 2))
WIDE, ONE = RNG.standard_normal((COUNT, 6)), {"row": ROW, "user": USER, "y": TWO}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "onnx": ("arrays.onnx", ONE, {}, "binary_cross_entropy"),
    "onnx, second output": ("arrays.onnx", {"row": ROW, "user": USER, "y": AMOUNTS}, {"model_output": "1"}, "mse"),
    "keras row": ("row", {"x": WIDE, "y": TWO}, {}, "binary_cross_entropy"),
    "keras row and tokens": ("row_and_tokens", {"user": USER, "row": WIDE, "y": THREE}, {}, "cross_entropy"),
    "keras, named": ("row_and_tokens", {"user": USER, "row": WIDE, "y": ROW[:, 0]}, {"model_output": "amount"}, "mse"),
    "keras series": ("series", {"x": STEPS, "y": ROW[:, 0]}, {}, "mse"),
    "keras grey": ("grey", {"x": IMAGES, "y": THREE}, {}, "cross_entropy"),
}
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "onnx, inputs": (
        "arrays.onnx",
        {"x": ROW, "y": TWO},
        {},
        r"takes 2 inputs \(user, row\), and the data have 1 \(x\)",
    ),
    "onnx, shape": ("arrays.onnx", {**ONE, "row": WIDE}, {}, r"takes floats \? x 5, and row is float32 \? x 6"),
    "onnx, dtype": ("arrays.onnx", {**ONE, "user": ROW[:, :3]}, {}, "takes integers"),
    "onnx, output": ("arrays.onnx", ONE, {"model_output": "no"}, "has no output 'no'"),
    "onnx, loss": ("arrays.onnx", ONE, {"loss_function": "own"}, "give an nn.Module"),
    "keras, inputs": ("row_and_tokens", {"x": WIDE, "y": TWO}, {}, r"takes 2 inputs \(row, user\)"),
    "keras, shape": ("row", {"x": ROW, "y": TWO}, {}, r"has shape \(None, 6\), and x has \(None, 5\)"),
    "keras, output": ("row_and_tokens", {"user": USER, "row": WIDE, "y": TWO}, {"model_output": "no"}, "kind, amount"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arrays")
    subprocess.run([str(managed.ensure("onnx").python), str(PLUGINS / "onnx_files.py"), str(folder)], check=True)
    return folder


def imported(files: Path, model: str, data: dict[str, Any], options: dict[str, Any]) -> ImportedModel:
    text = str(files / model) if model.endswith(".onnx") else f"{PLUGINS / 'keras_files.py'}:{model}"
    if "loss_function" in options:
        options = {"loss_function": f"{PLUGINS / 'array_nets.py'}:weighted"}
    _, _, (made,) = api.with_own(Request.of([], text, dataset=data, **options), Tracer())
    return made


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_same_function(name: str, files: Path) -> None:
    model, data, options, loss = MODELS[name]
    made = imported(files, model, data, options)
    assert made.level is not None and made.level.passed and made.level.error <= TOLERANCE
    assert made().task.loss == loss
    assert [note for note in made.notes if "losses take logits" in note] or "entropy" not in loss or model == "grey"


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_gives_one_line(name: str, files: Path) -> None:
    *what, words = REFUSED[name]
    with pytest.raises(UsageError, match=words) as error:
        imported(files, *what)
    assert "\n" not in str(error.value)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["onnx", "keras row and tokens", "keras series"])
def test_five_frameworks_compute_the_same(name: str, files: Path) -> None:
    model, data, options, _ = MODELS[name]
    made = imported(files, model, data, options)
    for found in verify(["torch", "tensorflow", "mxnet", "paddle", "jax"], made.name, threads=1, batch_size=8):
        assert found.proves(), (found.framework, found.reason, found.levels)
