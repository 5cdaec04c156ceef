"""The report of odd studies in a real browser: hostile names, failures, losses that are no numbers, text from right to left."""

import dataclasses
import math

import pytest
from browser_page import NEEDED, NO_FIGURES, Opened
from drawn_study import run, study

from framework_compare.records import Run

pytestmark = NEEDED
BOTH = (("torch", "alexnet"), ("jax", "alexnet"))
HOSTILE = "</script><img src=x onerror=window.broken=1>"


def test_hostile_names_run_nothing(browser, tmp_path):
    failure = Run("failed", HOSTILE, log_tail=HOSTILE)
    made = study(tmp_path / "study", (HOSTILE, "__proto__"), ("constructor", "x" * 10_000), failure=failure,
                 failing=[("__proto__", "constructor")], dataset=HOSTILE, repeats=2)  # fmt: skip
    opened = Opened(browser, made.report(tmp_path / "report.html"))
    opened.draw_all()
    assert opened.page.evaluate("window.broken") is None
    assert opened.messages == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_loss_that_is_no_number_is_drawn_as_none_and_names_from_right_to_left_keep_their_rows(browser, tmp_path):
    lost, name = run(1.0), "\u05de\u05d5\u05d3\u05dc"  # Hebrew
    lost = dataclasses.replace(lost, epochs=tuple(dataclasses.replace(one, loss=math.nan) for one in lost.epochs))
    given = dict(failing=[(name, "alexnet")], failure=lost, repeats=2)
    made = study(tmp_path / "study", ("torch", name), ("alexnet",), **given)
    assert (made.frame["status"] == "ok").all()
    opened = Opened(browser, made.report(tmp_path / "report.html"))
    opened.draw_all()
    assert opened.messages == [] and not NO_FIGURES & set(opened.texts(".plot svg text"))
    assert name in opened.texts("[data-cell] th")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize(
    "frameworks, failing",
    [
        pytest.param(("torch",), (), id="one cell", marks=pytest.mark.nightly),
        pytest.param(("torch", "jax"), (("jax", "alexnet"),), id="all but one failed"),
        pytest.param(("torch", "jax"), BOTH, id="all failed"),
    ],
)
def test_a_study_that_lacks_figures_says_so_without_an_error(browser, tmp_path, frameworks, failing):
    made = study(tmp_path / "study", frameworks, ("alexnet",), repeats=1, failing=failing)
    opened = Opened(browser, made.report(tmp_path / "report.html"))
    opened.draw_all()
    assert opened.messages == [] and not NO_FIGURES & set(opened.texts(".plot svg text"))
    left = len(frameworks) - len(failing)
    assert "Not in this study" in opened.page.inner_text("main") or not left
    assert opened.count(".choices.frameworks") == (1 if left and len(frameworks) > 1 else 0)
    assert opened.count("#failures details") == len(failing)
