"""The five questions that decide whether a study's figures can be trusted, each with its answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from framework_compare.report.table_notes import unproved
from framework_compare.results.intervals import MIN_RUNS
from framework_compare.results.parity import FAILED

GOOD, WARN, BAD = "good", "warn", "bad"
SLOW = 1.25  # times the median of a cell, that an epoch takes where nothing holds it up


class Light(NamedTuple):
    """An answer: its state (GOOD, WARN, BAD), what it is about, and the sentence."""

    state: str
    title: str
    sentence: str


def lights(cells: Any, epochs: Any) -> list[Light]:
    """The answers: did all cells work, are there enough runs, was the machine quiet, the function the same, the clock full?"""
    return [_worked(cells), _repeated(cells), _quiet(cells, epochs), _equal(cells), *_clocks(cells)]


def _worked(cells: Any) -> Light:
    done = (cells["status"] == "ok").sum()
    state = GOOD if done == len(cells) else BAD if not done else WARN
    return Light(state, "Cells", f"{done} of {len(cells)} cells worked")


def _repeated(cells: Any) -> Light:
    ok = cells[cells["status"] == "ok"]
    quiet = ok["epochs_measured"] > ok["epochs_disturbed"].fillna(0)
    counted = ok["interval_runs"].fillna(quiet.astype(int))  # one run alone, or none that others left in peace
    least = 0 if ok.empty else int(counted.clip(upper=ok["runs_ok"]).min())
    state = GOOD if least > MIN_RUNS else WARN if least >= MIN_RUNS else BAD
    few = f"; verdicts need {MIN_RUNS}" if least < MIN_RUNS else ""
    return Light(
        state, "Runs", f"at least {least} {'run that counts' if least == 1 else 'runs that count'} per cell{few}"
    )


def _quiet(cells: Any, all_epochs: Any) -> Light:
    epochs, disturbed = cells["epochs_measured"].sum(), cells["epochs_disturbed"].sum()
    counted = all_epochs[all_epochs["disturbed"].ne(1)]
    slow = counted["epoch_s"].gt(SLOW * counted.groupby("cell")["epoch_s"].transform("median")).sum()
    whole = (cells["epochs_disturbed"] >= cells["epochs_measured"]) & cells["epochs_measured"].gt(0)
    if not cells["epochs_disturbed"].notna().any():
        state, sentence = WARN, "not known: nothing was sampled"
    elif disturbed:
        state, sentence = BAD if whole.any() else WARN, f"{disturbed:.0f} of {epochs:.0f} epochs were disturbed"
    elif slow:
        state = WARN
        often = f"{slow} of {len(counted)} epochs took more than {SLOW:g} times their cell's median"
        sentence = f"no other program was seen, but {often}"
    else:
        state, sentence = GOOD, "no epoch was disturbed by other programs"
    return Light(state, "Quiet machine", sentence)


def _equal(cells: Any) -> Light:
    worked = cells[cells["status"] == "ok"]
    verdicts, failing = list(worked["parity"]), (worked["parity_status"] == FAILED).sum()
    unknown = sum(bool(unproved(one)) or one is None for one in verdicts)
    if failing:
        state, sentence = BAD, f"{failing} cells fail the check that all frameworks train the same function"
    elif unknown or not verdicts:
        state, sentence = WARN, f"not checked for {unknown} of {len(verdicts)} cells"
    else:
        state, sentence = GOOD, "checked: all frameworks train the same function"
    return Light(state, "Same function", sentence)


def _clocks(cells: Any) -> list[Light]:
    share = cells["gpu_throttled_share"].max()
    if not share >= 0:
        return []
    return [Light(WARN if share > 0.01 else GOOD, "GPU clocks", f"slowed in {share:.0%} of the time at most")]
