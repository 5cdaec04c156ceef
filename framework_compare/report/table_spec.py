"""A kind of table as data: the columns under which each cell has its figures, the rows, and what stands around them."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from framework_compare.report.table_notes import first_value, row_name, unit_of, varies
from framework_compare.report.tables import NOTHING, Group, Row, Table, Value
from framework_compare.results import ratios, speed_verdicts
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import Record
from framework_compare.results.metrics import METRICS
from framework_compare.results.ratios import Ratio
from framework_compare.results.speed_verdicts import Verdict, Winner

NO_CELLS = "No cells in this study."
Predicate = Callable[[Sequence[Record]], bool]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    heading: "{unit}" in it is what a sample is called. shown: a figure of METRICS, several joined by "-", or a function
    from a row's record to its text or Value. group: the title that neighbouring columns share; None: a group of its own.
    key: where a row has several records, the key of the one that is shown; None is the first. there: whether a table of
    these records has the column.
    """

    heading: str
    shown: str | tuple[str, ...] | Callable[[Record], str | Value]
    group: str | None = ""
    key: object = None
    there: Predicate = lambda records: True

    @property
    def metrics(self) -> tuple[str, ...]:
        """The figures of METRICS that it shows."""
        return () if callable(self.shown) else (self.shown,) if isinstance(self.shown, str) else self.shown

    def value(self, record: Record) -> str | Value:
        if callable(self.shown):
            return self.shown(record)
        return "-".join(dict.fromkeys(METRICS[name].show(getattr(record, name)) for name in self.metrics))


def any_known(*names: str) -> Predicate:
    """Return whether any record has one of these figures, as a predicate."""
    return lambda records: any(not math.isnan(getattr(one, name)) for name in names for one in records)


def where_known(heading: str, name: str, group: str) -> Column:
    """A column that is left out where no cell has its figure."""
    return Column(heading, name, group, there=any_known(name))


def named(name: str, *, always: bool = False) -> Column:
    """A column that names rows by a setting, where they differ in it or `always`."""
    there: Predicate = (lambda records: True) if always else (lambda records: varies(records, name))
    return Column(name, lambda record: row_name(name, getattr(record, name)), there=there)


FRAMEWORK, MODEL = named("framework", always=True), named("model", always=True)
NAMES = (FRAMEWORK, MODEL, named("dataset"))


def tabulate(
    caption: str,
    names: Sequence[Column],
    columns: Sequence[Column],
    records: Iterable[Record],
    *,
    spread: Callable[[Record], object] | None = None,
    noted: bool = False,
    unit: str = "image",
    **more: Any,
) -> Table:
    """A table of records: one row for each, or for all of the same names, which `spread` gives keys that tell them apart.

    noted: whether the first figure of a cell has the note of the cell, or its status where it did not work.
    """
    records = list(records)
    names, columns = ([one for one in some if one.there(records)] for some in (names, columns))
    rows: dict[object, tuple[tuple[str, ...], dict[object, Record]]] = {}
    for place, record in enumerate(records):
        titles = tuple(str(name.value(record)) for name in names)
        _, row = rows.setdefault(titles if spread else place, (titles, {}))
        row[spread(record) if spread else None] = record
    first = {column.key: column for column in reversed(columns)}

    def value(column: Column, row: Mapping[object, Record]) -> Value:
        record = next(iter(row.values())) if column.key is None else row.get(column.key)
        if record is None:
            return Value(NOTHING)
        shown = column.value(record)
        if isinstance(shown, Value):
            return shown
        return first_value(record, shown) if noted and first[column.key] is column else Value(shown)

    groups = itertools.groupby(columns, lambda one: id(one) if one.group is None else one.group)
    headings = ((some[0].group or "", some) for some in (list(group) for _, group in groups))
    return Table(
        caption,
        tuple(one.heading for one in names),
        tuple(Group(title, tuple(one.heading.replace("{unit}", unit) for one in some)) for title, some in headings),
        tuple(Row(titles, tuple(value(column, row) for column in columns)) for titles, row in rows.values()),
        **more,
    )


@dataclasses.dataclass
class Sheet:
    """The input of one table: cells that share the settings it is not about; ratios and verdicts if its kind has them."""

    cells: Sequence[Record]
    ratios: Mapping[int, Ratio] = dataclasses.field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()

    @property
    def unit(self) -> str:
        return unit_of(self.cells)

    @functools.cached_property
    def best(self) -> dict[int, float]:
        """Each cell's epoch time over the least of the same model, by its place."""
        return ratios.to_best(self.cells)

    @functools.cached_property
    def winners(self) -> dict[tuple[str, str], Winner]:
        """The answer by model and data set."""
        found = speed_verdicts.winners(self.cells, self.verdicts)
        return {(one.model, one.condition["dataset"]): one for one in found}


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """A kind of table.

    caption stands before the settings that all cells share; "{unit}" in it is what a sample is called. names are the
    columns that name rows, columns those of figures, and figures what its CSV has. rows chooses and orders the cells;
    spread: as in `tabulate`. A table may hold cells that differ in the settings of `across`. ratios compares each cell
    with a baseline, for the Sheet and the CSV. judged: the Sheet gets the verdicts on the frameworks. frame names the
    Comparison's frame; each value of the columns `apart` has a table of its own. there: whether the cells of a study
    have what the kind is about; absent says so where they have not, and reasons why. slow: whether its frame takes long
    to make, so that `there` alone says whether a study has the kind.
    """

    caption: str | Callable[[Sheet], str]
    columns: Sequence[Column] | Callable[[Sheet], Sequence[Column]]
    figures: tuple[str, ...]
    names: Sequence[Column] | Callable[[Sheet], Sequence[Column]] = NAMES
    rows: Callable[[Sheet], Iterable[Record]] = lambda sheet: sheet.cells
    spread: Callable[[Record], object] | None = None
    remarks: Callable[[Sheet], Iterable[str]] = lambda sheet: ()
    across: tuple[str, ...] = ()
    ratios: Callable[[Sequence[Record], BlockTimes], dict[int, Ratio]] | None = None
    judged: bool = False
    frame: str = "frame"
    apart: tuple[str, ...] = ()
    there: Predicate = lambda cells: True
    absent: str = NO_CELLS
    reasons: Callable[[Sequence[Record]], list[str]] = lambda cells: []
    slow: bool = False
    noted: bool = True
    sparse: bool = False

    def table(self, sheet: Sheet, settings: str) -> Table:
        """The table of a sheet; settings: what its cells share, in words."""
        caption = self.caption(sheet) if callable(self.caption) else self.caption
        unit = sheet.unit
        return tabulate(
            f"{caption.replace('{unit}', unit).replace('{Unit}', unit.capitalize())} {settings}",
            self.names(sheet) if callable(self.names) else self.names,
            self.columns(sheet) if callable(self.columns) else self.columns,
            self.rows(sheet),
            spread=self.spread,
            noted=self.noted,
            unit=unit,
            remarks=tuple(self.remarks(sheet)),
            sparse=self.sparse,
        )
