"""Conditions that keep a study from being published, or are stated with it: each by the word that `--allow` takes."""

from __future__ import annotations

from collections.abc import Iterable

from framework_compare.errors import StudyError
from framework_compare.launch import disturbances
from framework_compare.protocol import Document
from framework_compare.results.parity import PROVED
from framework_compare.results.repeats import disturbed_throughout
from framework_compare.store.study_file import TO_RUN

BLOCKS = 3  # of runs that a submission has at least
UNVERIFIED, FEW_BLOCKS, DISTURBED, MODIFIED = "unverified", "few-blocks", "disturbed", "modified"
ALLOWED = {
    UNVERIFIED: "parity is not verified for every cell",
    FEW_BLOCKS: f"a cell has fewer than {BLOCKS} blocks of runs",
    DISTURBED: "other programs disturbed a cell throughout, nothing was sampled, or the threshold was raised",
    MODIFIED: "the code is not a known release or commit",
}


def worked(document: Document) -> list[Document]:
    """The cells of a study document whose runs are ok."""
    return [cell for cell in document["cells"] if cell["status"] == "ok"]


def of_figures(document: Document, statuses: Iterable[str] = ()) -> dict[str, str]:
    """Return one sentence per condition on a study's figures; StudyError if the study cannot be published at all.

    statuses: of all its runs, as a study that was stopped when its figures pleased is none to publish.
    """
    cells = worked(document)
    if not cells:
        raise StudyError("no cell of the study worked, so there is nothing to publish; `show` says what went wrong")
    left = sum(status in TO_RUN for status in list(statuses) or [cell["status"] for cell in document["cells"]])
    if left:
        raise StudyError(f"the study is not finished (runs left: {left}); finish it with `framework-compare resume`")
    found = {}
    unproved = [cell for cell in cells if cell["parity"] not in PROVED]
    if unproved:
        example = f"{_name(unproved[0])}: {unproved[0]['parity'] or 'not asked'}"
        found[UNVERIFIED] = (
            f"{len(unproved)} of {len(cells)} cells are not verified ({example}); `verify STUDY` adds verdicts"
        )
    fewest = min(cells, key=lambda cell: cell["runs_ok"])
    if fewest["runs_ok"] < BLOCKS:
        blocks = f"{fewest['runs_ok']} block{'s' * (fewest['runs_ok'] != 1)} of runs"
        found[FEW_BLOCKS] = f"{_name(fewest)} has {blocks}; at least {BLOCKS} are needed (--repeats)"
    for cell in cells:
        if cell["epochs_disturbed"] is None:
            found.setdefault(DISTURBED, f"{_name(cell)} was not sampled, so its disturbances are unknown")
        elif disturbed_throughout(cell["epochs_disturbed"], cell["epochs_measured"]):
            found[DISTURBED] = (
                f"other programs took CPU time in every epoch of {_name(cell)}; run it again on a quiet machine"
            )
    taken, cores = document["settings"].get("disturbance_threshold"), document["machine"].get("available_cores")
    usual = disturbances.threshold(cores if isinstance(cores, int) else 1)
    if taken is None:
        found.setdefault(DISTURBED, "it does not state its disturbance threshold")
    elif taken > usual * 1.001:
        found.setdefault(DISTURBED, f"its disturbance threshold is {taken:g} cores; usual: {usual:g}")
    return found


def of_code(measured: Document, published: Document) -> dict[str, str]:
    """The sentence on modified code, from `measured_by` and `published_by` of a manifest."""
    sources, now = measured["sources"], published["sources"]
    if published["modified"]:
        return {MODIFIED: f"the installed package is modified: {published['modified']}"}
    if not sources:
        return {MODIFIED: "the study does not say which code measured it"}
    for framework, states in sources.items():
        if len(states) != 1:
            count = len(states) or "no known"
            return {MODIFIED: f"the runs of {framework} come from {count} versions of the code"}
        if states[0] != now.get(framework):
            return {
                MODIFIED: f"the runs of {framework} were measured by other code than is "
                "installed; install that code and publish again"
            }
    return {}


def _name(cell: Document) -> str:
    return f"{cell['framework']} {cell['model']} on {cell['device']}"
