"""A user's model as it is written, beside the one that is rebuilt from its layer graph."""

import dataclasses
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest
import rounding_bounds
from command_line import start
from nightly import some_nightly

from framework_compare import Comparison, compare, registry
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.imports import with_written
from framework_compare.plan import planning
from framework_compare.report import table_notes
from framework_compare.results.columns import Record

NET = Path(__file__).parents[1] / "plugins" / "user_net.py"
DROPOUT = "        both = F.dropout(both, 0.1, self.training)\n"
TRAINED = dict(image_size=32, batch_size=4, epochs=2, threads=1, pipeline="shared")
LIMIT, STEPS = 12, 3  # images, steps of an epoch
SMALL = dict(**TRAINED, limit=LIMIT, warmup_steps=0, repeats=1, retries_when_disturbed=0)


@pytest.fixture(scope="module")
def study(tmp_path_factory, real_images) -> Comparison:
    """Without dropout: the two rows draw masks of their own, whose losses differ by more than rounding."""
    place = tmp_path_factory.mktemp("written")
    source = NET.read_text(encoding="utf-8")
    assert DROPOUT in source
    (place / "user_net.py").write_text(source.replace(DROPOUT, ""), encoding="utf-8")
    return compare("torch", f"{place / 'user_net.py'}:build", dataset=real_images, out=place / "study", **SMALL)


def test_it_is_a_row_that_learns_the_same(study: Comparison, real_images) -> None:
    rows = study.frame.set_index("framework")
    assert list(rows.index) == ["torch", "torch-as-written"] and set(rows["status"]) == {"ok"}
    assert rows.loc["torch-as-written", "parity"] == "import"
    assert rows["parameters"].nunique() == rows["framework_version"].nunique() == 1
    (model,) = set(study.frame["model"])
    exact, allowed = rounding_bounds.of_epochs(model, real_images, TRAINED, STEPS, limit=LIMIT)  # in float64
    for framework, losses in study.epochs.groupby("framework")["loss"]:
        assert (np.abs(losses - exact) <= allowed).all(), (framework, list(losses), exact, allowed)
    text = " ".join(str(study.table()).split())
    for words in (
        "PyTorch (as written)",
        "build; its last layer 'head' for 5 classes is replaced",
        "18 parameters are",
    ):
        assert words in text
    shown = start("show", study.folder).stdout  # by another process, which has the file no more
    assert "is replaced by one for" in " ".join(shown.split())


CHANGES = {
    "the model that was imported": lambda file, text: file.write_text(text.replace("F.silu(", "F.gelu(")),
    "there": lambda file, text: file.unlink(),
}


@pytest.mark.parametrize("said", some_nightly(CHANGES, nightly=["there"]))
def test_a_file_that_is_no_longer_what_was_imported_is_not_measured(study, said, tmp_path, real_images) -> None:
    file = study.folder.parent / "user_net.py"
    text = file.read_text(encoding="utf-8")
    (name,) = set(study.frame["model"])
    try:
        CHANGES[said](file, text)
        model = registry.MODELS[name].build
        study = compare("torch", model, dataset=real_images, out=tmp_path / "study", **SMALL)
    finally:
        file.write_text(text, encoding="utf-8")
    rows = study.frame.set_index("framework")
    assert list(rows["status"]) == ["ok", "unsupported"], "what is rebuilt needs nothing of the user's"
    assert f"is no longer {said}" in rows.loc["torch-as-written", "reason"]


def test_it_is_left_out_where_that_is_asked_and_said_where_it_is_far_off(study: Comparison) -> None:
    assert not list(table_notes.rebuild_slowdown_warnings(list(of(study, 1.0))))
    (line,) = table_notes.rebuild_slowdown_warnings(list(of(study, 1.2)))
    assert "takes 1.20 times as long in PyTorch as in its original form" in line


def of(study: Comparison, ratio: float) -> Iterator[Record]:
    """The study's cells, with epochs that differ by a ratio."""
    seconds = {"torch": ratio, "torch-as-written": 1.0}
    frame = study.frame.assign(epoch_s_median=study.frame["framework"].map(seconds), epoch_s_ci_low=float("nan"))
    return frame.itertuples(index=False)


def test_plans_have_it_where_another_process_can_load_the_model(small) -> None:
    plan = planning.plan(["torch", "jax"], "small", ["cpu", "cpu:0,1"], "fire-smoke-tiny", {})
    model = ImportedModel("small", "net.py:build", {}, np.zeros(0))
    assert with_written(plan, [model]) == plan
    cells = with_written(plan, [dataclasses.replace(model, written={"kind": "file"})]).cells
    assert [(cell.framework, cell.device) for cell in cells] == [
        *(("torch", "cpu"), ("torch-as-written", "cpu"), ("jax", "cpu"), ("torch", "cpu:0,1"), ("jax", "cpu:0,1"))
    ]
