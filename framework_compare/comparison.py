"""Results of a study: frames to compute with, tables to read."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

from framework_compare.errors import StudyError
from framework_compare.protocol import Fields
from framework_compare.results import (
    bills,
    frames,
    precision,
    profiles,
    regression_gate,
    speed_verdicts,
    workloads,
)
from framework_compare.results.block_times import BlockTimes, block_seconds
from framework_compare.results.columns import CELL_COLUMNS, NAMES, SHARED
from framework_compare.results.precision import BudgetOutcome
from framework_compare.results.runs import Modes, read_modes
from framework_compare.results.speed_verdicts import Verdict
from framework_compare.store import schema
from framework_compare.store.study_file import Store

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.report.figures.plot import Plot
    from framework_compare.report.study_table import StudyTable

T = TypeVar("T")


class Comparison:
    """Results of a study folder. Each frame is read on first use and cached.

    A study can be read while it is being written; load it again to see newer results.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._damage: dict[str, tuple[int, str]] = {}

    @classmethod
    def load(cls, folder: str | Path) -> Comparison:
        """Load a study by its folder, its name in the cache, or "latest"; StudyError if it is missing or damaged."""
        from framework_compare.study import names
        from framework_compare.study.data_files import register_models

        folder = names.find(folder)
        Store.open(folder, checked=True).close()
        # of a damaged model the measurements are there; `resume` says what is wrong
        with contextlib.suppress(StudyError):
            register_models(folder)
        return cls(folder)

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """One row per cell, in planned order, including failed cells; missing values are NaN.

        Column names end in their unit; shares are 0 to 1. `metrics.METRICS` has units and labels. If a cell has several
        runs, epoch figures cover all epochs of the runs that are ok, and the status is the worst one.
        """
        return self._read(frames.cell_frame)

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run of any cell: status, reason, started_at (UTC), started_s, wall_s, log_tail, interpreter, ..."""
        return self._read(frames.run_frame)

    @functools.cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per epoch of any run.

        Columns: cell (its row in `frame`), start_s in the run, epoch_s, images, steps, data_wait_s, loss, step_s_*, ...
        """
        return self._read(frames.epoch_frame)

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step of the runs whose step times are in the study folder: epoch, step within it from 1, step_s."""
        return self._read(frames.step_frame)

    @functools.cached_property
    def block_times(self) -> BlockTimes:
        """Epoch seconds by cell and block, and ratios of them with intervals."""
        return block_seconds(self.epochs, looked=bool(precision.stored_budget(self.settings)))

    @functools.cached_property
    def slices(self) -> pd.DataFrame:
        """One row per turn of a worker that took turns with its rivals."""
        return self._read(frames.slice_frame)

    @functools.cached_property
    def samples(self) -> pd.DataFrame:
        """One row per reading: t_s since the start of the run's first phase, the phase, and the values read."""
        return self._read(frames.sample_frame)

    @functools.cached_property
    def phases(self) -> pd.DataFrame:
        """One row per phase of any run: start_s in the run, seconds, pss_bytes of the process tree at its end."""
        return self._read(frames.phase_frame)

    @functools.cached_property
    def energy(self) -> pd.DataFrame:
        """One row per reading of energy: meter ("gpu", "host-package-0"), t_s, energy_j since some origin, source."""
        return self._read(frames.energy_frame)

    @functools.cached_property
    def profile(self) -> pd.DataFrame:
        """One row per name in a run's profile: kind, name, kernel_class, calls, self_s, share (0 to 1)."""
        return self._read(profiles.profile_frame)

    @property
    def quality(self) -> pd.DataFrame:
        """`frame` with the quality of workloads: validation_<metric> after the last epoch, baseline_<metric>."""
        return workloads.with_quality(self.frame, self.epochs, self.settings)

    @functools.cached_property
    def candidates(self) -> pd.DataFrame:
        """One row per candidate of each grid-search run, with its metrics and seconds; empty for other studies."""
        return self._read(workloads.candidate_frame)

    @property
    def searches(self) -> pd.DataFrame:
        """`frame` of the grid searches, with the seconds of each part of the search, and the best candidate."""
        return workloads.search_frame(self.quality, self.epochs, self.candidates)

    @property
    def gains(self) -> pd.DataFrame:
        """`frame` of a ladder, with the rung, training seconds and speed-up of each cell; empty for other studies."""
        return workloads.gain_frame(self.frame, self.epochs, self.phases, self.settings)

    @property
    def profiled(self) -> pd.DataFrame:
        """`frame` joined with `profile`, the runs of a cell added up."""
        return profiles.with_profile(self.frame, self.profile)

    @property
    def kinds(self) -> list[str]:
        """The kinds of `table` that this study has."""
        from framework_compare.report import kinds

        return kinds.present(self)

    @functools.cached_property
    def settings(self) -> Fields:
        """The settings with which the study was planned."""
        return self._read(Store.settings)

    @functools.cached_property
    def machine(self) -> Fields:
        return self._read(Store.machine)

    @property
    def warnings(self) -> list[str]:
        """Possible disturbances of the runs, such as other programs on the GPU; each sentence begins with its cell."""
        warned = self.frame[self.frame["warnings"] != ""]
        return [f"{cell.framework}-{cell.model}-{cell.device}: {cell.warnings}" for cell in warned.itertuples()]

    @property
    def damage(self) -> list[str]:
        """One sentence per table on the damaged data that the frames read so far leave out."""
        return schema.damage_sentences(self.folder, self._damage)

    @functools.cached_property
    def environments(self) -> dict[str, Fields]:
        """The packages of each framework's environment."""
        return self._read(Store.environments)

    @functools.cached_property
    def roofline(self) -> pd.DataFrame:
        """`frame` with FLOP/s and bytes/s of each cell, the machine's peaks, and the share of the roofline.

        The peaks are those that `framework_compare.measure_peaks` stored for this machine; reading measures nothing.
        """
        # Other tables need neither, and a third of the time of their imports.
        from framework_compare.environments import peaks
        from framework_compare.results import roofline

        machine = self.machine

        @functools.lru_cache(maxsize=None)
        def peak(device: str, precision: str, threads: int) -> peaks.Peak | None:
            return peaks.known(peaks.Request(machine, device, precision, threads))

        return roofline.roofline_frame(
            self.frame, self.settings, lambda cell: peak(cell.device, cell.precision, int(cell.threads))
        )

    @functools.cached_property
    def modes(self) -> dict[str, Modes]:
        """The execution mode in which each framework ran, and its other modes."""
        return self._read(read_modes)

    def _read(self, reader: Callable[[Store], T]) -> T:
        with Store.open(self.folder) as store:
            part = reader(store)
            self._damage.update(store.damage)
            return part

    @overload
    def table(self, kind: str = "time", style: None = None, *, verdicts: bool = True) -> StudyTable: ...

    @overload
    def table(
        self, kind: str, style: str, *, width: int | None = None, bold: bool | None = None, verdicts: bool = True
    ) -> str: ...

    def table(
        self,
        kind: str = "time",
        style: str | None = None,
        *,
        width: int | None = None,
        bold: bool | None = None,
        verdicts: bool = True,
    ) -> Any:
        """Return a table as a `StudyTable`: print it, or use its `to_latex()`, `to_markdown()`, `frame`, ...

        kind: "time", "resources", "speedup" (devices over the CPU), "stack" (a library over the framework below it),
        "modes" (each framework in its fastest execution mode), "devices" (several over one), "precision" (and execution
        mode, over fp32 eager), "scaling" (by batch size), "startup" (and when it pays off), "energy", "quality" (metrics
        of workloads), "gains" (rungs of a ladder), "inference" (latency), "generation" (of tokens), "roofline" (over the
        machine's peaks) or "profile" (shares of time, for studies with profile=True). The first lines are verdicts, the
        last ones warnings; verdicts=False omits both.

        With a style ("terminal", "markdown", "github", "html", "latex", "csv"), or with the terminal's width or bold,
        return the text instead. Raises UsageError for an unknown kind or style.
        """
        from framework_compare.report import kinds

        made = kinds.table(self, kind, verdicts)
        if style is None and width is None and bold is None:
            return made
        return made.text("terminal" if style is None else style, width=width, bold=bold)

    def cost(
        self,
        per_hour: bills.PerHour = None,
        per_kwh: float | None = None,
        co2_g_per_kwh: float | None = None,
        epochs: int = 1,
    ) -> StudyTable:
        """Return a table with the cost of a number of epochs of each cell: machine time, energy, and its CO2.

        per_hour: price of a machine hour, or by kind of device {"cpu": 0.2, "cuda": 3.5}; per_kwh: price of a
        kilowatt-hour; co2_g_per_kwh: grams of CO2 per kilowatt-hour. Any currency. `frame` of the table has the figures
        (`results.bills.COLUMNS`). Raises UsageError if no price is given, or one that is not a number of at least 0.
        """
        from framework_compare.report.resource_tables import bill_table
        from framework_compare.report.study_table import StudyTable

        prices = bills.Prices(per_hour, per_kwh, co2_g_per_kwh)
        billed = bills.bill_frame(self.frame, prices, epochs)
        cells = list(billed.itertuples())
        parts = [bill_table(cells, prices, epochs)] if cells else []
        keys = [name for name in CELL_COLUMNS if name in (*NAMES, *SHARED, "status")]
        return StudyTable("cost", parts, ["No cells in this study."], lambda: billed[[*keys, *bills.COLUMNS]])

    def verdicts(self, of: str = "framework", *, correct: bool = True) -> list[Verdict]:
        """Compare each pair of competitors: which one trains faster, and by what factor, with a 95 % interval.

        of: the only setting in which competitors differ: "framework", or another one such as "execution". Single models
        come first, then geometric means over models. Ratios compare runs of the same block; with one run there is no
        interval, and no difference is significant. correct: adjust for the number of comparisons by Holm's method.
        Raises UnknownNameError for an unknown setting.
        """
        cells = list(self.frame.itertuples())
        return speed_verdicts.verdicts(cells, self.block_times, of, correct)

    @property
    def budget(self) -> BudgetOutcome | None:
        """The outcome of a study under a budget: the time spent, and which cells meet the target; None without a budget."""
        cells = list(self.frame.itertuples())
        under_budget = bool(cells) and cells[0].budget_s > 0
        return precision.outcome(cells, float(self.runs["wall_s"].sum())) if under_budget else None

    def report(self, path: str | Path = "report.html", **prices: Any) -> Path:
        """Write the report as one HTML file that works offline and without JavaScript; return its path.

        prices: arguments of `cost`, whose table the report then includes.
        """
        from framework_compare.report.page import report

        return report.write(self, path, self.cost(**prices).parts if prices else ())

    def plot(self, name: str, **only: Any) -> Plot:
        """Return a figure by name ("overview", "epoch-time", ...) or number ("F2"); frameworks and models select
        what is drawn, view="images per second" selects another view.

        Jupyter displays it; `save` writes it. Raises UnknownNameError for an unknown name, UsageError if the study
        has no data for the figure.
        """
        from framework_compare.report.figures.plot import Plot

        return Plot(self, name, **only)

    def to_csv(self, path: str | Path) -> None:
        """Write `frame` as CSV in UTF-8; a missing value is an empty field."""
        from framework_compare.report import renderers

        Path(path).write_text(renderers.csv(self.frame), encoding="utf-8", newline="")

    def to_json(self) -> str:
        """Return the study as one JSON document: every cell with all columns of `frame`, verdicts, machine, packages.

        Its schema is `report/study.schema.json` in the package; units are SI, and a missing value is null.
        """
        from framework_compare.report import json_document

        return json_document.text(self)

    def to_toml(self) -> str:
        """Return the request of the study as a TOML file for `framework-compare run --from` and `api.compare_file`.

        Raises StudyError for a study without a single request: a sweep, or a study that was extended.
        """
        from framework_compare.study import study_toml

        return study_toml.text(self.settings, self.folder)

    def beside(self, other: Comparison, history: Sequence[Comparison] = ()) -> pd.DataFrame:
        """Return one row per cell that both studies have, with the ratio of the epoch times.

        history: two or more other sessions of this study, from which the variance between sessions is estimated.
        """
        sides = [(one.frame, one.epochs) for one in (self, other, *history)]
        return regression_gate.side_by_side(sides[0], sides[1], sides[2:])

    def export(self, folder: str | Path, kind: str = "csv") -> None:
        """Write all tables into a folder, as "csv", "json" or "parquet" (needs pyarrow)."""
        from framework_compare.report.exports import export

        export(self.folder, folder, kind)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        """Verdicts, the table of times and their figure, for Jupyter."""
        from framework_compare.report.page import report

        return report.fragment(self)

    def __repr__(self) -> str:
        return f"Comparison({str(self.folder)!r})"
