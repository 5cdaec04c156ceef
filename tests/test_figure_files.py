"""Figures as files of a paper's width and by the command: captions, texts of seven points, what is refused."""

import json
import re
from pathlib import Path

import pytest
from bounds import decimals
from command_line import run
from PIL import Image

from framework_compare import load_submission
from framework_compare.cli.report import VIEWS
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.report import provenance
from framework_compare.report.figures import plot
from framework_compare.report.figures.catalogue import FIGURES, find

LESS = {"batch-sizes", "gains"}  # they need several settings


def test_the_help_names_the_views_and_each_has_a_caption_of_its_own(comparison, tmp_path):
    assert {FIGURES[find(number)].number: views for number, views in VIEWS.items()} == {
        one.number: tuple(one.views)[1:] for one in FIGURES.values() if len(one.views) > 1
    }
    with pytest.raises(UnknownNameError, match="images per second"):
        comparison.plot("F2", view="images")
    with pytest.raises(UsageError, match="figure F1 has one view only, received 'images per second'"):
        comparison.plot("F1", view="images per second")
    for name, figure in FIGURES.items():
        views = figure.views
        assert len({one.caption for one in views.values()}) == len(views)
        for view in views.keys() - {""}:
            assert views[view].caption in comparison.plot(name, view=view).caption
    comparison.plot("F2", view="images per second").save(tmp_path / "f.svg", "174mm")
    assert (tmp_path / "f.txt").read_text().startswith("Epoch time. Large mark: images per second")


@pytest.mark.parametrize("name", sorted(LESS))
def test_a_figure_without_data_says_why(comparison, tmp_path, name):
    with pytest.raises(UsageError, match=FIGURES[name].absent):
        comparison.plot(name).save(tmp_path / "figure.svg")


@pytest.mark.parametrize("width", ["84mm", "174mm"])
def test_a_file_has_the_width_that_was_asked_for(comparison, tmp_path, width):
    millimetres = float(width[:-2])
    for suffix in plot.SUFFIXES:
        comparison.plot("F2").save(tmp_path / f"figure{suffix}", width)
    svg = (tmp_path / "figure.svg").read_text()
    assert float(re.search(r'width="([\d.]+)pt"', svg)[1]) == pytest.approx(millimetres * 72 / 25.4, abs=decimals(2))
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+)", (tmp_path / "figure.pdf").read_bytes())
    assert float(box[1]) == pytest.approx(millimetres * 72 / 25.4, abs=decimals(2))
    with Image.open(tmp_path / "figure.png") as image:
        assert image.width == pytest.approx(millimetres / 25.4 * plot.PNG_PPI, abs=decimals(0))
    assert "fire-smoke-small: 791 images" in (tmp_path / "figure.txt").read_text()


def test_text_of_a_figure_is_seven_points_or_more(comparison, tmp_path):
    for name in ("F1", "F2", "F4", "F5"):
        drawn = comparison.plot(name).fitted(plot.points("84mm"))
        scale = plot.points("84mm") / drawn.width
        sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', drawn.svg)]
        assert min(sizes) * scale >= plot.LEAST_FONT, name
    with pytest.raises(UsageError, match="would have text below 7 points at 30mm; give a width of"):
        comparison.plot("F4").save(tmp_path / "figure.pdf", "30mm")


def test_the_command_says_what_is_allowed(comparison):
    for arguments, message in (
        (["F99"], "unknown figure 'F99'; allowed: overview (F1)"),
        (["F2", "--width", "9"], "the width is '9'; allowed"),
        (["F2", "--out", "figure.doc"], "unknown kind of file '.doc'; allowed: .svg, .pdf, .png"),
        (["F2", "--models", "resnet50"], "the study has no model 'resnet50'; allowed: alexnet, vgg16"),
        (["F2", "--frameworks", ""], "no framework to draw is named; allowed: torch, mxnet, jax"),
    ):
        assert message in run("figure", arguments[0], comparison.folder, *arguments[1:], check=2).stderr


def test_the_command_writes_a_figure_and_jupyter_shows_it(comparison, tmp_path):
    out = tmp_path / "deep" / "overview.svg"
    run("figure", "overview", comparison.folder, "--out", out)
    assert "PyTorch" in out.read_text()
    plot = comparison.plot("F1")
    assert plot._repr_html_().startswith("<svg")
    assert json.dumps(plot.specifications[0])
    assert "95 % confidence interval" in plot.caption


def test_one_framework_and_a_workload_are_named_in_their_words(comparison, tmp_path):
    plot = comparison.plot("epoch-time", frameworks="torch", models="alexnet")
    assert plot.parts
    with pytest.raises(UsageError, match="the width is 84; allowed: a number and a unit"):
        plot.save("figure.pdf", width=84)
    (folder,) = (Path(__file__).parents[1] / "archive" / "submissions").glob("torch-tensorflow-diabetes_ann-*")
    study = load_submission(folder, tmp_path / "study")
    assert dict(provenance.facts(study))["Data"] == "diabetes (614 generated rows)"
    memory = study.plot("memory")
    (svg,) = (part.svg for part in memory.parts.values())
    assert "rows/s" in svg and "images" not in svg
    assert memory.caption.startswith("Throughput and memory. Rows per second")
