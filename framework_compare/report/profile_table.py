"""The profilers' counts as a table: shares of time by operator, CUDA function and kernel class."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from framework_compare.report.names import title
from framework_compare.report.table_notes import first_value
from framework_compare.report.table_spec import Column, Sheet, TableSpec
from framework_compare.report.tables import NOTHING, Value
from framework_compare.results import profiles
from framework_compare.results.columns import Record

LEAST = 0.01  # a row is shown where it takes this share with any framework
REST = f"below {100 * LEAST:.0f} % everywhere"
TITLES = {
    "operator": ("operator", "Host time by operator"),
    "cuda-runtime": ("CUDA function", "Host time by function of the CUDA API, including waits for the GPU"),
    "kernel": ("kernel class", "GPU time by class of kernel"),
}
Shares = dict[str, float]
Key = tuple[str, str, str]  # model, data set, framework


def _key(row: Record) -> Key:
    return row.model, row.dataset, row.framework


def _shares(rows: Sequence[Record]) -> dict[Key, Shares]:
    """The share of each name by model, data set and framework; the columns of a model are neighbours."""
    models = list(dict.fromkeys(_key(row)[:2] for row in rows))
    shares: dict[Key, Shares] = {
        key: {} for key in sorted(dict.fromkeys(map(_key, rows)), key=lambda key: models.index(key[:2]))
    }
    for row in rows:
        name = row.kernel_class if row.kind == "kernel" else row.name
        if isinstance(name, str):
            own = shares[_key(row)]
            own[name] = own.get(name, 0.0) + row.share
    return shares


def _names(sheet: Sheet) -> list[str]:
    """Names by the sum of their shares, the largest first, and one for all that are small everywhere."""
    shares = _shares(sheet.cells).values()
    sums = {name: sum(own.get(name, 0.0) for own in shares) for own in shares for name in own}
    shown = [name for name in sums if any(own.get(name, 0) >= LEAST for own in shares)]
    return [*sorted(shown, key=lambda name: -sums[name]), REST] if shown else []


def _columns(sheet: Sheet) -> list[Column]:
    shares, names = _shares(sheet.cells), _names(sheet)
    cells = {_key(row): row for row in sheet.cells}
    named = 2 if len({dataset for _, dataset, _ in shares}) > 1 else 1  # by the model, or by its data set, too

    def shown(key: Key) -> Callable[[str], Value]:
        own = shares[key]
        rest = 1 - sum(own.get(name, 0) for name in names) if own else None

        def share(name: str) -> Value:
            value = rest if name == REST else own.get(name)
            text = NOTHING if value is None else f"{100 * max(value, 0.0):.1f}"
            return first_value(cells[key], text) if name == names[0] else Value(text)

        return share

    return [Column(title(key[2]), shown(key), " / ".join((title(key[0]), *key[1:named]))) for key in shares]


PROFILE = TableSpec(
    lambda sheet: (
        f"{TITLES[sheet.cells[0].kind][1]}, in % of the total, in a few steps under each framework's own profiler after "
        "the measured epochs."
    ),
    _columns,
    profiles.FIGURES,
    names=lambda sheet: (Column(TITLES[sheet.cells[0].kind][0], str),),
    rows=_names,
    frame="profiled",
    apart=("kind",),
    absent="No cell of this study was profiled; run it with profile=True (--profile).",
    noted=False,
    sparse=True,  # operators are named differently by each framework
)
