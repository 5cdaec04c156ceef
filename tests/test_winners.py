"""Who wins: sentence, table, figure and JSON name the same framework, or none."""

import dataclasses
import json
import re

import pytest
from stored_study import ok, parity_row, recorded

from framework_compare.comparison import Comparison
from framework_compare.parity import in_study
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report.figures import files
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.figures.subject import Subject
from framework_compare.report.names import title
from framework_compare.results.columns import row_of
from framework_compare.results.parity import VERDICT_FILE, Level, Parity, verdict_key

PROVED, FAILED, UNKNOWN = "0-5", "0-3, not 4: pixels", "unverified"
FAST, SLOW, SLOWEST = (1, 1.01, 1.02), (2, 2.01, 2.02), (4, 4.01, 4.02)
CRASHED = Run("crashed", "no memory")
BOTH, BEHIND = ({"torch": (a, PROVED), "jax": (b, PROVED)} for a, b in ((FAST, SLOW), (SLOW, SLOWEST)))
ALIKE = {"torch": ((1, 1.3, 1.1), PROVED), "jax": ((1.2, 1, 1.2), PROVED)}
# Epoch times by run and parity of each framework; the winner; why there is none.
RACES = {
    "proved": (BOTH, "torch", ""),
    "not checked": ({"torch": (SLOW, UNKNOWN), "jax": (FAST, UNKNOWN)}, "jax", ""),
    "a slow one fails parity": ({**BOTH, "mxnet": (SLOWEST, FAILED)}, "torch", ""),
    "the first fails parity": ({**BEHIND, "mxnet": (FAST, FAILED)}, None, "mxnet is ahead but fails parity"),
    "one passes parity": ({"torch": (FAST, PROVED), "mxnet": (SLOW, FAILED)}, None, "mxnet: parity fails"),
    "no difference": (ALIKE, None, "no significant difference"),
    "one crashed": ({**BOTH, "mxnet": (None, PROVED)}, "torch", ""),
}


def raced(folder, entries, verdict_of=parity_row):
    cells = [Cell(name, "alexnet", "small", "cpu", TrainConfig()) for name in entries]

    def run_of(cell, repeat):
        seconds, _ = entries[cell.framework]
        return ok(seconds[repeat - 1]) if seconds else CRASHED

    known = {verdict_key(row_of(cell)): verdict_of(entries[cell.framework][1]) for cell in cells}
    recorded(folder, cells, run_of, 3)
    (folder / VERDICT_FILE).write_text(json.dumps(known))
    return Comparison.load(folder)


def marked_in_table(comparison):
    lines = comparison.table("time", "markdown").splitlines()
    return [re.match(r"\| (\S+)", line)[1] for line in lines if "**" in line]


def bold_in_overview(comparison):
    (part,) = files.draw(Subject(comparison), "overview").values()
    return [row["framework_label"] for rows in part.spec["datasets"].values() for row in rows if row["fastest"]]


@pytest.mark.parametrize(("entries", "winner", "reason"), RACES.values(), ids=RACES)
def test_sentence_table_figure_and_json_name_the_same_winner(tmp_path, entries, winner, reason):
    comparison = raced(tmp_path, entries)
    named = [title(winner)] if winner else []
    assert marked_in_table(comparison) == bold_in_overview(comparison) == named
    sentence, table = comparison.table().parts[0].verdicts[0], str(comparison.table())
    assert not named or sentence.startswith(f"AlexNet: {named[0]} is ")
    finding = FIGURES["overview"].seen_as().finding(Subject(comparison))
    assert not named or finding.startswith(f"{named[0]} is significantly faster than all others")
    assert ("(not verified)" in finding) == ("(not verified)" in sentence) == ("jax" == winner)
    (answer,) = json.loads(comparison.to_json())["winners"]
    assert (answer["framework"], answer["reason"]) == (winner, reason)
    assert ("*: significantly faster" in table) == bool(winner)
    assert ("Excluded, because they failed parity: MXNet (AlexNet)." in table) == (answer["excluded"] == ["mxnet"])
    assert answer["excluded"] == [name for name, (_, parity) in entries.items() if parity == FAILED]


def test_a_failure_is_known_by_its_status_and_not_by_its_words(tmp_path):
    unexplained = Parity("mxnet", "1", "alexnet", "eager", "failed", "no level could be asked")
    where = Level(2, True, where="a layer, not 3 of them", ratio=0.5)
    fine = Parity("torch", "2", "alexnet", "eager", "passed", levels=(where,))
    entries = {"torch": (FAST, fine), "jax": (SLOW, fine), "mxnet": (SLOWEST, unexplained)}
    comparison = raced(tmp_path, entries, in_study._shown)
    assert list(comparison.frame["parity_status"]) == ["passed", "passed", "failed"]
    assert "Excluded, because they failed parity: MXNet (AlexNet)." in str(comparison.table(width=200))


def test_a_winner_by_paired_runs_is_the_first_of_the_figure_whatever_the_medians_are(tmp_path):
    comparison = raced(tmp_path, BOTH)
    comparison.frame.loc[comparison.frame["framework"] == "torch", "epoch_s_median"] = 2.5
    assert marked_in_table(comparison) == bold_in_overview(comparison) == ["PyTorch"]
    assert comparison.table().parts[0].verdicts[0].startswith("AlexNet: PyTorch is ")
    (part,) = files.draw(Subject(comparison), "overview").values()
    rows = [row for rows in part.spec["datasets"].values() for row in rows]
    assert {row["framework_label"]: row["text"] for row in rows} == {"PyTorch": "1.00x", "JAX": "1.99x"}


def test_who_is_not_known_to_be_undisturbed_is_named_as_everywhere_else(tmp_path):
    cells = [Cell(name, "alexnet", "small", "cpu", TrainConfig()) for name in ("torch", "jax", "mxnet")]

    def run_of(cell, repeat):
        run = ok(1.0 + (cell.framework == "mxnet"))
        if cell.framework == "mxnet":
            return run
        epochs = tuple(dataclasses.replace(one, disturbed=None) for one in run.epochs)
        return dataclasses.replace(run, epochs=epochs, disturbed_epochs=None)

    recorded(tmp_path, cells, run_of, 3)
    table = " ".join(str(Comparison.load(tmp_path).table(width=200)).split())
    assert "No framework is marked as fastest (the CPU time of other programs is unknown for PyTorch, JAX)" in table
