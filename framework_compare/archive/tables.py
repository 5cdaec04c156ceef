"""The tables of a submission's records as rows: of all runs, of each run, and the machines that runs were on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from framework_compare.json_types import JSON
from framework_compare.protocol import Document, Fields

SECOND = 1_000_000_000
Row = Document


def rows_of(table: Mapping[str, Sequence[JSON]]) -> list[Fields]:
    names = list(table)
    return [dict(zip(names, values)) for values in zip(*table.values())]


class Tables:
    """Sound records: runs and cells by their numbers, machines by node, None being the machine of the study."""

    def __init__(self, records: Document) -> None:
        self.settings, self.environments = records["settings"], records["environments"]
        self._columns, self._rows = records["tables"], dict[str, list[Fields]]()
        self.runs: dict[int, Row] = {row["run_id"]: row for row in self.rows("run")}
        self.cells: dict[int, Row] = {row["cell_id"]: row for row in self.rows("cell")}
        nodes = {row["node_id"]: row["machine"] for row in self.rows("node")}
        self.machines: dict[int | None, Row] = {None: records["machine"], **nodes}

    def rows(self, table: str) -> Sequence[Fields]:
        if table not in self._rows:
            self._rows[table] = rows_of(self._columns.get(table, {}))
        return self._rows[table]

    def by_run(self, table: str) -> dict[int, list[Fields]]:
        found: dict[int, list[Fields]] = {}
        for row in self.rows(table):
            found.setdefault(row["run_id"], []).append(row)
        return found

    def column(self, table: str, name: str) -> Sequence[JSON]:
        """The values of a column; nothing where no row has any."""
        values: Sequence[JSON] = self._columns.get(table, {}).get(name, ())
        return values

    def cell_of(self, run: int) -> Row:
        return self.cells[self.runs[run]["cell_id"]]

    def machine_of(self, run: int) -> Row:
        return self.machines[self.runs[run].get("node_id")]


def length_s(row: Row) -> float:
    """Seconds from the start of a row to its end."""
    return float((row["end_ns"] - row["start_ns"]) / SECOND)


def awake_s(epoch: Row) -> float:
    """Seconds of an epoch without those in which its worker waited for a turn."""
    return length_s(epoch) - (epoch.get("waited_s") or 0.0)


def in_order(rows: Iterable[Row], name: str = "start_ns") -> list[Row]:
    return sorted(rows, key=lambda row: row[name])


def overlaps(ordered: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The rows that begin before the one in front of them has ended, with that one first."""
    return [(one, other) for one, other in zip(ordered, ordered[1:]) if other["start_ns"] < one["end_ns"]]
