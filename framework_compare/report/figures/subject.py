"""The data of figures: a study's frames, narrowed and named for people."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import pandas as pd

from framework_compare.errors import UsageError
from framework_compare.report.figures import look
from framework_compare.report.names import in_order, title
from framework_compare.report.study import Study
from framework_compare.report.table_notes import setting_words, unit_of
from framework_compare.report.tables import clean, known
from framework_compare.results import speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import SHARED, Record
from framework_compare.results.ratios import Ratio
from framework_compare.results.repeats import disturbed_throughout
from framework_compare.results.speed_verdicts import Verdict, key, winners

MAX_NAME = 60
_IMAGE = re.compile(r"\b[Ii]mage(?=s?\b)")
LABELS = ["framework_label", "condition_label"]  # columns: a framework as people write it, and what it competes in
# Properties that every object of JavaScript has: Vega takes such a name for its own.
RESERVED = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf")
)


class Subject:
    """A study as figures see it: its cells with names for people, and the parts of its frames that belong to them.

    frameworks, models, conditions: only these; None is all. UsageError for a name that the study has not.
    """

    def __init__(
        self,
        study: Study,
        frameworks: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        conditions: Sequence[str] | None = None,
    ) -> None:
        self.study = study
        self._conditions = conditions
        self._only = {"framework": frameworks, "model": models}
        for column, names in self._only.items():
            allowed = list(dict.fromkeys(map(str, study.frame[column])))
            if names is not None and not names:
                raise UsageError(f"no {column} to draw is named; allowed: {', '.join(allowed)}")
            for name in names or ():
                if name not in allowed:
                    raise UsageError(f"the study has no {column} {name!r}; allowed: {', '.join(allowed)}")

    @functools.cached_property
    def unit(self) -> str:
        """The word for a sample: "row" if all cells train on rows, "image" if they differ."""
        return unit_of(list(self.cells.itertuples()))

    def worded(self, text: str) -> str:
        """Return a text on images in the word for what the cells train on, such as "rows"."""
        return _IMAGE.sub(lambda found: self.unit.capitalize() if found[0] == "Image" else self.unit, text)

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """The study's frame with these columns more: cell, its row in the study's frame; framework_label and
        condition_label, its framework and the rest of it as text; best, the epoch time over that of the fastest under the
        same condition; about, whether the epoch time is the estimate of a sampled cell."""
        frame = self.study.frame
        cells = frame.assign(cell=range(len(frame)))
        for column, names in self._only.items():
            cells = cells if names is None else cells[cells[column].isin(list(names))]
        sampled = cells["epoch_s_median"].isna() & cells["epoch_estimate_s"].notna()
        pairs = (("epoch_s_median", ""), ("epoch_s_ci_low", "_low"), ("epoch_s_ci_high", "_high"))
        figures = {name: cells[name].where(~sampled, cells[f"epoch_estimate_s{end}"]) for name, end in pairs}
        cells = cells.assign(**figures, about=sampled)
        varied = self._varied()
        cells = cells.assign(
            framework_label=[_short(title(name)) for name in cells["framework"]],
            condition_label=[_condition(cell, varied) for cell in cells.itertuples()],
            worked=(cells["status"] == "ok") & cells["epoch_s_median"].gt(0),
            disturbed=[disturbed_epochs(cell) for cell in cells.itertuples()],
        )
        cells = cells if self._conditions is None else cells[cells["condition_label"].isin(list(self._conditions))]
        seconds = cells["epoch_s_median"].where(cells["worked"])
        return cells.assign(best=seconds / seconds.groupby(cells["condition_label"]).transform("min"))

    @functools.cached_property
    def judged(self) -> pd.DataFrame:
        """`cells` with columns more. fastest: whether it is the winner. verdict: the one on the cell and the winner of its
        condition, or else the first of it by figures, as times of the cell over times of that. Where there is one, best is
        its ratio, of paired runs."""
        judgements = self.study.verdicts()
        won = {one.key: one.framework for one in winners(list(self.worked.itertuples()), judgements)}
        fastest = [won.get(key(cell)) == cell.framework for cell in self.cells.itertuples()]
        cells = self.cells.assign(fastest=fastest)
        ahead = cells[cells["best"] == 1].drop_duplicates("condition_label")
        leaders: dict[str, str] = {}
        for some in (ahead, cells[cells["fastest"]]):
            leaders.update(zip(some["condition_label"], some["framework"]))
        verdicts = {(*key(one), one.faster, one.slower): one for one in judgements}

        def beside_leader(cell: Record) -> Verdict | None:
            if not cell.worked or cell.framework == leaders[cell.condition_label]:
                return None
            leader = leaders[cell.condition_label]
            behind, before = (*key(cell), leader, cell.framework), (*key(cell), cell.framework, leader)
            return verdicts.get(behind) or (speed_verdicts.inverted(verdicts[before]) if before in verdicts else None)

        found = [beside_leader(cell) for cell in cells.itertuples()]
        ratios = [cell.best if one is None else one.ratio for cell, one in zip(cells.itertuples(), found)]
        best = pd.Series(ratios, cells.index).where(cells["framework"] != cells["condition_label"].map(leaders), 1.0)
        return cells.assign(best=best, verdict=found)

    def without(self, setting: str) -> list[str]:
        """Return the condition of each cell without a setting that the figure already shows."""
        varied = [name for name in self._varied() if name != setting]
        return [_condition(cell, varied) for cell in self.cells.itertuples()]

    def _varied(self) -> list[str]:
        """The settings in which cells of the whole study differ."""
        frame = self.study.frame
        return [name for name in ("dataset", *SHARED) if frame[name].astype(str).nunique() > 1]

    @functools.cached_property
    def worked(self) -> pd.DataFrame:
        """The cells that have an epoch time."""
        return self.cells[self.cells["worked"]]

    @functools.cached_property
    def frameworks(self) -> list[str]:
        """Names of the frameworks, in their order."""
        return [_short(title(name)) for name in in_order(list(self.cells["framework"]))]

    @functools.cached_property
    def conditions(self) -> list[str]:
        """Names of what frameworks compete in, in the study's order."""
        return list(dict.fromkeys(self.cells["condition_label"]))

    def marks(self) -> tuple[list[str], list[str], list[tuple[int, ...]]]:
        """Colours, shapes and dashes of the frameworks."""
        names = in_order(list(self.cells["framework"]))
        places = [look.place(name, names) for name in names]
        return [look.COLOURS[n] for n in places], [look.SHAPES[n] for n in places], [look.DASHES[n] for n in places]

    def compared(self, ratios: Callable[[list[Record], BlockTimes], dict[int, Ratio]]) -> dict[int, Ratio]:
        """The known ratios of these cells to other cells, by the place of the cell."""
        found = ratios(list(self.study.frame.itertuples()), self.study.block_times).items()
        places = set(self.cells["cell"])
        return {n: one for n, one in found if one.base.Index != n and known(one.ratio) and n in places}

    def whole_epochs(self) -> pd.DataFrame:
        """Epochs of these cells, `of` the study's; of a sampled one the run's estimate of the whole stands as its time."""
        epochs = self.of(self.study.epochs)
        return epochs.assign(epoch_s=epochs["estimate_s"].fillna(epochs["epoch_s"]))

    def waited_s(self) -> pd.Series:
        """Return by run_id the seconds of its epochs in which a run waited for its turns."""
        return self.study.epochs.groupby("run_id")["waited_s"].sum()

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of another frame that belong to these cells and to runs that count, with LABELS."""
        rows = frame[frame["counts"].astype(bool) & (frame["status"] == "ok")]
        names = self.cells.set_index("cell")[LABELS]
        if "cell" not in rows:
            rows = rows.join(self.study.runs.set_index("run_id")["cell"], on="run_id")
        return rows[rows["cell"].isin(names.index)].join(names, on="cell")


def speeds(cells: pd.DataFrame) -> pd.DataFrame:
    """`cells` with the ends of the interval of images_per_s as slow and fast; NaN without one."""
    images = cells["images_per_s"] * cells["epoch_s_median"]
    return cells.assign(slow=images / cells["epoch_s_ci_high"], fast=images / cells["epoch_s_ci_low"])


def _condition(cell: Record, varied: Sequence[str]) -> str:
    plain = ("dataset", "execution", "precision")  # their values need no heading
    values = {name: getattr(cell, name) for name in varied}
    words = (str(value) if name in plain else setting_words(name, value) for name, value in values.items())
    return _short(", ".join([title(cell.model), *words]))


def _short(text: str) -> str:
    line = clean(text)
    if line in RESERVED or line.startswith("__"):
        line = f"\u201c{line}\u201d"
    return line if len(line) <= MAX_NAME else line[: MAX_NAME - 1] + "…"


def disturbed_epochs(cell: Record) -> str:
    """Return which epochs of a cell other programs disturbed; "" if none."""
    if not cell.epochs_disturbed > 0:
        return ""
    return "all epochs" if disturbed_throughout(cell.epochs_disturbed, cell.epochs_measured) else "some epochs"
