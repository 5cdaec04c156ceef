"""Cells with each framework's own optimizer: marked as not equal wherever a figure of theirs stands."""

from __future__ import annotations

import numpy as np
import pytest
from stored_study import ok, recorded

from framework_compare.errors import Unsupported
from framework_compare.graph import OPTIMIZERS
from framework_compare.parity import in_study
from framework_compare.protocol import Declared, TrainConfig
from framework_compare.records import Cell
from framework_compare.report import json_document
from framework_compare.results.parity import NOT_EQUAL
from framework_compare.worker.refusal import refuse_undeclared

SECONDS = {("torch", "equal"): 1.0, ("torch", "native"): 0.2, ("jax", "equal"): 1.5, ("jax", "native"): 0.4}


def cell(framework: str, variant: str) -> Cell:
    return Cell(framework, "vgg16", "small", "cpu", TrainConfig(optimizer="adam", optimizer_variant=variant))


@pytest.fixture
def study(tmp_path):
    noise = np.random.default_rng(0)

    def run_of(one, _):
        seconds = SECONDS[one.framework, one.config.optimizer_variant] * noise.normal(1, 0.01)
        return ok(seconds, images=10, steps=1)

    return recorded(tmp_path, [cell(*key) for key in SECONDS], run_of, 4, settings={"verify": "off"})


def test_native_cells_are_not_equal_even_where_no_parity_was_asked_for(study):
    marks = study.frame.set_index(["framework", "optimizer_variant"]).parity
    assert {key for key, mark in marks.items() if mark == NOT_EQUAL} == {("torch", "native"), ("jax", "native")}
    assert study.frame[study.frame.optimizer_variant == "equal"].parity.isna().all()


def test_verdicts_never_cross_from_native_to_equal_and_carry_the_mark(study):
    found = {one.condition["optimizer_variant"]: one for one in study.verdicts()}
    assert len(study.verdicts()) == 2 and set(found) == {"equal", "native"}
    assert found["native"].sentence.startswith("vgg16 (native optimizers, not equal): torch is 2.")
    assert found["equal"].sentence.startswith("vgg16: torch is 1.")


@pytest.mark.parametrize("kind", ["time", "resources", "scaling", "startup", "precision"])
@pytest.mark.parametrize("style", ["terminal", "markdown", "latex"])
def test_every_table_of_native_cells_says_so(study, kind, style):
    from framework_compare.report import kinds, renderers

    for table in kinds.build(study.frame, kind, lambda: {}):
        text = " ".join(renderers.RENDERERS[style](table).split())
        assert ("variant native" in text) == (NOT_EQUAL in text)
        assert "variant native" in text or "variant equal" in text


def test_json_marks_native_cells_and_their_verdicts(study):
    document = json_document.document(study)
    assert {one["optimizer_variant"]: one["parity"] for one in document["cells"]} == {
        "equal": None,
        "native": NOT_EQUAL,
    }
    native = [one for one in document["verdicts"] if one["condition"]["optimizer_variant"] == "native"]
    assert len(native) == 1 and "not equal" in native[0]["sentence"]


def test_where_parity_is_required_a_native_cell_is_not_run(tmp_path):
    (reason,) = in_study.record(tmp_path, [cell("torch", "native")], {}, "require").values()
    assert reason == f"parity is required: {NOT_EQUAL}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_adapter_that_does_not_declare_a_native_optimizer_is_not_asked_for_one(optimizer):
    class Plain:
        name = "plain"
        declared = Declared(
            *(frozenset(), frozenset({"cross_entropy"}), frozenset(OPTIMIZERS)),
            {"cpu": frozenset({"default"})},
            {"cpu": frozenset({"fp32"})},
        )

    refuse_undeclared(Plain, TrainConfig(optimizer=optimizer), [])
    with pytest.raises(Unsupported, match=f"plain declares no optimizer 'native {optimizer}'; declared: adam, "):
        refuse_undeclared(Plain, TrainConfig(optimizer=optimizer, optimizer_variant="native"), [])
