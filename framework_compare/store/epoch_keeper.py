"""Epochs of a run that is still going, stored as they come, so that a parent that is killed leaves them behind."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from pathlib import Path
from typing import List, Optional

from framework_compare.records import Epoch
from framework_compare.store import schema
from framework_compare.store.study_file import insert

INTERVAL_S = 1.0


class EpochKeeper:
    """A context manager around a run. A thread of its own writes, at most one transaction a second.

    Whoever listens to the worker only puts epochs into a queue. The record of the run replaces what was stored here,
    so that an error, such as a full disk, is left for that to tell; nor is the last second waited for.
    """

    def __init__(self, path: Path, run_id: int) -> None:
        self._path, self._run_id = path, run_id
        self._queue: "queue.SimpleQueue[Optional[Epoch]]" = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="epochs", daemon=True)

    def __enter__(self) -> "EpochKeeper":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._queue.put(None)
        self._thread.join()

    def take(self, epoch: Epoch) -> None:
        """An epoch to store; returns at once."""
        self._queue.put(epoch)

    def _keep(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            connection: Optional[sqlite3.Connection] = None
            try:
                # Asked before each wait: whoever gathers what is waiting may take the end's None with it.
                while not self._ended.is_set() and (first := self._queue.get()) is not None:
                    connection = connection or connect(self._path)
                    store_epochs(connection, self._run_id, [first, *self._waiting()])
                    self._ended.wait(INTERVAL_S)
            finally:
                if connection is not None:
                    connection.close()

    def _waiting(self) -> List[Epoch]:
        found: List[Epoch] = []
        with contextlib.suppress(queue.Empty):
            while (epoch := self._queue.get_nowait()) is not None:
                found.append(epoch)
        return found


def connect(path: Path) -> sqlite3.Connection:
    """A second connection of the writer's process, for epochs only."""
    connection = schema.connect(path, "rw")
    # What has been committed survives the death of this process; only the record at its end must survive the machine's.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def store_epochs(connection: sqlite3.Connection, run_id: int, epochs: List[Epoch]) -> None:
    """Add epochs to a run in one transaction."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        insert(connection, "epoch", run_id, epochs)
