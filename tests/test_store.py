"""The store, on real SQLite files."""

import dataclasses

import pytest
from stored_study import PADDLE, RUN, SECOND, TORCH, create

from framework_compare.errors import StudyError, UsageError
from framework_compare.records import STATUSES, Run, Sample
from framework_compare.store.folder import FILE
from framework_compare.store.schema import CHILDREN
from framework_compare.store.study_file import Store


def rows(store, table):
    names = [field.name for field in dataclasses.fields(CHILDREN[table])]
    return store.select(f"SELECT run_id, {', '.join(names)} FROM {table}")


def test_every_planned_run_is_there_before_the_first_starts_and_cells_are_interleaved(tmp_path):
    with create(tmp_path / "study", repeats=2) as store:
        assert [(cell, repeat) for _, cell, repeat in store.plan()] == [(c, n) for n in (1, 2) for c in (TORCH, PADDLE)]
        assert store.select("SELECT DISTINCT status FROM run") == [("planned",)]


def test_any_folder_name_will_do_and_a_plan_has_configs_to_the_last_digit(tmp_path):
    for name in ("a b", "50%", "what?", "hash#1", "déjà vu"):
        create(tmp_path / name / "deeper").close()
        with Store.open(tmp_path / name / "deeper") as store:
            assert [cell for _, cell, _ in store.plan()] == [TORCH, PADDLE]


def test_a_run_of_any_outcome_is_recorded_and_only_an_interrupted_one_is_done_again(tmp_path):
    with create(tmp_path) as store:
        for status in ("planned", "running", "exploded"):
            with pytest.raises(UsageError, match="allowed: ok, unsupported"):
                store.record(1, Run(status))
        for status in set(STATUSES) - {"planned", "running"}:
            store.begin(1)
            assert [run_id for run_id, _, _ in store.plan()] == [1, 2]
            store.record(1, Run(status, reason="why"))
            assert (1 in [run_id for run_id, _, _ in store.plan()]) == (status == "interrupted")
            assert store.select("SELECT status, reason FROM run WHERE run_id = 1") == [(status, "why")]


def test_every_field_of_a_run_is_stored(tmp_path):
    with create(tmp_path) as store:
        store.record(1, RUN)
    with Store.open(tmp_path) as store:
        names, found = store.table("SELECT * FROM run WHERE run_id = 1")
        run = dict(zip(names, found[0]))
        assert run["settings"] == '{"layout": "NHWC", "threads": [1, 2]}'
        assert run["warnings"] == '["first", "second"]'
        assert run["gauges"] == '{"gpu": "NVIDIA H200"}'
        plain = ("status", "started_at", "wall_s", "log_path", "parameters", "peak_rss_bytes", "interpreter")
        assert [run[name] for name in plain] == [getattr(RUN, name) for name in plain]
        assert rows(store, "phase") == [(1, *dataclasses.astuple(phase)) for phase in RUN.phases]
        assert rows(store, "epoch") == [(1, *dataclasses.astuple(epoch)) for epoch in RUN.epochs]
        assert rows(store, "sample") == [(1, *dataclasses.astuple(sample)) for sample in RUN.samples]
        assert rows(store, "energy") == [(1, *dataclasses.astuple(reading)) for reading in RUN.energy]


def test_an_interrupted_attempt_leaves_nothing_to_the_next_one(tmp_path):
    with create(tmp_path) as store:
        store.record(1, dataclasses.replace(RUN, status="interrupted"))
        store.begin(1)
        assert [rows(store, table) for table in CHILDREN] == [[]] * len(CHILDREN)
        store.record(1, RUN)
        store.record(1, RUN)
        assert len(rows(store, "sample")) == 2


def test_a_run_is_recorded_whole_or_not_at_all(tmp_path):
    twice = dataclasses.replace(RUN, epochs=RUN.epochs * 2)
    with create(tmp_path) as store:
        with pytest.raises(StudyError, match=FILE):
            store.record(1, twice)
        assert rows(store, "phase") == []
        assert store.select("SELECT status FROM run WHERE run_id = 1") == [("planned",)]
        store.record(1, RUN)


def test_an_hour_of_samples_at_10_hz_is_recorded(tmp_path):
    samples = tuple(Sample(n * SECOND // 10, 100.0, n, 11) for n in range(36_000))
    with create(tmp_path) as store:
        store.record(1, dataclasses.replace(RUN, samples=samples))
        assert store.select("SELECT count(*), max(rss_bytes) FROM sample") == [(36_000, 35_999)]


def test_what_is_no_text_or_number_is_stored_as_well_as_can_be(tmp_path):
    epoch = dataclasses.replace(RUN.epochs[0], loss=float("nan"))
    with create(tmp_path) as store, pytest.raises(StudyError, match="no run 99"):
        store.record(1, Run("failed", reason="half \ud800 of a pair, \x00 and \x1b[31m"))
        assert store.select("SELECT reason FROM run WHERE run_id = 1") == [("half ? of a pair, \x00 and \x1b[31m",)]
        store.record(1, dataclasses.replace(RUN, status="diverged", epochs=(epoch,)))
        assert store.select("SELECT loss FROM epoch") == [(None,)]
        store.begin(99)


def test_settings_machine_and_environments_come_back(tmp_path):
    settings = {"datasets": {"small": {"images": 791}}, "repeats": 2}
    with create(tmp_path, settings=settings, machine={"cpu": "a", "gpus": None}) as store:
        store.environment("torch", {"torch": "2.0"})
        store.environment("torch", {"torch": "2.1"})
    with Store.open(tmp_path) as store:
        assert store.settings() == settings
        assert store.machine() == {"cpu": "a", "gpus": None}
        assert store.environments() == {"torch": {"torch": "2.1"}}


def test_a_plan_that_makes_no_sense_writes_nothing(tmp_path):
    for cells, repeats in (((TORCH, TORCH), 1), ((TORCH,), 0)):
        with pytest.raises(UsageError):
            create(tmp_path / "study", cells, repeats)
        assert not (tmp_path / "study").exists()


def test_tables_declare_numbers_as_numbers_wherever_their_record_is_defined(tmp_path):
    with create(tmp_path / "study") as store:
        found = store._connection.execute("SELECT name, type FROM pragma_table_info('energy')").fetchall()
    numbers = {"run_id": "INTEGER", "t_ns": "INTEGER", "energy_j": "REAL"}
    assert dict(found) == {**numbers, "device": "TEXT", "source": "TEXT"}
