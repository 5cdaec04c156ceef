"""The questions that decide whether a study's results can be relied on, each with its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from framework_compare.report.table_notes import plural, unproved
from framework_compare.results.intervals import MIN_RUNS
from framework_compare.results.parity import FAILED
from framework_compare.results.steadiness import MIN_STEPS

if TYPE_CHECKING:
    import pandas as pd

GOOD, WARN, BAD = "good", "warn", "bad"
SAME_FUNCTION = "Same function"
PARITY = {GOOD: "verified", WARN: "not verified", BAD: "parity failed"}
SLOW = 1.25  # an epoch that takes more times the median of its cell was held up


class Light(NamedTuple):
    """An answer: its state (GOOD, WARN, BAD), what it is about, the sentence, and the doubt in a few words for the badge."""

    state: str
    title: str
    sentence: str
    doubt: str = ""


def lights(cells: pd.DataFrame, epochs: pd.DataFrame) -> list[Light]:
    """The answers: did all cells work, are there enough runs and steps, was the machine quiet, is the function the same?"""
    done = (cells["status"] == "ok").sum()
    state = GOOD if done == len(cells) else BAD if not done else WARN
    worked = Light(state, "Cells", f"{done} of {len(cells)} cells worked", "failed cells")
    others = _repeated(cells), *_length(cells, epochs), _quiet(cells, epochs)
    share = cells["gpu_throttled_share"].max()
    told = f"throttled for at most {100 * share:.1f} % of the time" if share else "never throttled"
    clocks = [Light(WARN if share > 0.01 else GOOD, "GPU clocks", told, "throttled GPU")] if share >= 0 else []
    return [_equal(cells), worked, *others, *clocks]


def standing(answers: Sequence[Light]) -> tuple[str, str]:
    """The state of the whole study and the words for it; GOOD only where every answer is."""
    doubts = [one for one in answers if one.state != GOOD]
    state = BAD if any(one.state == BAD for one in doubts) else WARN if doubts else GOOD
    function = next((PARITY[one.state] for one in doubts if one.title == SAME_FUNCTION), PARITY[GOOD])
    caveats = ", ".join(one.doubt for one in doubts if one.doubt)
    if state == BAD and caveats:
        return state, f"Unreliable ({caveats}); {function}"
    return state, f"{function[0].upper()}{function[1:]}{'; caveats: ' if caveats else ''}{caveats}"


def _repeated(cells: pd.DataFrame) -> Light:
    ok = cells[cells["status"] == "ok"]
    quiet = ok["epochs_measured"] > ok["epochs_disturbed"].fillna(0)
    counted = ok["interval_runs"].fillna(quiet.astype(int))  # one run alone, or none that others left in peace
    fewest = 0 if ok.empty else int(counted.clip(upper=ok["runs_ok"]).min())
    state = GOOD if fewest > MIN_RUNS else WARN if fewest >= MIN_RUNS else BAD
    sentence = f"every cell has at least {plural(fewest, 'valid run')}"
    if fewest < MIN_RUNS:
        sentence = f"a cell has {'only 1' if fewest else 'no'} valid run; a verdict needs {MIN_RUNS}"
    return Light(state, "Runs", sentence, "few runs")


def _length(cells: pd.DataFrame, epochs: pd.DataFrame) -> list[Light]:
    steps = epochs.groupby("run_id")["steps"].sum()
    if steps.empty:
        return []
    fewest = int(steps.min())
    sentence = f"every run has at least {plural(fewest, 'measured step')}"
    if few := fewest < MIN_STEPS:
        sentence = f"a run has only {plural(fewest, 'measured step')}; below {MIN_STEPS}, warm-up cannot be detected"
    unsettled = int(cells["runs_unsettled"].sum())
    if unsettled and not few:
        sentence = f"{plural(unsettled, 'run')} did not settle: step times were still changing at the end"
    return [Light(WARN if few or unsettled else GOOD, "Length", sentence, "short runs" if few else "unsettled runs")]


def _quiet(cells: pd.DataFrame, all_epochs: pd.DataFrame) -> Light:
    epochs, disturbed = cells["epochs_measured"].sum(), cells["epochs_disturbed"].sum()
    replaced = int(cells["runs_set_aside"].sum())
    counted = all_epochs[all_epochs["disturbed"].ne(1)]
    slow = counted["epoch_s"].gt(SLOW * counted.groupby("cell")["epoch_s"].transform("median")).sum()
    whole = (cells["epochs_disturbed"] >= cells["epochs_measured"]) & cells["epochs_measured"].gt(0)
    void = int(cells["rounds_void"].max()) if cells["rounds_void"].notna().any() else 0
    doubt = "slow epochs"
    unknown = int((cells["epochs_disturbed"].isna() & cells["epochs_measured"].gt(0)).sum())
    if not cells["epochs_disturbed"].notna().any():
        state, sentence, doubt = WARN, "unknown: nothing was sampled", "unknown disturbances"
    elif unknown and not disturbed:
        state, doubt = WARN, "unknown disturbances"
        sentence = f"unknown for {plural(unknown, 'cell')}; no epoch of the others was disturbed by other programs"
    elif disturbed:
        doubt = "busy machine"
        state = BAD if whole.any() else WARN
        sentence = f"{disturbed:.0f} of {epochs:.0f} epochs {'was' if disturbed == 1 else 'were'} disturbed"
    elif void:
        state, doubt = WARN, "void rounds"
        rounds = "1 round does not count" if void == 1 else f"up to {void} rounds per cell do not count"
        sentence = f"no epoch that counts was disturbed, but {rounds}"
    elif slow:
        state = WARN
        often = f"{slow} of {len(counted)} epochs took more than {SLOW:g} times the median of their cell"
        sentence = f"no other program was detected, but {often}"
    else:
        state, sentence = GOOD, "no epoch was disturbed by other programs"
        if replaced:
            sentence = f"no epoch that counts was disturbed; {plural(replaced, 'disturbed run')} replaced"
    return Light(state, "Quiet machine", sentence, doubt)


def _equal(cells: pd.DataFrame) -> Light:
    worked = cells[cells["status"] == "ok"]
    verdicts, failing = list(worked["parity"]), (worked["parity_status"] == FAILED).sum()
    unknown = sum(bool(unproved(one)) or one is None for one in verdicts)
    if failing:
        state, sentence = BAD, f"{plural(failing, 'cell')} failed the parity check, so results are not comparable"
    elif unknown or not verdicts:
        state, sentence = WARN, f"parity was not verified for {unknown} of {len(verdicts)} cells"
    else:
        state, sentence = GOOD, "verified: all frameworks train the same function"
    return Light(state, SAME_FUNCTION, sentence)
