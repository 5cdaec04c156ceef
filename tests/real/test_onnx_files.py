"""ONNX files through the real environments of onnx and torch: imported and proved, or refused in one line."""

import re
import subprocess
from pathlib import Path
from typing import Dict

import numpy as np
import pytest

from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.imports import resolve

WRITER = Path(__file__).parents[1] / "plugins" / "onnx_files.py"
REFUSED = {
    "truncated": "is not an ONNX file, or truncated",
    "nothing": "is not an ONNX file",
    "folded_old": r"folded BatchNorm into Conv.*torch\.onnx\.export\(.*do_constant_folding=False\)",
    "folded_tf": "folded BatchNorm into Conv",
    "folded_new": "folded BatchNorm into Conv",
    "biases": "left out biases that were zero",
    "inputs": r"takes 2 inputs \(images, masks\)",
    "size": "fixed to images of 8 x 8 pixels, but image_size is 16",
    "grey": r"has shape \? x 1 x 16 x 16",
    "outside": "not in its folder; they are not read",
    "absolute": "not in its folder; they are not read",
    "absent": "the external weights of .* cannot be read",
    "huge": "4.3 GB of external weights",
    "unknown": r"2 of 6 kinds of layer cannot be expressed: LRN \(2 x, first at /neck/LRN1\); SpaceToDepth \(1 x",
    "foreign": r"own\.Secret \(1 x",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    (folder.parent / "secret.bin").write_bytes(bytes(4 * 4 * 27))
    subprocess.run([str(managed.ensure("onnx").python), str(WRITER), str(folder)], check=True)
    return folder


def imported(files: Path, name: str) -> ImportedModel:
    _, (model,) = resolve(str(files / f"{name}.onnx"), 16)
    assert isinstance(model, ImportedModel) and model.level is not None and model.level.passed
    assert model.level.error <= TOLERANCE
    return model


def ops(model: ImportedModel) -> Dict[str, int]:
    names = [node.op for node in model().nodes]
    return {name: names.count(name) for name in names}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_trained_gives_one_line(kind: str, files: Path) -> None:
    with pytest.raises(UsageError, match=REFUSED[kind]) as error:
        resolve(str(files / f"{kind}.onnx"), 16)
    assert "\n" not in str(error.value) and not list(files.glob("opened"))


def test_a_file_goes_through_both_environments(files: Path) -> None:
    model = imported(files, "residual")
    assert model.level is not None and re.match(r"onnx \S+ \(logits\) and torch \S+ \(grad", model.level.judge)


@pytest.mark.usefixtures("together")
def test_a_residual_network_keeps_names_momentum_and_dropout(files: Path) -> None:
    model = imported(files, "residual")
    nodes = {node.name: node for node in model().nodes}
    assert {"stem.0", "stem.1", "block.conv", "block.norm", "fc"} < set(nodes)
    assert (nodes["stem.1"].attrs["momentum"], nodes["stem.1"].attrs["eps"]) == (0.2, 1e-3)
    assert nodes["block.norm"].attrs["momentum"] == 0.1
    assert {"Dropout": 1, "ReLU6": 1, "GlobalAvgPool": 1, "Add": 1}.items() <= ops(model).items()
    assert np.array_equal(np.concatenate(list(model.pieces(model(), 0))), model.flat) and model(3).num_classes == 3


@pytest.mark.usefixtures("together")
def test_gates_old_opsets_and_unequal_padding(files: Path) -> None:
    model = imported(files, "gates")
    assert {"SiLU": 1, "HardSigmoid": 1, "Concat": 1, "Pad": 2, "Linear": 1}.items() <= ops(model).items()
    assert model.notes == ("its last layer, Softmax, is removed: losses take logits",)
    assert model(3).num_classes == 3 and model().nodes[-1].attrs["out_features"] == 5


# Channels that come last; GELU by erf and by tanh, a product by indices; a segmentation net, numbers known from shapes.
NETS = {
    "channels_last": {"Conv2d", "BatchNorm2d", "ReLU", "Linear"},
    "gelu": {"GELU", "LayerNorm", "Parameter", "Linear"},
    "tanh": {"GELU", "MatMul"},
    "upsampled": {"ConvTranspose", "GroupNorm", "Maximum"},
}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", NETS)
def test_networks_have_the_layers_that_they_were_written_with(name: str, files: Path) -> None:
    model = imported(files, name)
    assert NETS[name] <= set(ops(model))
    if name == "gelu":  # whose free array is trained
        assert ops(model)["Linear"] == 2
        assert model.notes == ("ONNX does not say which arrays are trained; besides those of layers, position are",)
