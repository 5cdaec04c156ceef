"""Keras models through TensorFlow's real environment: imported and proved, or refused in one line."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from framework_compare.environments import managed
from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.imports import resolve

MODELS = Path(__file__).parents[1] / "plugins" / "keras_files.py"
REFUSED = {
    "unknown": r"3 of 6 kinds of layer cannot be expressed: LeakyReLU \(2 x, first at leaky_re_lu",
    "Subclass": "Subclass is a subclass of keras.Model",
    "shared": "Conv2d that shares its weight with another layer",
    "frozen": "arrays are not trained, such as",
    "two_inputs": "takes 2 inputs",
    "grey": r"images of this size have \(None, 16, 16, 3\)",
    "no_model": "gives a int",
    "unsafe.keras": "has Lambda, which is custom code; it is not run",
    "foreign.keras": "has Own, which is custom code; it is not run",
    "empty.keras": "is not a .keras file",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keras")
    (folder / "empty.keras").write_bytes(b"PK\x05\x06" + bytes(18))  # a zip file without entries
    python = managed.ensure("tensorflow").python
    subprocess.run([str(python), str(MODELS), str(folder)], check=True, cwd=folder, env={"CUDA_VISIBLE_DEVICES": "-1"})
    (folder / "opened").unlink()  # the Lambda has run where it was written, and is to run nowhere else
    return folder


def named(folder: Path, name: str) -> str:
    return str(folder / name) if name.endswith(".keras") else f"{MODELS}:{name}"


def imported(folder: Path, name: str) -> ImportedModel:
    _, (model,) = resolve(named(folder, name), 16)
    assert isinstance(model, ImportedModel) and model.level is not None and model.level.passed
    assert model.level.error <= TOLERANCE
    return model


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_trained_gives_one_line(kind: str, folder: Path) -> None:
    with pytest.raises(UsageError, match=REFUSED[kind]) as error:
        resolve(named(folder, kind), 16)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("together")
def test_a_functional_model_is_the_same_function_and_a_file_the_same_graph_as_its_own(folder: Path) -> None:
    model = imported(folder, "residual")
    norm = next(node for node in model().nodes if node.op == "BatchNorm2d")
    assert (norm.attrs["momentum"], norm.attrs["eps"]) == (0.1, 0.001)
    last, parameters = (note.split(",")[0] for note in model.notes)
    assert (last, parameters) == ("its last softmax is removed: losses take logits", "51 parameters are removed")
    assert model(3).num_classes == 3
    made, saved = (imported(folder, name) for name in ("sequential", "sequential.keras"))
    assert [node.op for node in made().nodes] == [node.op for node in saved().nodes]
    assert made.notes == saved.notes and "regularizers are ignored" in made.notes[1]


def test_a_model_in_hand_is_saved_and_read_as_a_file(folder: Path) -> None:
    def save(self: Any, path: Path) -> None:
        shutil.copy(folder / "sequential.keras", path)

    attributes = {"__module__": "keras.src.models.model", "name": "mine", "save": save}  # Keras is not in this process
    _, (model,) = resolve(type("Model", (), attributes)(), 16)
    assert model.name.startswith("mine-") and model.level is not None and model.level.passed
    assert model.level.judge.startswith("tensorflow ")
