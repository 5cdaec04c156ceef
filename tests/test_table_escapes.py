"""Untrusted text stays text in every style of table."""

import functools
import re
import shutil
import subprocess

import pytest
from drawn_study import FRAMEWORKS, MODELS
from drawn_study import study as latex_study
from table_study import csv_rows, ok, study

from framework_compare.records import Run
from framework_compare.report import renderers, study_table, terminal
from framework_compare.report.latex import latex
from framework_compare.report.tables import Group, Row, Table, Value

STYLES = tuple(study_table.STYLES)
HOSTILE = "[bold]x[/bold] [link=http://e]y[/] |a| \\cmd{z} $m$ 50% #1 _u_ *s* `c` <b>&amp; ~^"
HOSTILE += "\n\x1b[31mred\x1b[0m\x07\x00\u202eend"


def hostile(folder):
    return study(folder, {("torch", "alexnet"): Run("failed", reason=HOSTILE), ("paddle", "alexnet"): ok(1)})


def test_neither_control_characters_nor_markup_of_a_reason_get_through(tmp_path):
    comparison = hostile(tmp_path)
    texts = {style: comparison.table(style=style) for style in STYLES}
    for text in texts.values():
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) and "red end" in text
    assert "[bold]x[/bold] [link=http://e]y[/]" in comparison.table(style="terminal", width=200)
    text = texts["markdown"]
    assert r"\|a\| \\cmd{z} \$m\$ 50% \#1 \_u\_ \*s\* `c` &lt;b&gt;&amp;amp; \~^ red end" in text
    assert "mobilenet_v2" == renderers.escape_markdown("mobilenet_v2")
    text = texts["latex"]
    assert r"\textbar{}a\textbar{} \textbackslash{}cmd\{z\} \$m\$ 50\% \#1 \_u\_ {*}s{*}" in text
    assert r"\textless{}b\textgreater{}\&amp; \textasciitilde{}\textasciicircum{} red end" in text
    assert renderers.escape_latex("--x ---y a-b") == "-{}-x -{}-{}-y a-b"


def test_a_reason_is_no_formula_in_a_spreadsheet(tmp_path):
    for start in ("=1+1", "@x", "+1", "-1"):
        comparison = study(tmp_path / start, {("torch", "alexnet"): Run("failed", reason=start)})
        (row,) = csv_rows(comparison.table(style="csv"))
        assert row["reason"] == "'" + start


def test_a_reason_as_long_as_a_log_is_cut_in_the_note_only(tmp_path):
    comparison = study(tmp_path, {("torch", "alexnet"): Run("failed", reason="x" * 9000)})
    assert "x" * 399 + "…" in comparison.table(style="markdown")
    assert comparison.frame["reason"][0] == "x" * 9000


def table(text):
    values = (Value(text, text or "note"), Value(text, best=True))
    return Table(text, (text,), (Group(text, (text, text)),), (Row((text,), values),))


@pytest.mark.parametrize("text", [HOSTILE, "", "日本語" * 20, "x" * 500], ids=["hostile", "empty", "wide", "long"])
def test_any_text_may_stand_anywhere(text):
    in_terminal = functools.partial(terminal.render, width=40, bold=False)
    for render in (renderers.markdown, renderers.github, renderers.latex, in_terminal):
        assert "\x1b" not in render(table(text))


def test_code_in_a_note_is_code_and_rows_and_spans_count_the_columns():
    lines = [line for line in renderers.markdown(table("a|b")).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    text = renderers.latex(table("x"))
    assert r"\begin{tabular}{lrr}" in text
    assert r" & \multicolumn{2}{c}{x} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"x & {x\textsuperscript{(1)}} & {\bfseries x} \\" in text
    assert renderers.escape_markdown("run `env a|b *c*` on x*y <b>") == r"run `env a\|b *c*` on x\*y &lt;b&gt;"
    assert renderers.escape_markdown("a ` b | c") == r"a \` b \| c"


HOSTILE_LATEX = r"[x] *s* \cmd{z} $m$ 50% #1 _u_ `c` <b>& ~^ ''q'' \"d\" -- a|b Größe … · 3 °C ± é"
PACKAGES = "texlive-latex-base texlive-latex-recommended texlive-science"


def compiled(folder, *sources: str, room: float = 3.0) -> str:
    """The log of an article with these tables; it must compile, and no line be wider than the page by `room` points."""
    missing = [name for name in ("siunitx.sty", "booktabs.sty") if not _there(name)]
    if shutil.which("pdflatex") is None or missing:
        pytest.skip(
            f"no LaTeX with siunitx is installed; on Debian: apt-get install --no-install-recommends {PACKAGES}"
        )
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,textcomp,siunitx}\begin{document}"
    (folder / "tables.tex").write_text("\n".join((head, *sources, r"\end{document}")))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "-no-shell-escape", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", done.stdout)]
    assert max(wide, default=0.0) < room, f"wider than the page by {wide} points"
    return done.stdout


def _there(name: str) -> bool:
    found = shutil.which("kpsewhich") and subprocess.run(["kpsewhich", name], capture_output=True).returncode == 0
    return bool(found)


def column(*texts: str, **fields) -> Table:
    rows = tuple(Row(("a",), (Value(text, **fields),)) for text in texts)
    return Table("Times.", ("name",), (Group("", ("s",)),), rows)


@pytest.mark.parametrize(
    ("texts", "head", "figures"),
    [
        (("12.3 ±0.4", "0.928 ±0.003"), "S[table-format=2.3(1)]", ("12.3(4)", "0.928(3)")),
        (("16480 ±120", "2.50 ±1.20"), "S[table-format=5.2(3)]", ("16480(120)", "2.50(120)")),
        (("≈40.7 ±16.9", "≈118"), r"S[table-format=\approx 3.1(3)]", (r"\approx 40.7(169)", r"\approx 118")),
        (("1,234", "7"), "S[table-format=4]", ("1234", "7")),
        (("2.00", "-"), "S[table-format=1.2]", ("2.00", "{-}")),
        (("103-105", "never"), "r", ("{103-105}", "{never}")),
    ],
)
def test_columns_of_numbers_are_siunitxs(texts, head, figures):
    text = latex(column(*texts))
    assert f"\\begin{{tabular}}{{l{head}}}" in text
    assert re.findall(r"^a & (.*) \\\\$", text, re.MULTILINE) == list(figures)


def test_the_best_is_bold_and_a_note_follows_the_number_for_which_the_column_has_room():
    assert r"a & \bfseries 1.5(2) {\textsuperscript{(1)}} \\" in latex(column("1.5 ±0.2", best=True, note="why"))
    rows = (Row(("a",), (Value("1.5 ±0.2", str(number)),)) for number in range(1, 13))
    text = latex(Table("Run `env create a_b`.", ("name",), (Group("", ("s",)),), tuple(rows)))
    assert r"\caption{Run \texttt{env create a\_b}.}" in text
    assert r"S[table-format=1.1(1){\textsuperscript{(12)}}]" in text


def test_a_label_and_what_to_load_stand_in_the_text(tmp_path):
    text = latex_study(tmp_path / "study").table("time", "latex")
    assert r"\label{tab:time}" in text and text.startswith("% In the preamble (siunitx 3;")
    assert "PyTorch" in text and "VGG-16" in text


def test_a_real_latex_sets_every_kind_of_table(tmp_path):
    comparison = latex_study(tmp_path / "study")
    log = compiled(tmp_path, *(comparison.table(kind, "latex") for kind in comparison.kinds))
    assert "undefined" not in log


def test_five_frameworks_and_four_models_fit_a_page(tmp_path):
    comparison = latex_study(tmp_path / "study", FRAMEWORKS, MODELS, failing=[("jax", "vgg16")])
    compiled(tmp_path, *(comparison.table(kind, "latex") for kind in comparison.kinds))


def test_a_real_latex_sets_any_text(tmp_path):
    values = (Value(HOSTILE_LATEX, HOSTILE_LATEX), Value("2.5 ±0.1", HOSTILE_LATEX, True), Value("-"))
    groups = (Group(HOSTILE_LATEX, (HOSTILE_LATEX, "b", "c")),)
    table = Table(HOSTILE_LATEX, (HOSTILE_LATEX,), groups, (Row((HOSTILE_LATEX,), values),) * 2)
    compiled(tmp_path, latex(table, "tab:any"), renderers.latex(table), room=1000)
