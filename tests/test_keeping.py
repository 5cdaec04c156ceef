"""Epochs of a run that is still going, on a real study."""

from __future__ import annotations

import threading
import time

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run
from framework_compare.store import epoch_keeper
from framework_compare.store.epoch_keeper import EpochKeeper
from framework_compare.store.study_file import Store

CELLS = [Cell("torch", "alexnet", "small", "cpu", TrainConfig())]


def epoch(number):
    return Epoch(number, number, number + 1, 0.5, 791, 50, 1.1, 0.04, 0.03, 0.05)


def stored(folder):
    with Store.open(folder) as store:
        return [number for (number,) in store.select("SELECT number FROM epoch ORDER BY number")[1]]


def wait_for(folder, expected):
    give_up = time.monotonic() + 30
    while stored(folder) != expected and time.monotonic() < give_up:
        time.sleep(0.01)
    assert stored(folder) == expected


def test_epochs_are_stored_while_a_run_goes_on_and_replaced_by_its_record(tmp_path, monkeypatch):
    monkeypatch.setattr(epoch_keeper, "INTERVAL_S", 0.01)
    with Store.create(tmp_path, settings={}, machine={}, cells=CELLS, repeats=1) as store:
        store.begin(1)
        with EpochKeeper(store.path, 1) as keeper:
            for number in (1, 2, 3):
                keeper.take(epoch(number))
            wait_for(tmp_path, [1, 2, 3])
            assert store.status(1) == "running"
        store.record(1, Run("ok", epochs=tuple(map(epoch, (1, 2, 3, 4)))))
    assert stored(tmp_path) == [1, 2, 3, 4]


def test_the_end_of_a_run_does_not_wait_for_its_epochs(tmp_path, monkeypatch):
    monkeypatch.setattr(epoch_keeper, "INTERVAL_S", 600)
    with Store.create(tmp_path, settings={}, machine={}, cells=CELLS, repeats=1) as store:
        with EpochKeeper(store.path, 1) as keeper:
            keeper.take(epoch(1))
            wait_for(tmp_path, [1])
            keeper.take(epoch(2))
        assert stored(tmp_path) == [1]


def test_an_end_that_comes_while_epochs_are_gathered_is_not_lost(tmp_path, monkeypatch):
    opening, go_on = threading.Event(), threading.Event()

    def slowly(path):
        opening.set()
        go_on.wait()
        return connect(path)

    connect = epoch_keeper.connect
    monkeypatch.setattr(epoch_keeper, "connect", slowly)
    with Store.create(tmp_path, settings={}, machine={}, cells=CELLS, repeats=1) as store:
        keeper = EpochKeeper(store.path, 1).__enter__()
        keeper.take(epoch(1))
        opening.wait()
        ending = threading.Thread(target=keeper.__exit__, daemon=True)
        ending.start()
        while keeper._queue.empty():
            time.sleep(0.001)
        go_on.set()
        ending.join(10)
        assert not ending.is_alive()


def test_what_cannot_be_stored_is_left_for_the_record_to_tell(tmp_path):
    with EpochKeeper(tmp_path / "absent.sqlite", 1) as keeper:
        keeper.take(epoch(1))
        keeper.take(epoch(2))


def test_an_interrupted_run_keeps_what_was_stored_of_it(tmp_path):
    with Store.create(tmp_path, settings={}, machine={}, cells=CELLS, repeats=1) as store:
        store.begin(1)
        with EpochKeeper(store.path, 1) as keeper:
            keeper.take(epoch(1))
            wait_for(tmp_path, [1])
        store.interrupt(1, Run("interrupted", "stopped by the user", log_path="log.txt"))
        assert store.select("SELECT status, reason, log_path FROM run")[1] == [
            ("interrupted", "stopped by the user", "log.txt")
        ]
    assert stored(tmp_path) == [1]
