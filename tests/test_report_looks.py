"""How the report looks and how soon it opens in a real browser: slow proofs."""

import os
from pathlib import Path

import numpy
import pytest
from browser_page import NEEDED, Opened
from drawn_study import FRAMEWORKS, MODELS, study
from PIL import Image
from stored_study import recorded

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report.figures import look
from framework_compare.report.figures.files import javascript
from framework_compare.report.page import report

pytestmark = NEEDED
GOLDEN = Path(__file__).parent / "golden" / "report.html"
BUNDLE = "@bundle@"  # in place of the scripts that are the same in every report
UNLIKE = 1e-4  # of the pixels; other colours of the few marks of F2 are nine times as many
LOOKED_AT = ("answer", "trust", "F1", "F2", "F3", "F4", "F5", "F6", "F7")


def looks(browser, page, folder):
    """Images of parts of a page as it is drawn, by name; they are as large as their part."""
    folder.mkdir()
    (folder / "report.html").write_text(page)
    opened = Opened(browser, folder / "report.html")
    opened.draw_all()
    for part in LOOKED_AT:
        opened.page.locator(f"#{part}").screenshot(path=folder / f"{part}.png")
    return {part: numpy.asarray(Image.open(folder / f"{part}.png").convert("RGB")).astype(int) for part in LOOKED_AT}


def unlike(one, other):
    """The share of pixels that differ visibly, by an eighth of the contrast of ink and paper; 1 where the sizes do."""
    if one.shape != other.shape:
        return 1.0
    return (abs(one - other).max(axis=2) > (other.max() - other.min()) / 8).mean()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of one model, without the bundle of scripts, which is as large as all the rest."""
    folder = tmp_path_factory.mktemp("looked-at")
    return study(folder / "study", models=("alexnet",)).report(folder / "report.html").read_text()


@pytest.fixture(scope="module")
def golden_page(page):
    """The report as it was when somebody last looked at it; GOLDEN=renew in the environment makes it today's."""
    if os.environ.get("GOLDEN") == "renew":
        GOLDEN.write_text(page.replace(javascript(), BUNDLE))
    return GOLDEN.read_text().replace(BUNDLE, javascript())


@pytest.fixture(scope="module")
def golden(browser, golden_page, tmp_path_factory):
    return looks(browser, golden_page, tmp_path_factory.mktemp("golden") / "page")


@pytest.mark.nightly
def test_parts_of_the_page_look_as_they_did(browser, page, golden, tmp_path):
    """Both pages are drawn by the same browser with the same fonts, so that what differs is a change of ours."""
    today = looks(browser, page, tmp_path / "page")
    changed = [part for part in LOOKED_AT if unlike(today[part], golden[part]) > UNLIKE]
    assert not changed, f"{changed} look otherwise than in {GOLDEN}; if they are to, GOLDEN=renew makes it today's page"


@pytest.mark.nightly
def test_a_part_that_looks_otherwise_is_found(browser, monkeypatch, golden, tmp_path):
    monkeypatch.setattr(look, "COLOURS", look.COLOURS[::-1])
    made = study(tmp_path / "study", models=("alexnet",))
    changed = looks(browser, made.report(tmp_path / "report.html").read_text(), tmp_path / "page")
    assert {part for part in LOOKED_AT if unlike(changed[part], golden[part]) > UNLIKE} >= {"F2", "F3", "F7"}


def test_there_is_a_golden_page_without_the_bundle():
    assert BUNDLE in GOLDEN.read_text() and javascript() not in GOLDEN.read_text()


@pytest.mark.nightly
@pytest.mark.alone
def test_a_report_of_a_hundred_cells_opens_within_a_second(browser, tmp_path):
    configs = tuple(TrainConfig(batch_size=size) for size in (1, 8, 16, 32, 64))
    path = study(tmp_path / "study", FRAMEWORKS, MODELS, configs=configs, failing=()).report(tmp_path / "report.html")
    assert min(Opened(browser, path).seconds for _ in range(3)) < 1.0


@pytest.mark.nightly
def test_ten_thousand_cells_open_within_three_seconds(browser, tmp_path):
    cells = [Cell("torch", "alexnet", "small", "cpu", TrainConfig(seed=seed)) for seed in range(10_000)]
    made = recorded(tmp_path / "study", cells, lambda *_: Run("failed", "no reason"))
    path = tmp_path / "report.html"
    path.write_text(report.render(made))
    opened = Opened(browser, path)
    assert opened.seconds < 3.0
    assert opened.count("[data-cell]") == report.MAX_ROWS
    assert "9000 more cells" in opened.page.inner_text("#cells")
