"""Tables as text: their shape, what they claim, and that untrusted text stays text."""

import itertools
import re

import pytest
from drawn_study import study as study_of_figures
from stored_study import recorded
from table_study import ALL, FRAMEWORKS, MODELS, SECOND, csv_rows, ok
from table_study import study as table_study

from framework_compare.cli import console
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run, Sample
from framework_compare.report import study_table
from framework_compare.report.study_table import StudyTable
from framework_compare.report.tables import with_interval
from framework_compare.results.metrics import METRICS

STYLES = tuple(study_table.STYLES)
FAILURES = ("out-of-memory", "timed-out", "crashed", "not-installed", "unsupported", "diverged", "failed")


def study(place, outcomes, **fields):
    """One in a folder of its own."""
    return table_study(place / f"study-{len([*place.iterdir()])}", outcomes, **fields)


def mixed(folder, **fields):
    outcomes = {}
    for row, framework in enumerate(FRAMEWORKS):
        for column, model in enumerate(MODELS):
            place = row * 4 + column
            bad = place % 2 and Run(FAILURES[place % len(FAILURES)], reason=f"reason of {framework} and {model}")
            outcomes[framework, model] = bad or ok(*[place + 1 + n / 100 for n in range(4)])
    return study(folder, outcomes, **fields), outcomes


def failures(outcomes):
    return [run for run in outcomes.values() if run.status != "ok"]


@pytest.mark.parametrize("datasets", [("small",), ("fire-smoke-small", "fire-smoke-big")], ids=["one-set", "two-sets"])
def test_no_status_and_no_reason_is_ever_cut_and_the_terminal_table_keeps_to_its_width(tmp_path, datasets):
    comparison, outcomes = mixed(tmp_path, datasets=datasets)
    for kind, width in itertools.product(("time", "resources"), (20, 40, 80, 160)):
        text = comparison.table(kind, width=width)
        for run in failures(outcomes):
            assert f"{run.status} (" in text and run.reason in " ".join(text.split()), (kind, width)
        assert "…" not in text, (kind, width)
    for width in (60, 80, 160):
        assert max(map(len, comparison.table(width=width).splitlines())) <= width


def body(text):
    """The lines of a terminal table from its headings on."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("framework"))
    return lines[start - 1], [line.split() for line in lines[start:]]


def test_rows_are_a_framework_with_a_time_and_a_ratio_a_model(tmp_path):
    outcomes = {(f, m): ok(row + 1) for row, f in enumerate(FRAMEWORKS) for m in MODELS}
    titles, lines = body(study(tmp_path, outcomes).table(width=120))
    assert titles.split() == ["AlexNet", "MobileNetV2", "ResNet-50", "VGG-16", "mean"]
    assert lines[0] == ["framework", *4 * ["s", "ratio"], "ratio"]
    names = ("PyTorch", "TensorFlow", "MXNet", "PaddlePaddle")
    assert lines[2:6] == [[name, *4 * [f"{n}.00", f"{n}.00"], f"{n}.00"] for n, name in enumerate(names, 1)]
    outcomes = {("torch", m): ok(1) for m in MODELS}
    assert "best" not in str(study(tmp_path, outcomes).table()), "a framework alone has no ratio"
    titles, lines = body(study(tmp_path, outcomes, datasets=("small", "big")).table(width=100))
    assert titles.split() == ["AlexNet", "MobileNetV2", "ResNet-50", "VGG-16"]
    assert lines[0] == ["framework"] + ["small", "big"] * 4


def test_rows_are_in_the_order_of_the_geometric_mean_of_their_ratios(tmp_path):
    seconds = {"torch": (8, 1), "tensorflow": (1, 6), "mxnet": (2, 1.5), "paddle": (1, None)}
    outcomes = {}
    for name, (first, second) in seconds.items():
        outcomes[name, "alexnet"] = ok(first)
        outcomes[name, "vgg16"] = ok(second) if second else Run("failed", "no reason")
    lines = study(tmp_path, outcomes).table(style="markdown").splitlines()
    found = [[field.strip() for field in line.split("|")[1:-1]] for line in lines if line.startswith("|")][2:]
    assert [(row[0], row[2], row[4], row[5]) for row in found] == [
        ("MXNet", "2.00", "1.50", "1.73"),
        ("TensorFlow", "1.00", "6.00", "2.45"),
        ("PyTorch", "8.00", "1.00", "2.83"),
        ("PaddlePaddle", "1.00", "-", "1.00 (2)"),
    ]
    assert "(2) over 1 of 2" in lines


def test_the_two_tables_of_twenty_cells_fit_eighty_columns(tmp_path, monkeypatch, capsys):
    outcomes = {(f, m): [ok(n, n + 0.01, n + 0.02)] * 3 for n, f in enumerate(ALL, 1) for m in MODELS}
    comparison = study(tmp_path, outcomes, repeats=3)
    monkeypatch.delenv("COLUMNS", raising=False)
    console.print_tables(comparison, "terminal")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and sum("PaddlePaddle  " in line for line in lines) >= 5


def test_the_caption_names_what_is_not_the_default_and_each_set_of_settings_has_a_table(tmp_path):
    config = TrainConfig(batch_size=50, epochs=7, threads=2, execution="graph", pipeline="shared", precision="tf32")
    caption = study(tmp_path, {("torch", "alexnet"): ok(1)}, configs=[config]).table(style="markdown").splitlines()[0]
    assert caption == (
        "Epoch time in seconds, geometric mean over runs ± larger half-width of the 95 % confidence interval. "
        "CPU, batch 50, execution graph, pipeline shared, "
        "precision tf32, 2 threads, 1 loader worker, 7 epochs, 1 run per cell. small: 791 images, 2 skipped."
    )
    configs = [TrainConfig(batch_size=1), TrainConfig(batch_size=100), TrainConfig(device="cuda", learning_rate=0.5)]
    text = study(tmp_path, {("torch", "alexnet"): ok(1)}, configs=configs).table(style="markdown")
    captions = [line for line in text.splitlines() if line.startswith("Epoch time")]
    assert ["batch 1," in captions[0], "batch 100," in captions[1], "GPU" in captions[2]] == [True] * 3
    assert "learning rate 0.5" in captions[2]


def test_cells_that_failed_or_were_not_run_or_planned_are_shown(tmp_path):
    outcomes = {(f, m): Run("not-installed", reason="no network") for f in FRAMEWORKS for m in MODELS}
    comparison = study(tmp_path, outcomes)
    for kind, style in itertools.product(("time", "resources"), STYLES):
        text = comparison.table(kind, style)
        assert text.count("not-installed") == 16, (kind, style)
        assert text.count("no network") == (16 if style == "csv" else 1), (kind, style)
    assert "planned" in str(study(tmp_path, {("torch", "alexnet"): None}).table())
    outcomes = {("torch", "alexnet"): ok(1), ("paddle", "vgg16"): ok(1)}
    assert "| PaddlePaddle | - | - | 1.00 | 1.00 | 1.00 (1) |" in study(tmp_path, outcomes).table(style="markdown")


@pytest.mark.parametrize(
    ("times", "marked", "note"),
    [
        ({"torch": (1, 1.01, 1.02), "paddle": (2, 2.01, 2.02)}, "**1.01 ±0.03**", "Marked"),
        ({"torch": (1, 1.5, 2), "paddle": (1.1, 1.4, 2.1)}, None, "marked as fastest (no significant difference)"),
        ({"torch": (1,), "paddle": (2,)}, None, "marked as fastest (fewer than 2 runs)"),
        ({"torch": (1, 1.01, 1.02)}, None, ""),
    ],
    ids=["apart", "overlapping", "one-run", "alone"],
)
def test_the_fastest_is_marked_only_where_runs_show_it(tmp_path, times, marked, note):
    outcomes = {(framework, "alexnet"): [ok(s, s, s) for s in seconds] for framework, seconds in times.items()}
    text = study(tmp_path, outcomes, repeats=len(times["torch"])).table(style="markdown")
    assert re.findall(r"\*\*.*?\*\*", text) == ([marked] if marked else [])
    assert note in text
    assert ("arked" in text) == bool(note)


def test_the_mark_is_bold_where_the_terminal_can_and_githubs_style_folds_its_notes(tmp_path):
    outcomes = {("torch", "alexnet"): ok(1, 1, 1), ("paddle", "alexnet"): ok(2, 2, 2)}
    comparison = study(tmp_path, outcomes, repeats=2)
    assert "\x1b[1m* 1.00 ±0.00\x1b[0m" in comparison.table(bold=True)
    assert "* 1.00 ±0.00" in comparison.table(bold=False)
    assert "\x1b" not in comparison.table(bold=False)
    assert str(comparison) == str(comparison.table()) == comparison.table(style="terminal")
    text = comparison.table(style="github")
    assert text.startswith("- AlexNet: PyTorch is 2.00x ") and "**Epoch time" in text
    assert "<details><summary>Notes</summary>\n\n- Bold: significantly faster" in text and text.endswith("</details>\n")


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (12.345, 12.0, 12.7, "12.3 ±0.4"),
        (401.26, 401.0, 401.5, "401.3 ±0.3"),
        (16480.0, 16360.0, 16600.0, "16480 ±120"),
        (2.5, 1.3, 3.7, "2.50 ±1.20"),
        (2.64, 0.25, 27.44, "2.64 [0.250, 27.4]"),  # ±24.8 would begin below 0
        (2.0, 2.0, 2.0, "2.00 ±0.00"),
        (2.0, float("nan"), float("nan"), "2.00"),
    ],
)
def test_a_mean_has_the_digits_that_its_interval_leaves_sure(mean, low, high, text):
    assert with_interval(mean, low, high) == text


def test_resources_have_a_row_a_cell_and_what_the_comparison_itself_took(tmp_path):
    lost = Run("out-of-memory", "8 GiB", peak_rss_bytes=2**33)
    outcomes = {("torch", "alexnet"): ok(2, 2, 2), ("paddle", "alexnet"): lost}
    lines = study(tmp_path, outcomes).table("resources", "markdown").splitlines()
    assert "| PyTorch | AlexNet | 50.0 | 10.0 | 103 | 105 | - | 1.00 | 11 |" in lines
    assert "| PaddlePaddle | AlexNet | out-of-memory (1) | - | - | - | - | 8.00 | - |" in lines
    assert not any("GPU" in line for line in lines)
    run = Run("ok", epochs=ok(2).epochs, samples=(Sample(SECOND, gpu_percent=50.0, gpu_memory_bytes=2**30),))
    assert "GPU / mean %" in study(tmp_path, {("torch", "alexnet"): run}).table("resources", "markdown")
    parent = {"parent": {"cpu_percent": 0.44, "peak_rss_bytes": 64 * 2**20}}
    epochs = (Epoch(1, 0, 10**9, 0.0, 8, 2, 1.0, 0.1, 0.1, 0.1),)
    cells = [Cell("torch", name, "d", "cpu", TrainConfig()) for name in ("alexnet", "vgg16", "resnet50")]
    short = {"parent": {"cpu_percent": 328.0, "peak_rss_bytes": 64 * 2**20}}  # of a worker that only said no
    runs = [Run("ok", epochs=epochs, gauges=gauges) for gauges in ({}, parent)]
    runs.append(Run("unsupported", "no", gauges=short))
    text = recorded(tmp_path / "s", cells, runs).table("resources", width=200)
    assert "Measurement overhead: at most 0.4 % of a core and 64 MiB." in text


def test_csv_is_long_and_has_every_cell_with_nine_digits_and_the_ratio_to_the_best(tmp_path):
    comparison, outcomes = mixed(tmp_path)
    rows = csv_rows(comparison.table(style="csv"))
    found = {(row["framework"], row["model"]): row["status"] for row in rows}
    assert found == {key: run.status for key, run in outcomes.items()}
    assert (float(rows[0]["epoch_s"]), rows[0]["batch_size"]) == (pytest.approx(1.015), "16")
    outcomes = {("torch", "alexnet"): ok(1 / 3), ("paddle", "alexnet"): ok(2 / 3)}
    comparison = study(tmp_path, outcomes)
    rows = csv_rows(comparison.table(style="csv"))
    assert [row["epoch_s_median"] for row in rows] == ["0.333333333", "0.666666667"]
    assert [round(float(row["ratio_to_best"]), 6) for row in rows] == [1, 2]
    assert all(len(re.sub(r"[^0-9]", "", row["epoch_s"])) <= 10 for row in rows)


@pytest.mark.parametrize("most", [900_000, 300])
def test_githubs_style_goes_to_the_summary_of_a_job_up_to_its_size(tmp_path, monkeypatch, capsys, most):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setattr(console, "SUMMARY_BYTES", most)
    console.print_tables(study(tmp_path, {(f, m): ok(1) for f in FRAMEWORKS for m in MODELS}), "github")
    summary, printed = (tmp_path / "summary.md").read_text(), capsys.readouterr().out
    assert ("Truncated:" in summary) == (most == 300) and "PaddlePaddle" in printed
    assert summary.startswith("not yet · ") and len(summary) < most + 200


@pytest.fixture(scope="module")
def table(comparison) -> StudyTable:
    return comparison.table("time")


@pytest.fixture(scope="module")
def halves(tmp_path_factory) -> StudyTable:
    """The table of a study_of_figures of two batch sizes, which has two parts."""
    configs = (TrainConfig(batch_size=1), TrainConfig(batch_size=8))
    return study_of_figures(tmp_path_factory.mktemp("halves") / "study", configs=configs, failing=()).table()


def test_a_part_has_columns_rows_and_a_frame_with_the_numbers_of_the_study_and_their_units(table, comparison):
    (part,) = table.parts
    assert part.columns[:3] == ("framework", "AlexNet / s", "AlexNet / ratio")
    assert all(len(row.names) + len(row.values) == len(part.columns) for row in part.rows)
    assert {row.names[0] for row in part.rows} == {"PyTorch", "MXNet", "JAX"}
    assert part.caption.startswith("Epoch time") and part.verdicts and part.remarks
    assert table.frame["epoch_s_median"].equals(comparison.frame["epoch_s_median"])
    assert len(table.frame) == len(comparison.frame)
    resources = comparison.table("resources")
    figures = {name: resources.units[name] for name in ("peak_rss_bytes", "data_wait_share", "cpu_percent_mean")}
    assert figures == {"peak_rss_bytes": "B", "data_wait_share": "", "cpu_percent_mean": "% of a core"}
    assert comparison.table("time").units["epoch_s_median"] == "s"
    assert comparison.table("time").units["ratio_to_best"] == ""
    assert METRICS["step_s_median"].si_unit == "s", "which tables show in ms"


def test_printed_it_is_text_and_jupyter_shows_html_and_a_style_by_name_is_that_of_its_method(comparison, table):
    assert all(comparison.table("time", style) == method(table) for style, method in study_table.STYLES.items())
    assert str(table) == table.to_text() and table.to_text(width=40, bold=False) != table.to_text(width=200, bold=False)
    assert table._repr_html_() == table.to_html() and table.to_html().count("<table>") == 1
    assert "\x1b[1m" in table.to_text(bold=True) or "Marked" not in str(table)


def test_latex_takes_a_label_and_a_caption_and_without_notes_has_no_mark_that_points_to_one(table, halves):
    text = table.to_latex(label="tab:cpu", caption="Our times")
    assert r"\label{tab:cpu}" in text and r"\caption{Our times}" in text
    assert "Epoch time in seconds" in text.split(r"\end{tabular}")[1]
    assert r"\label{tab:cpu}" in halves.to_latex(label="tab:cpu") and r"\label{tab:cpu2}" in halves.to_latex("tab:cpu")
    assert "textsuperscript" in table.to_latex()
    bare = table.to_latex(notes=False)
    assert "textsuperscript" not in bare and "raggedright" not in bare and r"\bottomrule" in bare


def test_what_a_reason_holds_and_a_sentence_in_place_of_a_table_are_escaped(tmp_path):
    failure = Run("failed", "<img src=x onerror=alert(1)> & more")
    text = study_of_figures(tmp_path / "study", failure=failure).table().to_html()
    assert "<img" not in text and "&lt;img src=x onerror=alert(1)&gt; &amp; more" in text
    absent = StudyTable("energy", [], ["</p><script>\n|x|"], lambda: None)
    assert absent.to_html() == "<p>&lt;/p&gt;&lt;script&gt; |x|</p>\n"
    assert absent.to_latex() == "% </p><script> |x|\n" and absent.to_markdown() == "&lt;/p&gt;&lt;script&gt; \\|x\\|\n"


def test_settings_that_differ_make_parts_and_a_kind_that_the_study_has_not_is_a_sentence(comparison, halves):
    table = comparison.table("scaling")
    assert table.parts == () and table.text("latex").startswith("% ")
    assert all("same batch size" in table.text(style) for style in STYLES if style != "csv")
    assert len(halves.parts) == 2 and halves.to_markdown().count("| :--- |") == 2
    assert repr(halves) == "StudyTable('time', 2 parts)"
