"""Models of the user's own: what is refused before anything is loaded, heads, files of a study, views of axes."""

import dataclasses
import json
import re
import subprocess
from math import nan
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import run

from framework_compare import registry
from framework_compare.errors import StudyError, UsageError
from framework_compare.graph import Graph, GraphBuilder, weights_size
from framework_compare.graph.imported_model import ImportedModel, with_head
from framework_compare.importers.common.views import Atom, NotExpressible, plain, reshaped, shape_of
from framework_compare.importing import import_level, inspection
from framework_compare.importing.imports import resolve
from framework_compare.importing.sources import source_of
from framework_compare.importing.tracing import Traced
from framework_compare.parity.network.oracle import Oracle
from framework_compare.report import table_notes
from framework_compare.report.tables import Value
from framework_compare.results.columns import IDENTITY
from framework_compare.study.data_files import register_models, write_models


def graph(classes: int = 5) -> Graph:
    g = GraphBuilder("small", num_classes=classes, image_size=16)
    g.conv("conv", 4, 3)
    g.relu("relu")
    g.global_avgpool("pool")
    g.linear("fc", classes)
    return g.build()


def imported(seeded: bool = False) -> ImportedModel:
    flat = np.arange(weights_size(graph()), dtype=np.float32)
    return ImportedModel.of("My Net", "my_net.py:build", {16: graph()}, flat, seeded)


HOSTILE = {
    "missing.py:build": "no file",
    "net.py": "name the function",
    "weights.pth": "not opened",
    "weights.pkl": "not opened",
    "weights.safetensors": "without layers",
    "missing.onnx": "no file",
    "missing.keras": "no file",
    "net.onnx": "is not an onnx file, or truncated",
    "net.keras": "is not a .keras file",
    "other.py:build": "no 'build'; it has no function or class",
    "torchvision:": "name the model after the colon",
    "torchvison:resnet18": "allowed: a name that `list` shows, .*torchvision:name",
    "net.h5": "not read",
    "net.tflite": "not read",
}


@pytest.mark.parametrize("model", HOSTILE)
def test_what_is_no_model_is_refused_unopened(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in HOSTILE:
        if not name.startswith(("missing", "torchvi")):  # of those that are read, real/ has the hostile ones
            Path(name.partition(":")[0]).write_bytes(b"\x80\x04cos\nsystem\n(S'touch opened'\ntR.")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where an environment would be made
    before = set(tmp_path.iterdir())
    for command in (["inspect"], ["run", "--frameworks", "torch", "--models"]):
        done = run(*command, model, check=2)
        assert re.search(HOSTILE[model], done.stderr.lower()) and len(done.stderr.splitlines()) == 1
        assert not done.stdout
    assert set(tmp_path.iterdir()) == before


def test_a_file_is_loaded_where_what_it_imports_is_and_names_in_it_by_its_worker(tmp_path: Path) -> None:
    for text, kind in (
        ("import keras\n", "keras-file"),
        ("from tensorflow.keras import layers\n", "keras-file"),
        ("def build():\n    import keras\n", "keras-file"),
        ("import keras, torch\n", "file"),
        ("from torch import nn\n", "file"),
        ("import (\n", "file"),
    ):
        (tmp_path / "net.py").write_text(f"{text}def build(): pass\n")
        source = source_of(f"{tmp_path / 'net.py'}:build")
        assert source is not None and source.kind == kind
    for text in ("build = make(3)\n", "globals()['build'] = 3\n", "from other import *\n", "def build[T](: pass\n"):
        (tmp_path / "net.py").write_text(text)
        assert source_of(f"{tmp_path / 'net.py'}:build") is not None
    (tmp_path / "net.py").write_text("def make():\n    rebuild()\nclass Net: pass\n")
    with pytest.raises(UsageError, match="has no 'build'; it has make, Net"):
        source_of(f"{tmp_path / 'net.py'}:build")


def test_what_cannot_be_imported_is_refused() -> None:
    with pytest.raises(UsageError, match="model is 3; allowed"):
        resolve(3)
    with pytest.raises(UsageError, match="no model is imported"):
        resolve("alexnet", weights="file")
    with pytest.raises(UsageError, match="imported for image_size 16, not 32"):
        imported()(3, 32)
    g = GraphBuilder("headless", num_classes=3, image_size=16)
    g.global_avgpool("pool")
    with pytest.raises(UsageError, match="from a GlobalAvgPool, but the data have 4"):
        with_head(g.build(), 4)
    traced = Traced({16: graph(1)}, np.empty(0, np.float32))
    with pytest.raises(UsageError, match="it gives 1 number for an image; allowed: one logit per class"):
        resolve(f"{__file__}:build", 16, tracer=lambda source, sizes: traced)  # type: ignore[arg-type]


def test_names_depend_on_contents_and_a_head_is_replaced() -> None:
    assert imported().name.startswith("my_net-") and imported().name == imported().name != imported(True).name
    missing = inspection.missing_ops(graph())
    assert missing["torch"] == missing["jax"] == []
    assert any(line.startswith("fc ") for line in inspection.layer_lines(graph()))
    model = imported()
    assert [node.attrs.get("out_features") for node in with_head(graph(), 3).nodes][-1] == 3
    changed = model(num_classes=3)
    flat = np.concatenate(list(model.pieces(changed, 0)))
    rest = weights_size(changed) - 3 * 4 - 3
    assert np.array_equal(flat[:rest], model.flat[:rest]) and abs(flat[rest:]).max() < 1
    assert "'fc' for 5 classes is replaced by one for 3" in model.replaced_head(3) and not model.replaced_head(5)


def test_a_study_keeps_its_models_and_names_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = imported()
    monkeypatch.setitem(registry.MODELS, model.name, registry.Model(model))
    write_models(tmp_path, [model.name, "alexnet"])
    monkeypatch.delitem(registry.MODELS, model.name)
    register_models(tmp_path)
    again = registry.MODELS.pop(model.name).build
    assert isinstance(again, ImportedModel) and again(5, 16) == model(5, 16) and np.array_equal(again.flat, model.flat)
    (tmp_path / "damaged" / "models" / "x").mkdir(parents=True)
    (tmp_path / "damaged" / "models" / "x" / "graph.json").write_text("{")
    with pytest.raises(StudyError, match="cannot be read"):
        register_models(tmp_path / "damaged")


@pytest.mark.parametrize("name", ["alexnet", "../../net-01234567", "net-01234567"])
def test_a_model_of_a_study_cannot_take_the_name_of_another_or_of_a_path(name: str, tmp_path: Path) -> None:
    model = imported()
    place = tmp_path / "models" / "x"
    place.mkdir(parents=True)
    model.write(str(place))
    document = json.loads((place / "graph.json").read_text())
    document["graphs"]["16"]["name"] = name
    for named in (model.name, name if not name.startswith("net") else "alexnet"):
        (place / "graph.json").write_text(json.dumps({**document, "name": named}))
        with pytest.raises(StudyError, match=f"it is called .*'{name}'"):
            register_models(tmp_path)
    assert registry.builder("alexnet") == "framework_compare.models.alexnet:build"


def test_axes_fold_and_unfold() -> None:
    image = plain(2, (6, 4, 4))
    tokens = reshaped(image, (2, 6, 16))
    assert shape_of(tokens) == (2, 6, 16) and reshaped(tokens, (2, 6, 4, 4)) == image
    assert reshaped(image, (2, 2, 3, 4, 4))[1] == (Atom(0, 3, 2),)
    with pytest.raises(NotExpressible):
        reshaped(image, (2, 4, 24))[1]
        reshaped(image, (5, 96))


def test_another_function_does_not_pass_the_level_import() -> None:
    g = GraphBuilder("judged", num_classes=3, image_size=8)
    g.conv("conv", 4, 3)
    g.batchnorm("norm", eps=1e-5)
    g.relu("relu")
    g.global_avgpool("pool")
    g.linear("fc", 3)
    ours, rng = g.build(), np.random.default_rng(0)
    start = {p.name: rng.uniform(0.5, 1.5, p.shape) for p in ours.parameters()}
    images, labels = rng.standard_normal((3, 3, 8, 8)), np.arange(3)
    oracle = Oracle(ours, start)
    _, training, gradients, statistics = oracle.gradients(images, labels)
    exact = {"input:input": images, "target": labels, "training": training, "evaluation": oracle.forward(images)}
    exact.update({f"start:{name}": array for name, array in start.items()})
    exact.update({f"gradient:{name}": array for name, array in gradients.items()})
    exact.update({f"after:{name}": array for name, array in statistics.items()})
    assert import_level.judge(ours, exact, "itself").passed
    norm = dataclasses.replace(ours.nodes[1], attrs={**ours.nodes[1].attrs, "eps": 1.1e-5})
    other = dataclasses.replace(ours, nodes=(ours.nodes[0], norm, *ours.nodes[2:]))
    assert not import_level.judge(other, exact, "itself").passed
    assert not import_level.judge(ours, {**exact, "gradient:fc.bias": -exact["gradient:fc.bias"]}, "itself").passed


def test_a_judge_that_ends_early_says_why(tmp_path, monkeypatch):
    for code, said, words in (
        (-9, "", "ended with code -9; use a machine"),
        (1, "Traceback\nMemoryError", "MemoryError;"),
    ):
        ended = subprocess.CompletedProcess([], code, "", said)
        monkeypatch.setattr(import_level, "subprocess", SimpleNamespace(run=lambda *_, done=ended, **__: done))
        with pytest.raises(UsageError, match=f"could not be compared with its source: .*{words}"):
            import_level.judged(tmp_path, "itself")


def test_a_model_is_compared_with_itself_as_written_when_all_runs_have_ended():
    runs = [("ok", 1.2, 0.05, 1), ("ok", 1.2, 0.15, 0), ("ok", 1.2, nan, 1), ("ok", 1.04, 0.01, 0)]
    for status, seconds, arm, warnings in (*runs, ("running", 1.2, 0.05, 0)):
        pair = [
            SimpleNamespace(
                **{**dict.fromkeys(IDENTITY, ""), "framework": name, "model": "net", "status": status},
                **{"epoch_s_median": took, "epoch_s_ci_low": took - arm, "epoch_s_ci_high": took + arm},
            )
            for name, took in (("torch", seconds), ("torch-as-written", 1.0))
        ]
        assert len(table_notes.rebuild_slowdown_warnings(pair)) == warnings
    cell = SimpleNamespace(status="running", reason="", runs_ok=1, runs=3)
    assert table_notes.status_value(cell) == Value("running", "1 of 3 runs ok")
