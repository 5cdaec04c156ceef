"""Tables in LaTeX: what siunitx is given, and that a real LaTeX sets them."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from drawn_study import study

from framework_compare.report import renderers
from framework_compare.report.latex import latex
from framework_compare.report.tables import Group, Row, Table, Value

HOSTILE = r"[x] *s* \cmd{z} $m$ 50% #1 _u_ `c` <b>& ~^ ''q'' \"d\" -- a|b Größe … · 3 °C ± é"
PACKAGES = "texlive-latex-base texlive-latex-recommended texlive-science"


def compiled(folder, *sources: str, room: float = 3.0) -> str:
    """The log of an article with these tables; it must compile, and no line be wider than the page by `room` points."""
    missing = [name for name in ("siunitx.sty", "booktabs.sty") if not _there(name)]
    if shutil.which("pdflatex") is None or missing:
        pytest.skip(
            f"no LaTeX with siunitx is installed; on Debian: apt-get install --no-install-recommends {PACKAGES}"
        )
    packages = r"\usepackage[T1]{fontenc}\usepackage{booktabs,textcomp,siunitx}"
    text = "\n".join(sources)
    (folder / "tables.tex").write_text(
        f"\\documentclass{{article}}{packages}\\begin{{document}}\n{text}\\end{{document}}\n"
    )
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


def test_the_best_is_bold_and_a_note_follows_the_number():
    assert r"a & \bfseries 1.5(2) {\textsuperscript{(1)}} \\" in latex(column("1.5 ±0.2", best=True, note="why"))


def test_a_label_and_what_to_load_stand_in_the_text(tmp_path):
    text = study(tmp_path / "study").table("time", "latex")
    assert r"\label{tab:time}" in text and text.startswith("% In the preamble (siunitx 3;")
    assert "PyTorch" in text and "VGG-16" in text


def test_a_real_latex_sets_every_kind_of_table(tmp_path):
    comparison = study(tmp_path / "study")
    log = compiled(tmp_path, *(comparison.table(kind, "latex") for kind in comparison.kinds))
    assert "undefined" not in log


def test_five_frameworks_and_four_models_fit_a_page(tmp_path):
    frameworks, models = (
        ("torch", "tensorflow", "mxnet", "paddle", "jax"),
        ("alexnet", "mobilenet_v2", "resnet50", "vgg16"),
    )
    comparison = study(tmp_path / "study", frameworks, models, failing=[("jax", "vgg16")])
    compiled(tmp_path, *(comparison.table(kind, "latex") for kind in comparison.kinds))


def test_code_in_a_note_is_code_and_the_column_has_room_for_its_number():
    rows = (Row(("a",), (Value("1.5 ±0.2", str(number)),)) for number in range(1, 13))
    text = latex(Table("Run `env create a_b`.", ("name",), (Group("", ("s",)),), tuple(rows)))
    assert r"\caption{Run \texttt{env create a\_b}.}" in text
    assert r"S[table-format=1.1(1){\textsuperscript{(12)}}]" in text


def test_a_real_latex_sets_any_text(tmp_path):
    values = (Value(HOSTILE, HOSTILE), Value("2.5 ±0.1", HOSTILE, True), Value("-"))
    table = Table(HOSTILE, (HOSTILE,), (Group(HOSTILE, (HOSTILE, "b", "c")),), (Row((HOSTILE,), values),) * 2)
    compiled(tmp_path, latex(table, "tab:any"), renderers.latex(table), room=1000)
