"""Figures: each is drawn from a study that has its data, says why from one that has not, and has a paper's width."""

import dataclasses
import json
import re

import altair
import pytest
from bounds import digits
from drawn_study import run, study
from stored_study import recorded

from framework_compare.errors import UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.report.figures import files, look
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.figures.subject import Subject
from framework_compare.report.page import report
from framework_compare.report.study import rounded

DRAWN = digits(rounded.__defaults__[0])  # the digits of a specification's numbers
LESS = {"batch-sizes", "gains"}  # they need several settings


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    configs = tuple(TrainConfig(batch_size=b, execution=e) for b in (8, 16) for e in ("eager", "graph"))
    return study(tmp_path_factory.mktemp("varied") / "s", ("torch", "jax"), ("alexnet",), configs=configs, repeats=2)


def values(spec):
    """Every row of data of a specification."""
    return [row for rows in spec.get("datasets", {}).values() for row in rows]


def cell_of(part, *cell):
    """The rows of data of one cell."""
    return [row for row in values(part.spec) if [row["framework_label"], row["condition_label"]] == [*cell]]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_its_data_its_colours_its_width_and_a_finding_in_each_view(comparison, varied, name):
    subject = Subject(varied if name in LESS else comparison)
    usual = files.draw(subject, name)
    for view in ("", *[*FIGURES[name].views][1:]):
        parts = files.draw(subject, name, view=view)
        assert parts and parts.keys() == usual.keys()
        for title, part in parts.items():
            altair.Root.validate(part.spec)
            assert part.svg.startswith("<svg") and part.width > 100 and values(part.spec)
            assert not view or part.spec != usual[title].spec
            assert not re.search(r"[>\"](NaN|undefined|Infinity|null)[<\"]", part.svg)
            drawn = {one.upper() for one in re.findall(r"#[0-9A-Fa-f]{6}", json.dumps(part.spec))}
            hues = {one for one in drawn if len({one[1:3], one[3:5], one[5:7]}) > 1}
            assert hues <= {*look.COLOURS, look.WARNING}, "all else is grey"
    for width in report.WIDTHS:
        for part in files.draw(subject, name, width).values():
            assert part.width <= 1.12 * width, "the page shrinks a wider one, and its text with it"
    found = [view.finding(subject) for view in FIGURES[name].views.values()]
    assert len(set(found)) == len(found)
    for one in found:
        assert one.endswith(".") and one.count(". ") == 0 and re.search(r"\d", one)


def test_batch_sizes_are_joined_and_have_tiles_in_panels_of_their_settings(varied):
    (part,) = files.draw(Subject(varied), "memory").values()
    rows = values(part.spec)
    assert {row["condition_label"] for row in rows} == {"AlexNet, eager", "AlexNet, graph"}
    assert {(row["framework_label"], row["batch_size"]) for row in rows} == {
        (who, n) for who in ("PyTorch", "JAX") for n in (8, 16)
    }
    assert all(row["least"] <= row["gib"] * 1.001 and row["gib"] <= row["most"] * 1.001 for row in rows)
    (part,) = files.draw(Subject(varied), "batch-sizes").values()
    told = {(row["framework_label"], row["batch_size"], row["told"]) for row in values(part.spec) if "told" in row}
    assert {size for _, size, _ in told} == {8, 16}
    assert all(re.fullmatch(r"[\d.]+|ok|[a-z-]+", text) for _, _, text in told)
    panels = {row["model"] for row in values(part.spec)}
    assert len(panels) == 2 and all("batch" not in panel for panel in panels)
    for panel in panels:
        drawn = [(row["framework_label"], row["batch_size"]) for row in values(part.spec) if row["model"] == panel]
        assert len(drawn) == len(set(drawn)) == 4


def titles(spec):
    """Every title of an axis."""
    return set(re.findall(r'"title": "([^"]+)"', json.dumps(spec)))


@pytest.mark.parametrize(("missing", "name", "gib"), [(False, "PSS", [1, 2]), (True, "RSS", [4, 3])])
def test_memory_is_one_figure_by_one_name_in_all_panels(tmp_path, monkeypatch, missing, name, gib):
    """RSS and PSS order the two frameworks in opposite ways; one without PSS makes it RSS for both."""
    made = study(tmp_path / "study", ("torch", "jax"), ("alexnet",))
    frame = made.frame.assign(pss_peak_bytes=[2**30, 2**31], peak_rss_bytes=[2**32, 3 * 2**30])
    frame.loc[frame.index[: int(missing)], "pss_peak_bytes"] = float("nan")
    made.__dict__["frame"] = frame
    (part,) = files.draw(Subject(made), "memory").values()
    assert {row["framework_label"]: row["gib"] for row in values(part.spec)} == dict(zip(("PyTorch", "JAX"), gib))
    assert f"peak memory ({name}), GiB" in titles(part.spec)
    caption, finding = made.plot("memory").caption, FIGURES["memory"].seen_as().finding(Subject(made))
    other = {"PSS": "RSS", "RSS": "PSS"}[name]
    assert other not in f"{caption} {finding}" and f"({name})" in finding, (caption, finding)
    table = made.table("resources", "markdown")
    assert "peak GiB / PSS | peak GiB / RSS" in table and "PSS is the main figure" in table


def test_functions_of_cuda_are_shown_without_waiting_calls_too(comparison, monkeypatch):
    rows = comparison.profiled
    calls = {"operator 0": "cudaStreamSynchronize", "operator 1": "cudaLaunchKernel", "operator 2": "cudaMemcpyAsync"}
    cuda = rows[rows["name"].isin(calls)].assign(kind="cuda-runtime", name=lambda frame: frame["name"].map(calls))
    monkeypatch.setattr(type(comparison), "profiled", cuda)
    parts = files.draw(Subject(comparison), "functions")
    whole, busy = parts.values()
    assert [*parts][1] == "Host time by function of the CUDA API, without waiting calls"
    assert {row["name"] for row in values(busy.spec)} == {"cudaLaunchKernel", "cudaMemcpyAsync"}
    for part in (whole, busy):
        one = [row["share"] for row in cell_of(part, "PyTorch", "AlexNet")]
        assert sum(one) == pytest.approx(1, rel=DRAWN)
    assert "Synchronize" in whole.svg and "Synchronize" not in busy.svg


def test_shares_of_executions_and_lines_of_gains(varied):
    for part in files.draw(Subject(varied), "gains").values():
        (line,) = (layer for layer in part.spec["spec"]["layer"] if layer["encoding"].get("x", {}).get("datum") == 1)
        assert "y" not in line["encoding"], "with a place on the other axis it would lie along the bar"
    for part in files.draw(Subject(varied), "functions").values():
        shares = {}
        for row in values(part.spec):
            key = row["framework_label"], row["condition_label"]
            shares[key] = shares.get(key, 0) + row["share"]
        assert len(shares) == 8 and all(share == pytest.approx(1, rel=DRAWN) for share in shares.values())


def test_a_library_has_its_time_beside_that_of_the_plain_framework(tmp_path):
    both = study(tmp_path / "study", ("torch", "keras-torch", "jax"), ("alexnet",), failing=(), faster=2.0)
    parts = files.draw(Subject(both), "gains")
    (row,) = (row for row in values(parts["time relative to the plain framework"].spec) if "ratio" in row)
    (speed,) = both.table("stack").frame["ratio"].dropna()
    assert len(parts) == 1 and row["framework_label"] == "Keras (PyTorch)"
    assert row["ratio"] == pytest.approx(1 / speed, rel=DRAWN) and row["low"] <= row["ratio"] <= row["high"]
    assert FIGURES["gains"].seen_as().finding(Subject(both)) == (
        f"The slowest library takes {row['ratio']:.2f} times as long as its plain framework (Keras (PyTorch))."
    )


def test_the_speeds_drawn_are_images_by_the_seconds_of_their_epochs(comparison):
    (part,) = files.draw(Subject(comparison), "epoch-time", view="images per second").values()
    frame, seen = comparison.frame, set()
    for row in values(part.spec):
        if row.get("kind") != "cell" or row["x"] is None:
            continue
        cell = frame.loc[row["cell"]]
        images = cell["images_per_s"] * cell["epoch_s_median"]
        assert row["x"] == pytest.approx(cell["images_per_s"], rel=DRAWN)
        if row["low"] is not None and not row["high_cut"]:
            assert row["low"] == pytest.approx(images / cell["epoch_s_ci_high"], rel=DRAWN)
            assert row["high"] == pytest.approx(images / cell["epoch_s_ci_low"], rel=DRAWN)
            seen.add(row["cell"])
    assert seen


def test_a_saved_figure_and_its_views_have_the_unit_of_the_report(comparison, monkeypatch):
    monkeypatch.setattr(Subject, "unit", "sequence")
    for name, views, title in (
        ("F2", ("images per second", "sequences per second"), "sequences per second"),
        ("F9", ("",), "joules per sequence"),
    ):
        for view in views:
            plot = comparison.plot(name, view=view)
            assert f">{title}<" in plot.fitted(400.0).svg and title in titles(plot.specifications[0])
    with pytest.raises(UsageError, match='"sequences per second"'):
        comparison.plot("F2", view="rows per second")


def test_readings_have_phases_and_start_with_the_epochs_where_asked(comparison):
    whole, epochs = (
        next(iter(files.draw(Subject(comparison), "resources", view=view).values())).spec
        for view in ("", "from the first epoch")
    )
    starts = [min(row["t"] for row in values(spec) if row.get("t") is not None) for spec in (whole, epochs)]
    ends = [max(row["t"] for row in values(spec) if row.get("t") is not None) for spec in (whole, epochs)]
    assert 0 <= starts[1] < 1 and ends[1] < ends[0]
    assert {row["stage"] for row in values(epochs) if row.get("stage")} == {"measured epochs"}
    parts = files.draw(Subject(comparison), "resources")
    assert list(parts) == ["AlexNet", "VGG-16"]
    rows = values(parts["AlexNet"].spec)
    assert {row["framework_label"] for row in rows} == {"PyTorch", "MXNet", "JAX"}
    stages = {row["stage"]: row for row in rows if row.get("stage") and row["framework_label"] == "PyTorch"}
    assert list(stages) == ["start-up", "warm-up", "measured epochs"]
    assert stages["start-up"]["end"] == pytest.approx(stages["warm-up"]["start"])
    assert max(row["y0h"] for row in rows if "y0h" in row) <= 200


def test_start_up_and_energy_drawn_are_those_of_the_cells(comparison):
    (part,) = files.draw(Subject(comparison), "phases").values()
    drawn = sorted(row["seconds"] for row in values(part.spec) if row["name"] == "total start-up")
    assert drawn == pytest.approx(sorted(comparison.frame["startup_s"][comparison.frame["status"] == "ok"]), rel=DRAWN)
    (part,) = files.draw(Subject(comparison), "energy").values()
    rows = [row for row in values(part.spec) if row.get("low") is not None]
    assert rows
    for row in rows:
        whole = sum(one["j"] for one in cell_of(part, row["framework_label"], row["condition_label"]))
        assert row["low"] <= whole * 1.001 and whole * 0.999 <= row["high"] and row["wh"] > 0


def test_epoch_times_drawn_are_those_of_the_frame_with_marks_and_labels(comparison):
    (part,) = files.draw(Subject(comparison), "epoch-time").values()
    drawn = {row["cell"]: row["s"] for row in values(part.spec) if row.get("kind") == "cell"}
    frame = comparison.frame
    assert set(drawn) == set(frame.index)
    for place, seconds in drawn.items():
        assert seconds == pytest.approx(frame["epoch_s_median"][place], rel=DRAWN, nan_ok=True) or seconds is None
    assert [place for place, seconds in drawn.items() if seconds is None] == list(frame[frame["status"] != "ok"].index)
    assert "crashed" in part.svg
    assert part.svg.count("▲") == 2  # mxnet with both models
    (labels,) = (one for one in part.spec["spec"]["layer"] if one["encoding"].get("text", {}).get("field") == "label")
    assert labels["encoding"]["x"] == {"value": part.spec["spec"]["width"]} and labels["mark"]["align"] == "left"


@pytest.mark.parametrize("name", ["memory", "batch-sizes"])
def test_speeds_have_the_interval_of_their_epoch_times_and_a_mark_where_disturbed(comparison, varied, name):
    made = varied if name == "batch-sizes" else comparison
    (part,) = files.draw(Subject(made), name).values()
    frame = made.frame[made.frame["status"] == "ok"]
    expected = sorted(frame["images_per_s"] * frame["epoch_s_median"] / frame["epoch_s_ci_high"])
    rows = [row for row in values(part.spec) if row.get("slow") is not None]
    assert sorted(row["slow"] for row in rows) == pytest.approx(expected, rel=DRAWN)
    assert all(row["slow"] < row["images_per_s"] < row["fast"] for row in rows)
    assert part.svg.count("▲") == sum(bool(row["disturbed"]) for row in rows) > 0


def test_ratios_and_quality_drawn_are_those_of_the_study(comparison):
    (part,) = files.draw(Subject(comparison), "overview").values()
    verdict = next(one for one in comparison.verdicts() if (one.model, one.slower) == ("alexnet", "mxnet"))
    row = cell_of(part, "MXNet", "AlexNet")[0]
    assert row["interval"] == f"[{verdict.low:.2f}, {verdict.high:.2f}]"
    assert row["text"].endswith(f"{verdict.ratio:.2f}x")
    comparison.epochs["validation_accuracy"] = comparison.epochs["epoch"] / 10
    try:
        assert list(files.draw(Subject(comparison), "learning")) == ["loss", "validation accuracy"]
    finally:
        del comparison.epochs["validation_accuracy"]


def test_captions_explain_only_what_is_drawn(comparison, tmp_path):
    whole, epochs = (comparison.plot("resources", view=view) for view in ("", "from the first epoch"))
    assert "Grey backgrounds" in whole.caption and "Grey backgrounds" not in epochs.caption
    for plot, names in ((whole, ["start-up", "warm-up", "measured epochs"]), (epochs, ["measured epochs"])):
        spec = json.dumps(plot.parts["AlexNet"].spec)
        assert json.dumps(names) in spec and '"after the epochs"' not in spec

    assert "Waiting calls" not in comparison.plot("functions").caption
    calm = study(tmp_path / "study", ("torch",), ("alexnet",), failing=())
    for name, words in (("epoch-time", "A failed cell shows its status"), ("machine", "Hollow mark: disturbed epoch.")):
        assert words in comparison.plot(name).caption and words not in calm.plot(name).caption
    for name in ("memory", "epoch-time"):
        assert "triangle" in comparison.plot(name).caption and "triangle" not in calm.plot(name).caption
    assert "Red dot" in comparison.plot("epoch-time").caption and "Red dot" not in calm.plot("epoch-time").caption


def test_curves_on_a_cpu_and_on_a_gpu_share_a_panel(tmp_path):
    both = study(tmp_path / "study", ("torch", "jax"), configs=(TrainConfig(), TrainConfig(device="cuda")), repeats=2)
    (part,) = files.draw(Subject(both), "learning").values()
    assert {(row["condition_label"], row["device"]) for row in values(part.spec)} == {
        ("AlexNet", "CPU"),
        ("AlexNet", "GPU"),
        ("VGG-16", "CPU"),
        ("VGG-16", "GPU"),
    }
    assert '"strokeDash": {"field": "device"' in json.dumps(part.spec)
    lines = re.findall(r'd="M([-\d.]+),0L([-\d.]+),0"[^>]*stroke-dasharray="(\d+),(\d+)"', part.svg)
    assert len(lines) == 2, "the legend of CPU and GPU"
    (*ends, dash, gap), _ = sorted((tuple(map(float, line)) for line in lines), key=lambda line: -line[3])
    assert ends[1] - ends[0] > 4 * (dash + gap), "a dashed line has several dashes in the legend"


def test_a_cell_that_lacks_a_run_has_its_status_and_no_interval(tmp_path):
    made = study(tmp_path / "study", ("torch", "jax"), ("alexnet",))
    made.frame.loc[1, "status"] = "planned"
    (part,) = files.draw(Subject(made), "epoch-time").values()
    (row,) = (row for row in values(part.spec) if row.get("kind") == "cell" and row["framework_label"] == "JAX")
    assert (row["x"], row["low"], row["high"]) == (None, None, None)
    assert f'fill="{look.GREY}">planned<' in part.svg


@pytest.mark.parametrize(
    ("name", "value", "ends"), [("memory", "images_per_s", ("slow", "fast")), ("waiting", "whole", ("low", "high"))]
)
def test_a_wide_interval_ends_in_an_arrow_and_does_not_set_the_axis_of_all(tmp_path, name, value, ends):
    made = study(tmp_path / "study", ("torch", "jax"), ("alexnet",))
    low, high = ("epoch_s_ci_low", "epoch_s_ci_high")
    made.frame.loc[0, [low, high]] = made.frame["epoch_s_median"][0] / 50, made.frame["epoch_s_median"][0] * 50
    (part,) = files.draw(Subject(made), name).values()
    rows = [row for row in values(part.spec) if row.get(ends[1]) is not None]
    most = max(row[value] for row in rows)
    assert {row["framework_label"] for row in rows if row[f"{ends[1]}_cut"]} == {"PyTorch"}
    assert all(row[ends[0]] <= 1.5001 * most and row[ends[1]] <= 1.5001 * most for row in rows)
    assert f"datum.{ends[1]}_cut" in json.dumps(part.spec)


def test_numbers_colours_and_shapes_have_an_order(comparison):
    assert [figure.number for figure in FIGURES.values()] == [f"F{n}" for n in range(1, len(FIGURES) + 1)]
    whole, one = Subject(comparison), Subject(comparison, frameworks=["jax"])
    assert one.frameworks == ["JAX"]
    assert [marks[0] for marks in one.marks()] == [marks[whole.frameworks.index("JAX")] for marks in whole.marks()]
    assert len(set(look.COLOURS)) == len(set(look.SHAPES)) == 8


def test_phases_reach_from_the_start_to_the_epochs_with_the_time_between_them(tmp_path):
    whole = run(1)
    late = [dataclasses.replace(one, start_ns=one.start_ns + 100_000_000) for one in whole.phases[1:2]]
    phases = (whole.phases[0], *late, *whole.phases[2:])
    cells = [Cell("torch", "alexnet", "d", "cpu", TrainConfig())]
    made = recorded(tmp_path / "s", cells, [dataclasses.replace(whole, phases=phases)])
    (part,) = files.draw(Subject(made), "phases").values()
    seconds = {row["name"]: row["seconds"] for row in values(part.spec)}
    assert seconds["between phases"] == pytest.approx(0.1)
    assert seconds["total start-up"] == pytest.approx(made.frame["startup_s"][0])
    before = sum(value for name, value in seconds.items() if name not in ("epochs", "total start-up"))
    assert before == pytest.approx(made.frame["startup_s"][0])
