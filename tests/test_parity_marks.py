"""Every table that shows a figure of a cell not proved equal says so."""

import json

import pytest
from stored_study import SECOND, epochs, parity_row, recorded
from table_study import csv_rows, rows

from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Energy, ProfileRow, Run, Sample
from framework_compare.report import renderers, resource_tables, side_by_side
from framework_compare.report.kinds import KINDS
from framework_compare.report.table_notes import verdict_note
from framework_compare.results.columns import row_of
from framework_compare.results.parity import VERDICT_FILE, verdict_key
from framework_compare.stability_sweep import Stability

PROVED, FAILED, UNKNOWN = "0-5", "0-3, not 4: pixels", "unverified"
OTHER = "0-2, not 3: fc.weight"
SHOWN = [kind for kind in KINDS if kind not in ("quality", "gains", "search", "inference", "generation")]


def ok(*seconds):
    made = epochs(*seconds)
    return Run(
        "ok", epochs=made, samples=(Sample(SECOND, rss_bytes=2**31),), profile=(ProfileRow("operator", "conv", 3, 1.0),),
        energy=(Energy("gpu", 0, 0.0, "counter"), Energy("gpu", made[-1].end_ns, 90.0, "counter")), disturbed_epochs=0,
    )  # fmt: skip


def study(folder, outcomes):
    """`outcomes` are (framework, settings, Run, parity), all of AlexNet, and two runs of each."""
    cells = [Cell(f, "alexnet", "small", c.get("device", "cpu"), TrainConfig(**c)) for f, c, _, _ in outcomes]
    recorded(folder, cells, [run for _, _, run, _ in 2 * outcomes], 2)
    stored = {verdict_key(row_of(cell)): parity_row(one[3]) for cell, one in zip(cells, outcomes)}
    (folder / VERDICT_FILE).write_text(json.dumps(stored))
    return Comparison.load(folder)


ON_DEVICES = ({}, {"device": "cuda"}, {"device": "cuda", "precision": "bf16", "batch_size": 8})
ON_SEVERAL = ({"device": "cuda"}, {"device": "cuda:0,1"}, {"device": "cuda:0,1,2"})


def pair(folder, *parities, on=ON_DEVICES):
    """One framework on the CPU and on a GPU, in fp32 and bf16 there; one verdict for all, or one each."""
    each = parities if len(parities) == 3 else 3 * parities
    settings = [{"execution": "eager", **one} for one in on]
    return study(folder, [("torch", one, ok(1, 1.1, 1.2), found) for one, found in zip(settings, each)])


@pytest.mark.parametrize("parity", [FAILED, UNKNOWN])
def test_every_table_marks_a_cell_that_is_not_proved(tmp_path, parity):
    one, several = (
        pair(tmp_path / name, OTHER, parity, OTHER, on=on) for name, on in (("a", ON_DEVICES), ("b", ON_SEVERAL))
    )
    for kind in SHOWN:
        if kind not in ("stack", "modes"):
            text = (several if kind == "devices" else one).table(kind, "markdown")
            marked = [any("(" in figure for figure in row) for row in rows(text) if row[0] in ("PyTorch", "conv")]
            assert f"parity {parity}" in text and all(marked), kind


@pytest.mark.parametrize("parity", [FAILED, UNKNOWN])
def test_a_library_beside_its_framework_and_the_best_mode_are_marked_where_they_are_not_proved(tmp_path, parity):
    beside = {"stack": ("keras-torch", {"execution": "eager"}), "modes": ("torch", {"execution": "compiled"})}
    for kind, other in beside.items():
        base = ("torch", {"execution": "eager"}, ok(2, 2.1, 2.2), PROVED)
        text = study(tmp_path / kind, [base, (*other, ok(1, 1.1, 1.2), parity)]).table(kind, "markdown")
        assert f"parity {parity}" in text


@pytest.mark.parametrize("parity", [FAILED, UNKNOWN])
def test_a_note_on_parity_that_all_cells_share_stands_once(tmp_path, parity):
    comparison = pair(tmp_path, parity)
    for kind in ("speedup", "energy"):
        text = comparison.table(kind, "markdown")
        assert text.count(f"All cells: parity {parity}") == text.count(f"parity {parity}") == 1
        assert not any("(" in figure for row in rows(text) for figure in row)
        assert text.count("framework-compare verify") == (parity == UNKNOWN)


def test_a_shared_note_leaves_the_other_notes_of_its_figures(tmp_path):
    settings = ({"threads": 1}, {"threads": 8}, {"threads": 4, "device": "cuda"})
    text = study(tmp_path, [("torch", one, ok(1, 1, 1), UNKNOWN) for one in settings]).table("speedup", "markdown")
    ((_, _, cpu, gpu, times),) = rows(text)
    assert "(" not in cpu + gpu and times.endswith("(1)") and "(1) 8 threads on the CPU, 4 with the device" in text
    assert "All cells: parity unverified; run `framework-compare verify STUDY`" in text


def test_no_table_marks_a_cell_that_is_proved_and_the_csv_of_each_has_the_verdict(tmp_path):
    proved, comparison = pair(tmp_path / "proved", PROVED), pair(tmp_path / "failed", FAILED)
    for kind in SHOWN:
        assert "parity" not in proved.table(kind, "markdown"), kind
        found = csv_rows(comparison.table(kind, "csv"))
        assert found and all(row["parity"] == FAILED for row in found), kind


def test_a_rung_and_a_speed_up_say_that_what_they_are_held_against_is_not_proved(tmp_path):
    steps = (("fp32", FAILED), ("bf16", PROVED))
    outcomes = [("torch", {"execution": "eager", "precision": p}, ok(2, 2.1, 2.2), found) for p, found in steps]
    text = study(tmp_path / "rungs", outcomes).table("precision", "markdown")
    ((_, _, _, base, rung),) = rows(text)
    assert base == "1 (1)" and rung.endswith("(2)")
    assert f"(2) its baseline has parity {FAILED}" in text
    outcomes = [("torch", {}, ok(2, 2.1, 2.2), UNKNOWN), ("torch", {"device": "cuda"}, ok(1, 1.1, 1.2), PROVED)]
    text = study(tmp_path / "devices", outcomes).table("speedup", "markdown")
    ((_, _, cpu, gpu, times),) = rows(text)
    assert "(" in cpu and "(" not in gpu and "(" in times
    assert f"its baseline has parity {UNKNOWN}" in text


def test_a_fastest_cell_that_is_not_proved_is_said_to_be_so(tmp_path):
    outcomes = [("torch", {}, ok(2, 2.1, 2.2), PROVED), ("mxnet", {}, ok(1, 1.01, 1.02), UNKNOWN)]
    text = study(tmp_path, outcomes).table("time", "markdown")
    assert "**1.01 ±0.00 (1)**" in text and "not verified to train the same function: MXNet" in text


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex"])
def test_two_studies_side_by_side_are_marked(tmp_path, style):
    sides = [study(tmp_path / one, [("torch", {}, ok(1, 1.1, 1.2), one)]) for one in (PROVED, FAILED)]
    frame = sides[0].beside(sides[1])
    assert (frame["parity_a"].tolist(), frame["parity_b"].tolist()) == ([PROVED], [FAILED])
    text = renderers.RENDERERS[style](side_by_side.table(sides[0].beside(sides[1]), ("a", "b"), (0, 0)))
    assert f"parity {FAILED}" in text and text.count("(1)") + text.count("{1}") >= 1


def test_a_sweep_names_what_is_not_proved(tmp_path):
    outcomes = [("torch", {"batch_size": size}, ok(1, 1.1, 1.2), UNKNOWN) for size in (1, 2)]
    outcomes.append(("mxnet", {"batch_size": 1}, ok(1, 1.1, 1.2), PROVED))
    sweep = Stability(study(tmp_path, outcomes))
    for table in resource_tables.sweep_tables(sweep.frame, sweep.probes, sweep.varying, None).parts:
        assert "Parity unverified: PyTorch AlexNet." in table.remarks
    # one that fails is not said to be provable
    failed, unknown, proved, unchecked = (verdict_note(one) for one in (FAILED, UNKNOWN, PROVED, None))
    assert (failed, proved, unchecked) == (f"parity {FAILED}", "", "")
    assert "`framework-compare verify STUDY`" in unknown


def race(folder, parity):
    """Two frameworks, the first the faster by far."""
    settings = {"pipeline": "memory"}
    outcomes = [("torch", settings, ok(1, 1.01, 1.02), parity), ("jax", settings, ok(3, 3.01, 3.02), "0-3, 5")]
    return study(folder, outcomes).table("time", "markdown")


def test_the_fastest_is_named_where_all_is_proved_that_a_cell_has_a_use_for(tmp_path):
    text = race(tmp_path / "proved", "0-3, 5")
    assert "Bold: significantly faster" in text and "parity" not in text.lower()
    text = race(tmp_path / "not asked", "0-3, 5, not asked: 4")
    assert "Bold: significantly faster" in text and "not verified to train the same function: PyTorch" in text
    text = race(tmp_path / "failed", FAILED)
    assert "**" not in text and "No framework is marked as fastest (PyTorch is ahead but fails parity)" in text


DAMAGE = {
    "missing": lambda text: None,
    "cut short": lambda text: text[: len(text) // 2],
    "of another type": lambda text: text.replace('"0-5"', "5"),
    "binary": lambda text: "\0",
    "a list": lambda text: "[]",
    "without an end": lambda text: "[" * 100_000,
    "of another cell": lambda text: text.replace("torch", "other"),
}


def test_a_study_whose_verdicts_are_damaged_says_that_nothing_is_known(tmp_path):
    cell = Cell("torch", "alexnet", "small", "cpu", TrainConfig())
    recorded(tmp_path, [cell], [ok(1, 1.1, 1.2)], settings={"verify": "warn"})
    whole, path = json.dumps({verdict_key(row_of(cell)): parity_row("0-5")}), tmp_path / VERDICT_FILE
    for name, damage in DAMAGE.items():
        path.write_text(whole)
        assert Comparison.load(tmp_path).frame.parity[0] == "0-5"
        damaged = damage(whole)
        path.unlink() if damaged is None else path.write_text(damaged)
        assert Comparison.load(tmp_path).frame.parity[0] == UNKNOWN, name
