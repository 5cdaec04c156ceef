"""A user's model as it is written, beside the one that is rebuilt from its layer graph."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest
from command_line import start

from framework_compare import Comparison, compare
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.as_written import with_written
from framework_compare.importing.imports import resolve
from framework_compare.plan import planning
from framework_compare.report import parts
from framework_compare.results.columns import Record

NET = Path(__file__).parents[1] / "plugins" / "user_net.py"
SMALL = dict(image_size=32, batch_size=4, limit=12, warmup_steps=0, epochs=2, threads=1, repeats=1, pipeline="shared")


@pytest.fixture(scope="module")
def study(tmp_path_factory, real_pictures) -> Comparison:
    place = tmp_path_factory.mktemp("written")
    shutil.copy(NET, place / "user_net.py")
    return compare(
        ["torch", "jax"], f"{place / 'user_net.py'}:build", dataset=real_pictures, out=place / "study", **SMALL
    )


def test_it_is_a_row_that_learns_the_same(study: Comparison) -> None:
    rows = study.frame.set_index("framework")
    assert list(rows.index) == ["torch", "torch-as-written", "jax"] and set(rows["status"]) == {"ok"}
    assert rows.loc["torch-as-written", "parity"] == "import"
    written, rebuilt = rows.loc["torch-as-written"], rows.loc["torch"]
    assert (
        written["parameters"] == rebuilt["parameters"] and written["framework_version"] == rebuilt["framework_version"]
    )
    np.testing.assert_allclose(written["loss_last"], rebuilt["loss_last"], rtol=1e-4)
    text = " ".join(str(study.table()).split())
    assert (
        "PyTorch (as written)" in text and "user_net.py:build; its last layer 'head' for 5 classes is replaced" in text
    )
    assert "18 parameters are left out" in text
    shown = start("show", study.folder).stdout  # by another process, which has the file no more
    assert "is replaced by one for" in " ".join(shown.split())


def test_a_file_that_has_changed_is_not_measured(tmp_path: Path, real_pictures) -> None:
    path = shutil.copy(NET, tmp_path / "user_net.py")
    _, (model,) = resolve(f"{path}:build", 32)
    path.write_text(path.read_text(encoding="utf-8").replace("F.silu(", "F.gelu("), encoding="utf-8")
    rows = compare("torch", model, dataset=real_pictures, out=tmp_path / "study", **SMALL).frame.set_index("framework")
    assert rows.loc["torch", "status"] == "ok"  # what is rebuilt needs nothing of the user's
    assert rows.loc["torch-as-written", "status"] == "unsupported"
    assert "is no longer the model that was imported" in rows.loc["torch-as-written", "reason"]
    path.unlink()
    rows = compare("torch", model, dataset=real_pictures, out=tmp_path / "gone", **SMALL).frame.set_index("framework")
    assert list(rows["status"]) == ["ok", "unsupported"]
    assert "is no longer in its place" in rows.loc["torch-as-written", "reason"]


def test_it_is_left_out_where_that_is_asked_and_said_where_it_is_far_off(study: Comparison) -> None:
    assert not any("as it does as written" in line for line in parts.beside_written(list(of(study, 1.0))))
    (line,) = parts.beside_written(list(of(study, 1.2)))
    assert "takes 1.20 times as long in PyTorch as it does as written" in line


def of(study: Comparison, ratio: float) -> Iterator[Record]:
    """The study's cells, with epochs that differ by a ratio."""
    seconds = {"torch": ratio, "torch-as-written": 1.0, "jax": 9.0}
    frame = study.frame.assign(epoch_s_median=study.frame["framework"].map(seconds), epoch_s_ci_low=float("nan"))
    return frame.itertuples(index=False)


def test_plans_have_it_where_another_process_can_load_the_model(small) -> None:
    plan = planning.plan(["torch", "jax"], "small", ["cpu", "cpu:0,1"], "fire-smoke-tiny", {})
    model = ImportedModel("small", "net.py:build", {}, np.zeros(0))
    assert with_written(plan, [model]) == plan
    cells = with_written(plan, [dataclasses.replace(model, written={"kind": "file"})]).cells
    assert [(cell.framework, cell.device) for cell in cells] == [
        ("torch", "cpu"),
        ("torch-as-written", "cpu"),
        ("jax", "cpu"),
        ("torch", "cpu:0,1"),
        ("jax", "cpu:0,1"),
    ]
