"""What profilers counted, as frames and as a table: shares of time by operator, CUDA function and kernel class."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from framework_compare.frames import RUN_KEYS, SETTINGS, read_runs
from framework_compare.kernels import api_name, classify
from framework_compare.records import ProfileRow
from framework_compare.tables import Figure, Group, Row, Table

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store import Store

LEAST = 0.01  # a row is shown where it takes this share with any framework
CELL_KEYS = ("framework", "model", "dataset", *SETTINGS)
FIGURES = ("kind", "name", "kernel_class", "calls", "self_s", "share")
_FIELDS = tuple(field.name for field in dataclasses.fields(ProfileRow))
TITLES = {
    "operator": ("operator", "Time of the host by operator"),
    "cuda-runtime": ("CUDA function", "Time of the host in functions of the CUDA API"),
    "kernel": ("kernel class", "Time of the GPU by class of kernel"),
}
Record = Any  # a row of the joined frame, as itertuples gives it


def profile_frame(store: "Store") -> "pd.DataFrame":
    """A row a name that a run's profiler counted, the largest of its kind first; share is of the run's time of it."""
    import pandas as pd

    query = f"SELECT run_id, {', '.join(_FIELDS)} FROM profile ORDER BY run_id, kind, self_s DESC"
    frame = pd.DataFrame(store.select(query)[1], columns=["run_id", *_FIELDS])
    whole = frame.groupby(["run_id", "kind"])["self_s"].transform("sum")
    frame["share"] = (frame["self_s"] / whole).where(whole > 0)
    kernel = frame["kind"] == "kernel"
    frame["kernel_class"] = frame["name"].map(classify).where(kernel, None)
    frame["name"] = frame["name"].where(frame["kind"] != "cuda-runtime", frame["name"].map(api_name))
    keys = pd.DataFrame(read_runs(store), columns=list(RUN_KEYS))
    return keys.merge(frame, on="run_id")[[*RUN_KEYS, *FIGURES]]


def with_profile(cells: "pd.DataFrame", profile: "pd.DataFrame") -> "pd.DataFrame":
    """The cell frame with a row for each name that profilers counted, runs of a cell added up."""
    ok = profile[profile["status"] == "ok"]
    keys = [*CELL_KEYS, "kind", "name", "kernel_class"]
    sums = ok.groupby(keys, sort=False, dropna=False)[["calls", "self_s"]].sum().reset_index()
    whole = sums.groupby([*CELL_KEYS, "kind"])["self_s"].transform("sum")
    sums["share"] = (sums["self_s"] / whole).where(whole > 0)
    return cells.merge(sums, on=list(CELL_KEYS))


def profile_table(rows: Sequence[Record], caption: str) -> Table:
    """Of one kind: a row a name (kernels: a class), a column a framework of each network, shares in percent."""
    kind = rows[0].kind
    heading, what = TITLES[kind]
    shares = _shares(rows)
    columns = _columns(rows)
    names = [name for name in _ranked(shares) if any(found.get(name, 0) >= LEAST for found in shares.values())]
    body = [Row((name,), tuple(_percent(shares[column].get(name)) for column in columns)) for name in names]
    rest = [1 - sum(shares[column].get(name, 0) for name in names) for column in columns]
    body.append(Row((f"below {LEAST:.0%} everywhere",), tuple(_percent(max(share, 0.0)) for share in rest)))
    groups = {column[0]: [c[1] for c in columns if c[0] == column[0]] for column in columns}
    return Table(
        f"{what}, % of all of it, in a few steps under each framework's own profiler after the measured epochs."
        f" {caption}",
        (heading,),
        tuple(Group(title, tuple(headings)) for title, headings in groups.items()),
        tuple(body),
    )


def _shares(rows: Sequence[Record]) -> Dict[Tuple[str, str], Dict[str, float]]:
    """Of each column the share of each row."""
    found: Dict[Tuple[str, str], Dict[str, float]] = {}
    several = len({row.dataset for row in rows}) > 1
    for row in rows:
        column = (f"{row.model} / {row.dataset}" if several else row.model, row.framework)
        shares = found.setdefault(column, {})
        name = row.kernel_class if row.kind == "kernel" else row.name
        shares[name] = shares.get(name, 0.0) + row.share
    return found


def _columns(rows: Sequence[Record]) -> List[Tuple[str, str]]:
    found = list(_shares(rows))
    titles = list(dict.fromkeys(title for title, _ in found))
    return sorted(found, key=lambda column: titles.index(column[0]))


def _ranked(shares: Dict[Tuple[str, str], Dict[str, float]]) -> List[str]:
    """Names by the sum of their shares, the largest first."""
    sums: Dict[str, float] = {}
    for found in shares.values():
        for name, share in found.items():
            sums[name] = sums.get(name, 0.0) + share
    return sorted(sums, key=lambda name: -sums[name])


def _percent(share: Any) -> Figure:
    return Figure("-" if share is None else f"{100 * share:.1f}")
