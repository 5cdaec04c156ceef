"""A search over releases for readers: one sentence, a table with all releases, and their ratios as a figure."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from framework_compare.report.figures import files, look
from framework_compare.report.names import title
from framework_compare.report.table_spec import Column, tabulate
from framework_compare.report.tables import NOTHING, Table
from framework_compare.results import version_search
from framework_compare.results.metrics import percent
from framework_compare.results.version_search import CHANGED, FAILED, INCONCLUSIVE, UNCHANGED, Answer

Search = Any  # a bisection.Bisection, which is made above this layer
_MORE = {"time": ("slower", "faster"), "memory": ("larger", "smaller")}
WIDTH, HEIGHT = 560.0, 260.0  # of the figure, in points
OF_METRIC = {"time": "epoch time", "memory": "peak memory", "parity": "parity"}


def sentence(search: Search) -> str:
    """Return what the search found, with the size of the change and its interval."""
    found, versions, name = search.found, search.versions, title(search.framework)
    last, limit = found.answers[0], f"{100 * search.threshold:.3g} %"
    ends = f"{name} {versions[0]} and {versions[-1]}"
    if found.outcome == FAILED:
        broken = next((one for one in (versions[-1], versions[0]) if one in search.reasons), versions[-1])
        return f"No answer: {name} {broken} does not work: {search.reasons.get(broken, 'see its study')}."
    if found.outcome == UNCHANGED:
        size = "" if search.metric == "parity" else f" of {limit} or more ({_ratio(last)})"
        return f"No change{size} in {OF_METRIC[search.metric]} between {ends}."
    if found.outcome == INCONCLUSIVE and len(found.answers) == 1:
        return f"Inconclusive: {OF_METRIC[search.metric]} may have changed by {limit} between {ends} ({_ratio(last)})."
    place = f"between {versions[found.before]} and {versions[found.after]}"
    if found.outcome == INCONCLUSIVE:
        return f"Inconclusive: {name} changed {place}, in a release that these duels cannot identify ({_ratio(last)} in all)."
    if search.metric == "parity":
        holds = search.passed.get(versions[found.after])
        what = (
            f"its parity check {'passes' if holds else 'fails'}, that of {versions[0]} {'fails' if holds else 'passes'}"
        )
    else:
        how = _MORE[search.metric][last.ratio < 1]
        ratio = _ratio(_at(search, found.after) or last)
        what = f"{OF_METRIC[search.metric]} has been {how} since then: {ratio} of {versions[0]}'s"
    skipped = "" if found.after - found.before == 1 else f" or one after {versions[found.before]} that does not work"
    doubt = "" if search.verified or search.metric == "parity" else " (not verified)"
    return f"{name} {versions[found.after]}{skipped}{doubt}: {what}."


def table(search: Search) -> Table:
    """One row per release."""
    versions = Column("release", lambda place: search.versions[place])
    if search.metric == "parity":
        words = {version: "passed" if holds else "failed" for version, holds in search.passed.items()}
        caption = f"Parity of {search.model}."
        columns = [Column("parity", lambda place: words.get(search.versions[place]) or _answer(search, place))]
    else:
        caption = (
            f"{OF_METRIC[search.metric].capitalize()} of {search.model} over that of {search.versions[0]}; all intervals hold"
            f" jointly with {percent(1 - version_search.ALPHA)} confidence."
        )
        columns = [
            Column("ratio", lambda place: _ratio(_at(search, place), NOTHING) if place else "1"),
            Column("blocks", lambda place: str(at.blocks) if (at := _at(search, place)) else NOTHING),
            Column("answer", lambda place: _answer(search, place)),
        ]
    return tabulate(f"{sentence(search)} {caption}", (versions,), columns, range(len(search.versions)))


def _at(search: Search, place: int) -> Answer | None:
    return next((one for one in search.found.answers if one.place == place), None)


def _ratio(answer: Answer | None, otherwise: str = "no ratio") -> str:
    if answer is None or not answer.blocks or answer.ratio != answer.ratio:
        return otherwise
    if not math.isfinite(answer.high):
        return f"{answer.ratio:.3f}x"
    return f"{answer.ratio:.3f}x [{answer.low:.3f}, {answer.high:.3f}]"


def _answer(search: Search, place: int) -> str:
    answer = _at(search, place)
    if place == 0:
        failed = search.outcome == FAILED and search.versions[0] in search.reasons
        return "the oldest" + (f", {_failure(search, search.versions[0])}" if failed else "")
    if answer is None:
        return "not asked"
    if answer.outcome == FAILED:
        return _failure(search, search.versions[place])
    return answer.outcome


def _failure(search: Search, version: str) -> str:
    if version not in search.reasons and search.versions[0] in search.reasons:
        return f"no answer, as {search.versions[0]} does not work beside it"
    return f"does not work: {search.reasons.get(version, 'see its study')}"


def svg(search: Search) -> str:
    """A point for each release that was asked, the one that changed it filled: its ratio, or whether its parity holds."""
    every, colour = list(search.versions), look.COLOURS[look.place(search.framework, [search.framework])]
    if search.metric == "parity":
        words = {True: "passed", False: "failed"}
        known = {version: words[search.passed[version]] for version in every if version in search.passed}
        rows = pd.DataFrame({"release": known.keys(), "parity": known.values()})
        y = alt.Y("parity:N", scale=alt.Scale(domain=[*words.values()]), title=f"parity of {search.model}")
    else:
        asked = [one for one in search.found.answers if one.blocks and math.isfinite(one.high)]
        figures = [(every[0], 1.0, 1.0, 1.0), *((every[one.place], one.ratio, one.low, one.high) for one in asked)]
        rows = pd.DataFrame(figures, columns=["release", "ratio", "low", "high"])
        y_title = f"{OF_METRIC[search.metric]} over that of {every[0]}"
        y = alt.Y("ratio:Q", title=y_title, scale=alt.Scale(zero=False))
    changed = every[search.found.after] if search.outcome == CHANGED else None
    x = alt.X("release:N", sort=every, title=f"release of {title(search.framework)}", axis=alt.Axis(labelAngle=0))
    base = alt.Chart(rows.assign(named=rows["release"] == changed)).encode(x=x.scale(domain=every))
    points = base.mark_point(size=70, color=colour, strokeWidth=1.5).encode(y=y)
    chart = points.encode(fill=alt.condition("datum.named", alt.value(colour), alt.value("white")))
    if search.metric != "parity":  # with the intervals, and the threshold as lines
        arms = base.mark_rule(color=colour, strokeWidth=1.5).encode(y=alt.Y("low:Q", title=y_title), y2="high:Q")
        limits = pd.DataFrame({"ratio": [1 + search.threshold, 1 / (1 + search.threshold)]})
        lines = alt.Chart(limits).mark_rule(color=look.GREY, strokeDash=[4, 3]).encode(y=y)
        chart = alt.layer(lines, arms, chart)
    return files.render(chart.properties(width=WIDTH, height=HEIGHT), files.FONT).svg
