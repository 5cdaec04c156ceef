"""The sentences of figures answer the questions that they stand under, and contradict no table."""

import altair as alt
import pandas as pd
import pytest
from bounds import digits
from drawn_study import study

from framework_compare.protocol import TrainConfig
from framework_compare.report.figures import files, learning, marks
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.figures.subject import Subject
from framework_compare.report.kinds import with_remarks
from framework_compare.report.study import rounded
from framework_compare.report.tables import Row, Table, Value, estimate

DRAWN = digits(rounded.__defaults__[0])  # the digits of a specification's numbers


def found(subject: Subject, name: str, view: str = "") -> str:
    return FIGURES[name].seen_as(view).finding(subject)


def test_findings_answer_their_questions_and_overlapping_energy_has_no_factor(comparison):
    subject = Subject(comparison)
    assert "a factor of" in found(subject, "energy")
    subject.worked["j_per_image_ci_low"], subject.worked["j_per_image_ci_high"] = 0.001, 100.0
    assert found(subject, "energy").endswith("; their 95 % confidence intervals overlap.")
    epochs = subject.whole_epochs()
    relative = epochs["epoch_s"] / epochs.groupby("cell")["epoch_s"].transform("median")
    ends = f"{relative.min():.2f} to {relative.max():.2f}"
    assert found(subject, "machine").endswith(f"epochs take {ends} times the median of their cell.")
    assert "easured epochs take" in found(subject, "resources") and "% of a run" in found(subject, "resources")
    assert "ean CPU use" in found(subject, "resources", "from the first epoch")
    subject.worked.loc[subject.worked["framework"] == "torch", "pss_peak_bytes"] *= 2
    assert found(subject, "memory").startswith(
        "In 2 of 2 cases, the framework with the highest throughput also needs the most memory. "
    )


def test_phases_leave_out_waits_for_turns(tmp_path):
    made = study(tmp_path / "study", models=("alexnet",), failing=())
    subject = Subject(made)

    def seconds():
        (part,) = files.draw(subject, "phases").values()
        return sum(row["seconds"] for row in part.spec["datasets"].popitem()[1] if row["name"] == "epochs")

    whole = seconds()
    made.epochs["waited_s"] = 0.1  # of each of three epochs, in each of three frameworks
    assert seconds() == pytest.approx(whole - 9 * 0.1, rel=3 * DRAWN)


def test_captions_explain_only_what_is_drawn_by_its_values():
    def said(low, high, **more):
        spec = {"datasets": {"": [{"t": 1, "y0": 2, "y0l": low, "y0h": high, **more}]}}
        return marks.caption("A figure.", [spec])

    assert "band" in said(1, 3) and "band" not in said(2, 2)
    assert "waiting for turns" in said(2, 2, waits=1) and "waiting" not in said(2, 2, waits=0)

    def legend(row):
        return marks.caption("", [{"datasets": {"rows": [row]}}]).strip()

    assert legend({"name": "cudaStreamSynchronize"}).startswith("Waiting calls") and legend({"name": "gemm"}) == ""
    assert legend({"label": "1.10x, 1.25x so far"}).startswith("So far") and legend({"label": "1.10x"}) == ""
    assert legend({"text": "~ its name !", "disturbed": ""}) == ""
    assert legend({"unsure": True, "interval": "[0.98, 1.07]"}) == "~: not significant after Holm's correction."
    assert legend({"unsure": True, "interval": ""}) == "~ without an interval: one run, so nothing is tested."
    assert legend({"text": "1.02x", "throughout": True}) == "!: all epochs were disturbed."
    shown, estimated = (Row((), (value,)) for value in (Value("≈ its name"), estimate("1.0", True)))
    for rows, remarks in (((shown,), 0), ((shown, estimated), 1)):
        assert len(with_remarks(Table("", (), (), rows), [], precision_too=False).remarks) == remarks


def test_findings_follow_the_data(comparison, tmp_path):
    slower = study(tmp_path / "study", faster=3.0)
    seconds = slower.frame.groupby("model")["epoch_s_median"].agg(["min", "max"]).loc["alexnet"]
    said = FIGURES["epoch-time"].seen_as().finding(Subject(slower))
    assert said == (
        f"The gap is widest in AlexNet: epochs take from {seconds['min']:.2f} s (PyTorch) to {seconds['max']:.2f} s (JAX), "
        f"a factor of {seconds['max'] / seconds['min']:.2f}."
    )
    subject = Subject(comparison)
    fastest = "PyTorch (2 of 2) is significantly faster than all others (not verified); "
    assert found(subject, "overview").startswith(fastest)
    assert found(subject, "machine").startswith("2 of 45 epochs were disturbed")
    said = {(name, view): one.finding(subject) for name in FIGURES for view, one in FIGURES[name].views.items()}
    for name, view, words in (
        ("epoch-time", "images per second", "throughput ranges from"),
        ("resources", "the whole run", "easured epochs take"),
        ("resources", "from the first epoch", "ean CPU use during the measured epochs"),
        ("learning", "by epoch", "he loss ends"),
        ("learning", "by seconds of training", "ll epochs together take"),
    ):
        assert words in said[name, view]


def test_no_gain_is_significant_where_all_epochs_were_disturbed(tmp_path, monkeypatch):
    made = study(tmp_path / "s", ("torch", "keras-torch"), ("alexnet",), failing=(), faster=2.0)
    shown = [row["shown"] for row in rows_of(files.draw(Subject(made), "gains")) if "shown" in row]
    assert any(shown)
    monkeypatch.setattr(learning, "disturbed_epochs", lambda cell: "all epochs")
    shown = [row["shown"] for row in rows_of(files.draw(Subject(made), "gains")) if "shown" in row]
    assert shown and not any(shown)


def rows_of(parts):
    return [row for part in parts.values() for rows in part.spec["datasets"].values() for row in rows]


@pytest.mark.parametrize(("columns", "shared"), [(1, True), (3, False)])
def test_no_axis_is_drawn_without_a_panel_above_it(tmp_path, columns, shared):
    """Four panels in three columns: an axis that the panels of a column share would stand alone in two of them."""
    configs = tuple(TrainConfig(batch_size=b, execution=e) for b in (8, 16) for e in ("eager", "graph"))
    subject = Subject(study(tmp_path / "s", ("torch", "jax"), ("alexnet",), configs=configs, repeats=2))
    rows = pd.DataFrame(
        {"framework_label": ["PyTorch"], "condition_label": subject.conditions[:1], "name": "a", "x": 1.0}
    )
    drawn = marks.dot_rows(rows, subject, alt.X("x:Q"), ["a"], 400, columns).to_dict()
    assert (drawn.get("resolve", {}).get("axis") == {"x": "independent"}) is not shared
