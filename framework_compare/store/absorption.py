"""A part of a study, measured elsewhere in a file of its own, taken over by SQL: whole or not at all, and once."""

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from framework_compare.store.schema import CHILDREN, RUN_FIELDS, fields_of, marks, now

_SAME_CELL = " AND ".join(
    f"ours.{name} = theirs.{name}" for name in ("framework", "model", "dataset", "device", "config")
)
_ONE_MORE = "INSERT INTO main.run (cell_id, repeat) VALUES (?, ?)"


@dataclasses.dataclass(frozen=True)
class Part:
    """A part that is done: its file, where it ran, and which runs of the study it stands for."""

    number: int
    path: Path  # of its SQLite file
    turn: int  # `repeat` of its runs in the study; in the part each is the first
    replaces: Sequence[str]  # statuses of runs of the study that it may replace
    node: str
    machine: str  # JSON
    environments: Mapping[str, str]  # label -> JSON, as the study has them afterwards
    place: str  # its folder within the study's, which paths of logs begin with


def absorb(connection: sqlite3.Connection, part: Part) -> bool:
    """Take over the runs of a part that the study still lacks, in one transaction; False where that is done already.

    Runs that repeat a disturbed one are added to the study. sqlite3.Error leaves the study as it was; the part's file has
    been checked for its schema and for damage.
    """
    with _attached(connection, part.path), connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT 1 FROM main.part WHERE part_id = ?", (part.number,)).fetchone():
            return False
        _record(connection, part)
        _match(connection, part)
        _copy(connection, part)
        return True


@contextlib.contextmanager
def _attached(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """A part that nobody writes any more: as immutable it needs no lock, which shared disks may not have."""
    connection.execute("ATTACH ? AS source", (f"{path.absolute().as_uri()}?mode=ro&immutable=1",))
    try:
        connection.execute("CREATE TEMP TABLE match (theirs INTEGER PRIMARY KEY, ours INTEGER NOT NULL UNIQUE)")
        yield
    finally:
        connection.execute("DROP TABLE IF EXISTS temp.match")
        connection.execute("DETACH source")


def _record(connection: sqlite3.Connection, part: Part) -> None:
    connection.execute("INSERT OR IGNORE INTO main.node (name, machine) VALUES (?, ?)", (part.node, part.machine))
    values = (part.number, now(), part.node)
    connection.execute("INSERT INTO main.part SELECT ?, node_id, ? FROM main.node WHERE name = ?", values)
    connection.executemany("INSERT OR REPLACE INTO main.environment VALUES (?, ?)", part.environments.items())


def _match(connection: sqlite3.Connection, part: Part) -> None:
    """Pair each run of the part with the run of the study that it stands for; one that repeats another gets a new one."""
    connection.execute(
        "INSERT INTO temp.match SELECT source.run.run_id, main.run.run_id FROM source.run"
        " JOIN source.cell theirs ON theirs.cell_id = source.run.cell_id"
        f" JOIN main.cell ours ON {_SAME_CELL} JOIN main.run ON main.run.cell_id = ours.cell_id AND main.run.repeat = ?"
        f" WHERE source.run.retry_of IS NULL AND source.run.repeat = 1 AND main.run.status"
        f" IN ({marks(part.replaces)})",
        (part.turn, *part.replaces),
    )
    _match_moved(connection, part)
    again = "SELECT run_id, ours FROM source.run JOIN temp.match ON theirs = retry_of ORDER BY run_id"
    for theirs, first in connection.execute(again).fetchall():
        ours = connection.execute(
            "INSERT INTO main.run (cell_id, repeat, retry_of) SELECT cell_id, max(repeat) + 1, ? FROM main.run"
            " WHERE cell_id = (SELECT cell_id FROM main.run WHERE run_id = ?)",
            (first, first),
        ).lastrowid
        connection.execute("INSERT INTO temp.match VALUES (?, ?)", (theirs, ours))


def _match_moved(connection: sqlite3.Connection, part: Part) -> None:
    """Give runs that memory did not hold beside the others, and their anchor's, blocks of their own here, too."""
    moved = (
        "SELECT source.run.run_id, source.run.repeat, ours.cell_id FROM source.run"
        f" JOIN source.cell theirs USING (cell_id) JOIN main.cell ours ON {_SAME_CELL}"
        " WHERE source.run.retry_of IS NULL AND source.run.repeat > 1 ORDER BY source.run.run_id"
    )
    planned = (
        f"SELECT run_id FROM main.run WHERE cell_id = ? AND repeat = ? AND status IN ({marks(part.replaces)})"
        " AND run_id NOT IN (SELECT ours FROM temp.match)"
    )
    (last,) = connection.execute("SELECT max(repeat) FROM main.run").fetchone()
    places: dict[int, int] = {}
    for theirs, repeat, cell_id in connection.execute(moved).fetchall():
        block = places.setdefault(repeat, last + 1 + len(places))
        found = connection.execute(planned, (cell_id, part.turn, *part.replaces)).fetchone()
        if found:
            connection.execute("UPDATE main.run SET repeat = ? WHERE run_id = ?", (block, *found))
        ours = found[0] if found else connection.execute(_ONE_MORE, (cell_id, block)).lastrowid
        connection.execute("INSERT INTO temp.match VALUES (?, ?)", (theirs, ours))


def _copy(connection: sqlite3.Connection, part: Part) -> None:
    changed: dict[str, tuple[str, str | int]] = {
        name: (f"? || '/' || {name}", part.place) for name in ("log_path", "trace_path")
    }
    # Each part numbers its duels anew, and no two of the study may have the same number.
    changed["duel"] = ("duel + ?", part.number << 32)
    columns, values = ", ".join(RUN_FIELDS), ", ".join(changed.get(name, (name,))[0] for name in RUN_FIELDS)
    connection.execute(
        f"UPDATE main.run SET part_id = ?, node_id = (SELECT node_id FROM main.part WHERE part_id = ?), ({columns}) ="
        f" (SELECT {values} FROM source.run WHERE run_id = (SELECT theirs FROM temp.match WHERE ours = main.run.run_id))"
        " WHERE run_id IN (SELECT ours FROM temp.match)",
        (part.number, part.number, *[changed[name][1] for name in RUN_FIELDS if name in changed]),
    )
    for table in CHILDREN:
        listed = ", ".join(fields_of(table))
        connection.execute(f"DELETE FROM main.{table} WHERE run_id IN (SELECT ours FROM temp.match)")
        connection.execute(
            f"INSERT INTO main.{table} (run_id, {listed}) SELECT ours, {listed} FROM source.{table}"
            f" JOIN temp.match ON theirs = run_id ORDER BY source.{table}.rowid"
        )
    stale = "SELECT cell_id FROM main.run JOIN temp.match ON ours = run_id"
    connection.execute(f"DELETE FROM main.figures WHERE cell_id IN ({stale})")
