"""The runs and epochs that figures are made of: without those that others disturbed, where there are others."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework_compare.plan.settings import OF_RIVALS
from framework_compare.protocol import Document

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

# Columns of the cell frame; load_before is in `columns.REPORTED`.
COLUMNS = ("epochs_disturbed", "disturbed_s", "disturbed_share", "runs_set_aside", "rounds_void")
_OF_ROUNDS = re.compile(r"\d+ of \d+ rounds? do(?:es)? not count \((.*)\)")  # a warning of version 0.1
_REASON = re.compile(r"(\d+): ([^;]+)")
Row = Document
_UNFINISHED = ("planned", "running", "interrupted")


def counting(runs: Iterable[Row]) -> set[int]:
    """The run_ids that figures are made of: of each run and its repeats the ok one that lost the least to others.

    One that was not disturbed comes before all that were: rounds may be void though others took nothing. Where none is
    ok it is the first. Every run that was neither disturbed nor repeated counts.
    """
    # Of a damaged file one may name a run of another cell: every cell with runs has one that counts all the same.
    slots: dict[tuple[int, int], list[Row]] = {}
    for run in runs:
        first = run["run_id"] if run["retry_of"] is None else run["retry_of"]
        slots.setdefault((run["cell_id"], first), []).append(run)
    ok = [[run for run in slot if run["status"] == "ok"] or slot[:1] for slot in slots.values()]

    def loss(run: Row) -> tuple[bool, float, int]:
        return (run["disturbed_epochs"] or 0) > 0, lost_s(run), run["run_id"]

    return {min(several, key=loss)["run_id"] for several in ok}


def counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the runs that are ok and count."""
    return frame[(frame["status"] == "ok") & frame["counts"].astype(bool)]


def undisturbed(marks: ArrayLike, cells: ArrayLike) -> np.ndarray:
    """Return which epochs times are made of: those known to be undisturbed, else those of which nobody knows, else all.

    marks: 1 of a disturbed epoch, 0 of an undisturbed one, None or NaN where nobody knows; cells: whose epoch each is.
    """
    marks, cells = np.asarray(marks, dtype=float), np.asarray(cells)
    found = np.zeros(len(marks), bool)
    for wanted in (marks == 0, np.isnan(marks), marks == 1):
        found = found | (wanted & ~np.isin(cells, cells[found]))
    return found


def blocks(runs: Sequence[Row]) -> dict[int, int]:
    """Return by run_id the block of a run: the turn in which it, or the run that it repeats, was planned.

    Of a turn of one model and data set, runs of another node, or of another duel, than most are in a block of their own,
    whose number is above all turns: no ratio is taken of runs of two nodes, nor of turns that two sets of workers took.
    """
    planned = {run["run_id"]: run["repeat"] for run in runs}
    turns = {run["run_id"]: planned[run["retry_of"] if run["retry_of"] in planned else run["run_id"]] for run in runs}
    last = max(turns.values(), default=0)
    found = {}
    for rivals in _rivals(runs, turns):
        sessions = [(run["node_id"], run["duel"]) for run in rivals]
        counts = collections.Counter(session for session in sessions if session != (None, None))
        ranks = {session: rank for rank, (session, _) in enumerate(counts.most_common())}
        for run, session in zip(rivals, sessions):
            found[run["run_id"]] = turns[run["run_id"]] + last * ranks.get(session, 0)
    return found


def paired(runs: Sequence[Row], blocks: Mapping[int, int]) -> set[int]:
    """Return the run_ids of runs with a rival in their block that worked, too, so that a ratio is made of both."""
    found: set[int] = set()
    for rivals in _rivals(runs, blocks):
        if len({run["cell_id"] for run in rivals if run["status"] == "ok"}) > 1:
            found.update(run["run_id"] for run in rivals)
    return found


def _rivals(runs: Iterable[Row], blocks: Mapping[int, int]) -> Iterable[list[Row]]:
    """Return the runs that compete, block by block."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for run in runs:
        groups.setdefault((blocks[run["run_id"]], *(run[name] for name in OF_RIVALS)), []).append(run)
    return groups.values()


def lost_s(run: Row) -> float:
    """CPU seconds that other programs took in the disturbed epochs of a run."""
    return (run["disturbed_s"] or 0.0) * (run["disturbed_share"] or 0.0)


def summary(runs: Sequence[Row]) -> dict[str, float | None]:
    """Return how much the runs of a cell that count were disturbed; None where it is unknown for one of them.

    Of a cell with an undisturbed `paired` run no time is made of those of which nobody knows: they bar no verdict.
    """
    ok = [run for run in runs if run["status"] == "ok"]
    judged = [run for run in ok if run["paired"]]
    judged = judged if any(run["disturbed_epochs"] == 0 for run in judged) else ok
    known = [run for run in ok if run["disturbed_epochs"] is not None]
    known = known if all(run["disturbed_epochs"] is not None for run in judged) else []
    seconds = sum(run["disturbed_s"] or 0.0 for run in known)
    return {
        "epochs_disturbed": sum(run["disturbed_epochs"] for run in known) if known else None,
        "disturbed_s": seconds if known else None,
        "disturbed_share": sum(map(lost_s, known)) / seconds if seconds else None,
        "rounds_void": sum(sum(_void(run).values()) for run in runs),
    }


def disturbed_throughout(epochs_disturbed: float, epochs_measured: float) -> bool:
    """Return whether others disturbed every epoch of a cell, so that no verdict can stand on it."""
    return epochs_disturbed >= epochs_measured > 0


def sentences(runs: Sequence[Row]) -> list[str]:
    """Return what to say of the runs of a cell that do not count."""
    found = []
    for run in runs:
        if run["counts"] or run["status"] in _UNFINISHED:
            continue
        if run["status"] != "ok":
            ended = f"ended as {run['status']}: {run['reason']}"
            found.append(f"run {run['repeat']}, which repeats another, {ended}")
            continue
        share, seconds = run["disturbed_share"], run["disturbed_s"]
        why = f", because other programs took {100 * share:.0f} % of a core for {seconds:.1f} s" if lost_s(run) else ""
        found.append(f"run {run['repeat']} does not count{why}; another run replaces it")
    return found


def warnings(runs: Iterable[Row]) -> list[str]:
    """Return the different warnings of the runs of a cell, and one on all its rounds that do not count."""
    runs = list(runs)
    told = list(dict.fromkeys(text for run in runs for text in run["warnings"] if not _OF_ROUNDS.fullmatch(text)))
    void: collections.Counter[str] = collections.Counter()
    for run in runs:
        void.update(_void(run))
    if not void:
        return told
    why = "; ".join(f"{count}: {reason}" for reason, count in void.most_common()) if len(void) > 1 else min(void)
    count = sum(void.values())
    return [f"{count} {'round does' if count == 1 else 'rounds do'} not count ({why})", *told]


def _void(run: Row) -> dict[str, int]:
    """Reason and number of the rounds of a run that do not count; earlier versions stored them as a warning."""
    found = run["gauges"].get("void_rounds")
    if isinstance(found, dict):
        return {reason: n for reason, n in found.items() if type(n) is int}
    counted: dict[str, int] = {}
    for text in filter(None, map(_OF_ROUNDS.fullmatch, run["warnings"])):
        for count, reason in _REASON.findall(text[1]):
            counted[re.sub("^others", "other programs", reason)] = int(count)
    return counted
