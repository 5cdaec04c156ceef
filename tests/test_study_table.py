"""A table of a study as an object: what it holds, and that each style is the one that its name gives."""

from __future__ import annotations

import pytest
from drawn_study import study

from framework_compare.protocol import TrainConfig
from framework_compare.records import Run
from framework_compare.report import study_table
from framework_compare.report.study_table import StudyTable


@pytest.fixture(scope="module")
def table(comparison) -> StudyTable:
    return comparison.table("time")


@pytest.fixture(scope="module")
def halves(tmp_path_factory) -> StudyTable:
    """The table of a study of two batch sizes, which has two parts."""
    configs = (TrainConfig(batch_size=1), TrainConfig(batch_size=8))
    return study(tmp_path_factory.mktemp("halves") / "study", configs=configs, failing=()).table()


def test_a_part_has_columns_and_rows_of_them(table, comparison):
    (part,) = table.parts
    assert part.columns[:3] == ("framework", "AlexNet / s", "AlexNet / ratio")
    assert all(len(row.names) + len(row.values) == len(part.columns) for row in part.rows)
    assert {row.names[0] for row in part.rows} == {"PyTorch", "MXNet", "JAX"}
    assert part.caption.startswith("Median epoch time") and part.verdicts and part.remarks


def test_its_frame_has_the_numbers_of_the_studys(table, comparison):
    assert table.frame["epoch_s_median"].equals(comparison.frame["epoch_s_median"])
    assert len(table.frame) == len(comparison.frame)


def test_every_figure_of_its_frame_has_a_unit(comparison):
    table = comparison.table("resources")
    figures = {name: table.units[name] for name in ("peak_rss_bytes", "data_wait_share", "cpu_percent_mean")}
    assert figures == {"peak_rss_bytes": "B", "data_wait_share": "", "cpu_percent_mean": "% of a core"}
    assert comparison.table("time").units["epoch_s_median"] == "s"
    assert comparison.table("time").units["ratio_to_best"] == ""


@pytest.mark.parametrize("style", study_table.STYLES)
def test_a_style_by_name_is_that_of_its_method(comparison, table, style):
    assert comparison.table("time", style) == study_table.STYLES[style](table)


def test_printed_it_is_text_and_jupyter_shows_html(table):
    assert str(table) == table.to_text() and table.to_text(width=40, bold=False) != table.to_text(width=200, bold=False)
    assert table._repr_html_() == table.to_html() and table.to_html().count("<table>") == 1
    assert "\x1b[1m" in table.to_text(bold=True) or "Marked" not in str(table)


def test_html_escapes_what_a_reason_holds(tmp_path):
    failure = Run("failed", "<img src=x onerror=alert(1)> & more")
    text = study(tmp_path / "study", failure=failure).table().to_html()
    assert "<img" not in text and "&lt;img src=x onerror=alert(1)&gt; &amp; more" in text


def test_latex_takes_a_label_and_a_caption_and_keeps_the_settings(table, halves):
    text = table.to_latex(label="tab:cpu", caption="Our times")
    assert r"\label{tab:cpu}" in text and r"\caption{Our times}" in text
    assert "Median epoch time in seconds" in text.split(r"\end{tabular}")[1]
    assert r"\label{tab:cpu}" in halves.to_latex(label="tab:cpu") and r"\label{tab:cpu2}" in halves.to_latex("tab:cpu")


def test_latex_without_notes_has_no_mark_that_points_to_one(table):
    assert "textsuperscript" in table.to_latex()
    bare = table.to_latex(notes=False)
    assert "textsuperscript" not in bare and "raggedright" not in bare and r"\bottomrule" in bare


def test_a_sentence_in_place_of_a_table_is_escaped():
    absent = StudyTable("energy", [], ["</p><script>\n|x|"], lambda: None)
    assert absent.to_html() == "<p>&lt;/p&gt;&lt;script&gt; |x|</p>\n"
    assert absent.to_latex() == "% </p><script> |x|\n" and absent.to_markdown() == "&lt;/p&gt;&lt;script&gt; \\|x\\|\n"


@pytest.mark.parametrize("style", [style for style in study_table.STYLES if style != "csv"])
def test_a_kind_that_the_study_has_not_is_a_sentence(comparison, style):
    table = comparison.table("scaling")
    assert table.parts == () and "same batch size" in table.text(style)
    assert table.text("latex").startswith("% ")


def test_settings_that_differ_make_parts(halves):
    assert len(halves.parts) == 2 and halves.to_markdown().count("| :--- |") == 2
    assert repr(halves) == "StudyTable('time', 2 parts)"
