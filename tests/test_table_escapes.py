"""Untrusted text stays text in every style of table."""

from __future__ import annotations

import csv
import io
import re

import pytest
from table_study import ok, study

from framework_compare.records import Run
from framework_compare.report import renderers, study_table, terminal
from framework_compare.report.tables import Group, Row, Table, Value

STYLES = tuple(study_table.STYLES)
HOSTILE = "[bold]x[/bold] [link=http://e]y[/] |a| \\cmd{z} $m$ 50% #1 _u_ *s* `c` <b>&amp; ~^"
HOSTILE += "\n\x1b[31mred\x1b[0m\x07\u202eend"


def hostile(folder, style, **terminal_fields):
    outcomes = {("torch", "alexnet"): Run("failed", reason=HOSTILE), ("paddle", "alexnet"): ok(1)}
    return study(folder, outcomes).table(style=style, **terminal_fields)


@pytest.mark.parametrize("style", STYLES)
def test_no_control_character_gets_through(tmp_path, style):
    text = hostile(tmp_path, style)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "red end" in text


def test_terminal_markup_in_a_reason_is_text(tmp_path):
    assert "[bold]x[/bold] [link=http://e]y[/]" in hostile(tmp_path, "terminal", width=200)


def test_markdown_in_a_reason_is_text(tmp_path):
    text = hostile(tmp_path, "markdown")
    assert r"\|a\| \\cmd{z} \$m\$ 50% \#1 \_u\_ \*s\* `c` &lt;b&gt;&amp;amp; \~^ red end" in text
    assert "mobilenet_v2" == renderers.escape_markdown("mobilenet_v2")


def test_latex_in_a_reason_is_text(tmp_path):
    text = hostile(tmp_path, "latex")
    assert r"\textbar{}a\textbar{} \textbackslash{}cmd\{z\} \$m\$ 50\% \#1 \_u\_ {*}s{*}" in text
    assert r"\textless{}b\textgreater{}\&amp; \textasciitilde{}\textasciicircum{} red end" in text
    assert renderers.escape_latex("--x ---y a-b") == "-{}-x -{}-{}-y a-b"


@pytest.mark.parametrize("start", ["=1+1", "@x", "+1", "-1"])
def test_a_reason_is_no_formula_in_a_spreadsheet(tmp_path, start):
    outcomes = {("torch", "alexnet"): Run("failed", reason=start)}
    rows = list(csv.DictReader(io.StringIO(study(tmp_path, outcomes).table(style="csv"))))
    assert rows[0]["reason"] == "'" + start


def test_a_reason_as_long_as_a_log_is_cut_in_the_note_only(tmp_path):
    comparison = study(tmp_path, {("torch", "alexnet"): Run("failed", reason="x" * 9000)})
    assert "x" * 399 + "…" in comparison.table(style="markdown")
    assert comparison.frame["reason"][0] == "x" * 9000


def table(text):
    values = (Value(text, text or "note"), Value(text, best=True))
    return Table(text, (text,), (Group(text, (text, text)),), (Row((text,), values),))


@pytest.mark.parametrize(
    "render",
    [renderers.markdown, renderers.github, renderers.latex, lambda t: terminal.render(t, width=40, bold=False)],
)
@pytest.mark.parametrize("text", [HOSTILE, "", "日本語" * 20, "x" * 500], ids=["hostile", "empty", "wide", "long"])
def test_any_text_may_stand_anywhere(render, text):
    assert "\x1b" not in render(table(text))


def test_markdown_rows_have_as_many_fields_as_the_head():
    lines = [line for line in renderers.markdown(table("a|b")).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}


def test_latex_spans_and_rules_count_the_columns():
    text = renderers.latex(table("x"))
    assert r"\begin{tabular}{lrr}" in text
    assert r" & \multicolumn{2}{c}{x} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"x & {x\textsuperscript{(1)}} & {\bfseries x} \\" in text


def test_code_in_a_note_is_code_in_markdown_and_a_lone_backtick_is_text():
    assert renderers.escape_markdown("run `env a|b *c*` on x*y <b>") == r"run `env a\|b *c*` on x\*y &lt;b&gt;"
    assert renderers.escape_markdown("a ` b | c") == r"a \` b \| c"
