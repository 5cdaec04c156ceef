"""Studies on disk: what is refused, damaged, older or newer, read while written, left by a crash."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Energy, Epoch, Phase, Run, Sample
from framework_compare.report.exports import export
from framework_compare.results import runs
from framework_compare.results.runs import store_figures
from framework_compare.samplers.sampler import Column
from framework_compare.samplers.samplers import COLUMNS
from framework_compare.store import open_readonly, schema
from framework_compare.store.folder import FILE, LOCK
from framework_compare.store.rows import CHILDREN
from framework_compare.store.study_file import Store

TORCH = Cell("torch", "alexnet", "small", "cpu", TrainConfig(learning_rate=0.1 + 0.2))
PADDLE = Cell("paddle", "alexnet", "small", "cpu", TrainConfig())
SECOND = 1_000_000_000
RUN = Run(
    "ok",
    started_at="2024-01-01T00:00:00+00:00",
    wall_s=3.5,
    exit_code=0,
    log_path="logs/1.log",
    framework_version="2.1",
    interpreter="python",
    settings={"layout": "NHWC", "threads": [1, 2]},
    parameters=57_016_131,
    peak_rss_bytes=2**40,
    warnings=("first", "second"),
    phases=(Phase("build", 0, SECOND), Phase("epochs", SECOND, 3 * SECOND, 5)),
    epochs=(Epoch(1, SECOND, 3 * SECOND, 0.5, 791, 50, 1.1, 0.04, 0.03, 0.05, 0.1, 1.5),),
    samples=(Sample(SECOND), Sample(2 * SECOND, 99.5, 1, 2, 3, 50.0, 20.0, 1.0, 4, 120.5, 3, 61.0, 1980.0, 36)),
    energy=(Energy("gpu", SECOND, 10.5, "counter"), Energy("host-package-0", SECOND, 7.25, "counter")),
    gauges={"gpu": "NVIDIA H200"},
)


def create(folder, cells=(TORCH, PADDLE), repeats=1, **fields):
    given = {"settings": {}, "machine": {}, **fields}
    return Store.create(folder, cells=cells, repeats=repeats, **given)


def rows(store, table):
    return store.select(f"SELECT * FROM {table}")[1]


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StudyError, match="thesis.tex"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "study").write_text("precious")
    with pytest.raises(StudyError, match="study"):
        create(tmp_path / "study")


def test_a_study_is_not_planned_over(tmp_path):
    create(tmp_path).close()
    with pytest.raises(StudyError, match="already holds a study"):
        create(tmp_path)


def test_what_a_creation_cut_short_leaves_does_not_stand_in_the_way(tmp_path):
    (tmp_path / LOCK).touch()
    (tmp_path / f"{FILE}.new").write_bytes(b"half a stud")
    (tmp_path / f"{FILE}.new-journal").write_bytes(b"a half")
    with create(tmp_path) as store:
        assert len(store.plan()) == 2
    assert {path.name for path in tmp_path.iterdir()} - {LOCK} == {FILE}


@pytest.mark.parametrize("readonly", [True, False], ids=["reading", "writing"])
def test_a_folder_without_a_study_cannot_be_opened(tmp_path, readonly):
    with pytest.raises(StudyError, match="holds no study"):
        Store.open(tmp_path / "absent", readonly=readonly)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("readonly", [True, False], ids=["reading", "writing"])
@pytest.mark.parametrize("content", [b"", b"no database at all, though long enough" * 100], ids=["empty", "text"])
def test_a_file_that_is_no_study_is_told_and_kept(tmp_path, content, readonly):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StudyError, match=f"{FILE} is .* not changed"):
        Store.open(tmp_path, readonly=readonly)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_damaged_study_is_told_and_kept(tmp_path):
    with create(tmp_path) as store:
        store.record(1, dataclasses.replace(RUN, samples=RUN.samples * 5000))
    content = (tmp_path / FILE).read_bytes()
    damaged = content[:40960] + b"\xff" * 40960 + content[81920:]
    (tmp_path / FILE).write_bytes(damaged)
    with pytest.raises(StudyError, match="damaged"):
        Store.open(tmp_path, readonly=False)
    assert (tmp_path / FILE).read_bytes() == damaged


def test_a_database_of_somebody_else_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("CREATE TABLE meta (anything)")
    connection.close()
    with pytest.raises(StudyError, match="no study of framework_compare"):
        Store.open(tmp_path, readonly=False)


@pytest.mark.parametrize("readonly", [True, False], ids=["reading", "writing"])
def test_a_newer_schema_is_refused(tmp_path, monkeypatch, readonly):
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, "ALTER TABLE run ADD COLUMN later TEXT;"])
    create(tmp_path).close()
    monkeypatch.undo()
    known = len(schema.MIGRATIONS)
    with pytest.raises(StudyError, match=f"schema version {known + 1}, .* up to {known}; upgrade"):
        Store.open(tmp_path, readonly=readonly)


def test_an_older_schema_is_brought_up_to_date_by_a_writer_and_loses_nothing(tmp_path, monkeypatch):
    with create(tmp_path) as store:
        store.record(1, RUN)
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, "ALTER TABLE run ADD COLUMN later TEXT;"])
    Store.open(tmp_path, readonly=False).close()
    with Store.open(tmp_path) as store:
        assert store.select("SELECT status, later FROM run")[1] == [("ok", None), ("planned", None)]


@pytest.fixture
def read_only():
    """Makes a folder one that nothing can be written to, not even by root."""
    mounted = []

    def make(folder):
        if os.geteuid():
            folder.chmod(0o555)
        elif subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], capture_output=True).returncode:
            pytest.skip("needs a user other than root, or a system that lets root mount a folder")
        else:
            mounted.append(folder)
        with pytest.raises(OSError):
            (folder / "x").touch()
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("version", range(1, len(schema.MIGRATIONS)))
def test_a_study_of_any_older_schema_is_shown_from_where_nothing_can_be_written(
    tmp_path, monkeypatch, read_only, version
):
    folder = tmp_path / "study"
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:version])
    monkeypatch.setattr(schema, "COLUMNS", {})  # of samplers, which came later
    create(folder).close()
    monkeypatch.undo()
    content = (folder / FILE).read_bytes()
    read_only(folder)
    assert list(Comparison.load(folder).frame.status) == ["planned"] * 2
    assert len(export(folder, tmp_path / "out", "csv").files) > 3
    assert (folder / FILE).read_bytes() == content and {path.name for path in folder.iterdir()} == {FILE, LOCK}


def test_a_reader_of_an_older_schema_takes_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
    monkeypatch.setattr(schema, "COLUMNS", {})  # of samplers, which came later
    create(tmp_path).close()
    with Store.open(tmp_path, readonly=False):
        monkeypatch.undo()
        assert len(Comparison.load(tmp_path).frame) == 2


def kill_a_writer(folder):
    """A study of two runs, the first of them ok, that a writer left behind when it was killed."""
    code = """if True:
        import os, sys
        from framework_compare.records import Run
        from framework_compare.store.study_file import Store
        store = Store.open(sys.argv[1], readonly=False)
        store.record(1, Run("ok"))
        store.begin(2)
        os._exit(9)
    """
    create(folder).close()
    subprocess.run([sys.executable, "-c", code, folder], cwd=folder)


@pytest.mark.parametrize("left", ["-wal -shm", "-wal"], ids=["both", "journal"])
def test_a_killed_study_where_nothing_can_be_written_says_what_to_do(tmp_path, read_only, left):
    kill_a_writer(tmp_path / "killed")
    (tmp_path / "copy").mkdir()
    for ending in ["", *left.split()]:
        shutil.copy(tmp_path / "killed" / f"{FILE}{ending}", tmp_path / "copy")
    try:
        assert list(Comparison.load(read_only(tmp_path / "copy")).frame.status) == ["ok", "running"]
    except StudyError as error:
        assert "left by a killed writer" in str(error) and "copy the folder to a place that can" in str(error)
    shutil.copytree(tmp_path / "copy", tmp_path / "elsewhere")
    assert list(Comparison.load(tmp_path / "elsewhere").frame.status) == ["ok", "running"]


def test_a_killed_study_without_its_journal_is_shown_as_it_was_before(tmp_path, read_only):
    kill_a_writer(tmp_path / "killed")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "killed" / FILE, tmp_path / "copy")
    assert list(Comparison.load(read_only(tmp_path / "copy")).frame.status) == ["planned", "planned"]


def recorded(folder):
    """A study of which pages can be damaged: many samples, and the figures kept of them."""
    with create(folder) as store:
        run = dataclasses.replace(RUN, samples=RUN.samples * 2000)
        store.record(1, run)
        store_figures(store, 1, run)
    return bytearray((folder / FILE).read_bytes())


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", ["page", "cut", "odd"])
def test_a_damaged_study_is_not_shown_and_its_recovery_is_named(tmp_path, monkeypatch, how, large):
    content = recorded(tmp_path)
    place = content.rindex(b"epoch_s_median") // 4096 * 4096
    cut = {"page": content[:place] + os.urandom(4096) + content[place + 4096 :], "cut": content[:-8192]}
    (tmp_path / FILE).write_bytes(cut.get(how, content[:-1000]))
    monkeypatch.setattr(open_readonly, "CHECKED_WHOLE_BYTES", 0 if large else 1 << 30)
    with pytest.raises(StudyError, match="damaged.*not changed; `sqlite3 .* \\.recover` prints"):
        Comparison.load(tmp_path)


def test_a_study_cut_within_its_last_page_is_not_written_to(tmp_path):
    content = recorded(tmp_path)[:-1000]
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StudyError, match=f"cut short to {len(content)} bytes"):
        Store.open(tmp_path, readonly=False)
    assert (tmp_path / FILE).read_bytes() == content


def test_damage_among_the_samples_of_a_small_study_is_told(tmp_path):
    content = recorded(tmp_path)
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StudyError, match="damaged"):
        Comparison.load(tmp_path)


def change(folder, *queries):
    """What damage, or another program, may have made of a study that SQLite finds whole."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection:
        for query in queries:
            connection.execute(query)
        connection.commit()


# query -> what is said of it; the other run, of another cell, is shown
UNSOUND_RUNS = {
    "UPDATE run SET status = 'bogus' WHERE run_id = 1": "1 row is left out .its status is 'bogus'",
    "UPDATE run SET gauges = '3' WHERE run_id = 1": "its gauges is 3",
    "UPDATE run SET gauges = '{' WHERE run_id = 1": "its gauges is no JSON",
    "UPDATE run SET warnings = '[1]' WHERE run_id = 1": "its warnings are not text",
    "UPDATE run SET wall_s = 'x' WHERE run_id = 1": "its wall_s is 'x'",
    "UPDATE run SET wall_s = 9e999 WHERE run_id = 1": "its wall_s is inf",
    "UPDATE run SET reason = x'ff' WHERE run_id = 1": "its reason is b'.xff'",
    "UPDATE cell SET config = '{' WHERE cell_id = 1": "its config is no JSON",
    "UPDATE cell SET config = '[]' WHERE cell_id = 1": "its config is \\[\\]",
    """UPDATE cell SET config = '{"batch_size": "x"}' WHERE cell_id = 1""": "its batch_size is 'x'",
    """UPDATE cell SET config = '{"batch_sise": 4}' WHERE cell_id = 1""": "its config has no batch_size but 'batch_sise'",
}


@pytest.mark.parametrize(("query", "said"), UNSOUND_RUNS.items())
def test_a_run_that_is_not_as_it_was_stored_is_left_out_and_told_and_exported(tmp_path, query, said):
    recorded(tmp_path / "study")
    change(tmp_path / "study", query)
    study = Comparison.load(tmp_path / "study")
    assert list(study.frame.framework) == ["paddle"] and "PaddlePaddle" in str(study.table())
    (sentence,) = study.damage
    assert re.search(f"is damaged: of table run .*{said}.*; `framework-compare export ", sentence), sentence
    done = export(tmp_path / "study", tmp_path / "out", "csv")
    assert done.damage == (sentence,) and "runs.csv" in [path.name for path in done.files]
    with Store.open(tmp_path / "study", readonly=False) as store, contextlib.suppress(StudyError):
        store.plan(["ok"])


@pytest.mark.parametrize(
    ("query", "table", "left"),
    [
        ("UPDATE epoch SET loss = 'x'", "epochs", 0),
        ("UPDATE epoch SET end_ns = start_ns", "epochs", 0),
        ("UPDATE epoch SET step_s_median = 9e999", "epochs", 0),
        ("UPDATE phase SET name = x'ff' WHERE name = 'build'", "phases", 1),
        ("UPDATE phase SET end_ns = -1 WHERE name = 'build'", "phases", 1),
        ("UPDATE sample SET rss_bytes = 'x' WHERE rowid = 1", "samples", 3999),
        ("UPDATE energy SET energy_j = 'x' WHERE rowid = 1", "energy", 1),
        ("UPDATE profile SET self_s = 'x'", "profile", 0),
        ("UPDATE profile SET kind = 'bogus'", "profile", 0),
    ],
)
def test_a_row_of_a_run_that_is_not_as_it_was_stored_is_left_out_and_told(tmp_path, query, table, left):
    recorded(tmp_path)
    change(tmp_path, "INSERT INTO profile VALUES (1, 'kernel', 'gemm', 3, 0.5)", query, "DELETE FROM figures")
    study = Comparison.load(tmp_path)
    assert len(study.frame) == 2 and str(study.table("profile")) and len(getattr(study, table)) == left
    assert any("of table " + table.rstrip("s") in sentence for sentence in study.damage)


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE figures",
        "UPDATE figures SET document = ''",
        "UPDATE figures SET document = '[1]'",
        """UPDATE figures SET document = '{"epoch_s": 1}'""",
        "ALTER TABLE figures RENAME COLUMN document TO x",
    ],
)
def test_figures_that_are_lost_are_computed_again(tmp_path, query):
    recorded(tmp_path)
    change(tmp_path, query)
    study = Comparison.load(tmp_path)
    assert study.frame.epoch_s[0] == 2.0 and not study.damage
    assert not export(tmp_path, tmp_path / "out", "csv").damage


def test_a_writer_of_a_study_without_figures_makes_room_for_them(tmp_path):
    recorded(tmp_path)
    change(tmp_path, "DROP TABLE figures")
    with Store.open(tmp_path, readonly=False) as store:
        store.record(2, RUN)
        store_figures(store, 2, RUN)
        assert len(rows(store, "figures")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE epoch",
        "ALTER TABLE epoch RENAME TO epocg",
        "ALTER TABLE run RENAME COLUMN died_in TO died_io",
        "UPDATE meta SET value = '[]' WHERE key = 'settings'",
        """UPDATE meta SET value = '{"datasets": [1]}' WHERE key = 'settings'""",
        "UPDATE meta SET value = 'x' WHERE key = 'schema_version'",
        "UPDATE environment SET document = '3'",
    ],
)
def test_a_study_that_cannot_be_shown_says_so_and_is_left_alone(tmp_path, query):
    recorded(tmp_path / "study")
    with Store.open(tmp_path / "study", readonly=False) as store:
        store.environment("torch", {})
    change(tmp_path / "study", query)
    content = (tmp_path / "study" / FILE).read_bytes()
    try:
        assert export(tmp_path / "study", tmp_path / "out", "csv").damage
    except StudyError as error:
        assert re.search("damaged|schema", str(error))
    study = Comparison(tmp_path / "study")
    for part in ("frame", "epochs", "settings", "environments"):
        with contextlib.suppress(StudyError):  # and nothing else
            getattr(study, part)
    assert (tmp_path / "study" / FILE).read_bytes() == content


def test_a_schema_that_is_no_text_any_more_is_told(tmp_path):
    content = recorded(tmp_path / "study")
    place = content.index(b"CREATE TABLE energy") + 8
    content[place] ^= 0x80
    (tmp_path / "study" / FILE).write_bytes(content)
    with pytest.raises(StudyError, match="is damaged"):
        Comparison.load(tmp_path / "study")


def test_a_study_of_the_third_schema_is_read_and_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
    monkeypatch.setattr(schema, "COLUMNS", {})  # of samplers, which came later
    create(tmp_path).close()
    monkeypatch.undo()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE run SET status = 'ok', peak_rss_bytes = 7 WHERE run_id = 1")
        connection.execute("INSERT INTO epoch VALUES (1, 1, 0, 2000000000, 0.5, 791, 50, 1.1, 0.04, 0.03, 0.05)")
        connection.execute("INSERT INTO sample (run_id, t_ns, gpu_percent) VALUES (1, 1000000000, 50.0)")
    connection.close()
    study = Comparison.load(tmp_path)
    row = study.frame.iloc[0]
    assert (row["epoch_s"], row["gpu_percent_mean"], row["peak_rss_bytes"]) == (2.0, 50.0, 7.0)
    assert study.epochs["copy_s"].isna().all() and len(study.energy) == 0
    with Store.open(tmp_path, readonly=False) as store:
        assert [run_id for run_id, _, _ in store.plan()] == [2]
        store.record(2, RUN)
        assert len(rows(store, "energy")) == 2


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    create(tmp_path).close()
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, "ALTER TABLE run ADD COLUMN later TEXT; nonsense;"])
    with pytest.raises(StudyError, match="nonsense"):
        Store.open(tmp_path, readonly=False)
    monkeypatch.undo()
    with Store.open(tmp_path, readonly=False) as store:
        assert "later" not in store.select("SELECT * FROM run")[0]


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path):
    with create(tmp_path), pytest.raises(StudyError, match="another process is writing"):
        Store.open(tmp_path, readonly=False)
    Store.open(tmp_path, readonly=False).close()


def test_a_writer_of_another_process_is_refused(tmp_path):
    code = "import sys; from framework_compare.store.study_file import Store; Store.open(sys.argv[1], readonly=False)"
    with create(tmp_path):
        result = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 1
    assert "another process is writing the study" in result.stderr


def test_a_reader_sees_what_is_recorded_while_it_is_open(tmp_path):
    with create(tmp_path) as writer, Store.open(tmp_path) as reader:
        assert len(reader.plan()) == 2
        writer.record(1, RUN)
        assert len(reader.plan()) == 1
    with Store.open(tmp_path) as reader:
        assert len(reader.plan()) == 1


def test_a_reader_cannot_write(tmp_path):
    create(tmp_path).close()
    with Store.open(tmp_path) as store, pytest.raises(StudyError, match="readonly"):
        store.begin(1)


def test_a_study_whose_writer_died_can_be_read_and_resumed(tmp_path):
    kill_a_writer(tmp_path)
    for readonly in (True, False):
        with Store.open(tmp_path, readonly=readonly) as store:
            assert [(run_id, cell) for run_id, cell, _ in store.plan()] == [(2, PADDLE)]


def test_a_closed_study_is_one_file_and_closing_twice_does_no_harm(tmp_path):
    store = create(tmp_path)
    store.close()
    store.close()
    assert {path.name for path in tmp_path.iterdir()} - {LOCK} == {FILE}


def test_a_finished_study_can_be_read_where_nothing_can_be_written(tmp_path, read_only):
    create(tmp_path).close()
    with Store.open(read_only(tmp_path)) as store:
        assert len(store.plan()) == 2


def test_a_study_without_cells_can_be_made_and_opened(tmp_path):
    create(tmp_path, cells=()).close()
    with Store.open(tmp_path) as store:
        assert store.plan() == []


def test_a_column_of_a_later_sampler_is_missing_from_older_samples_and_stored_from_now_on(tmp_path, monkeypatch):
    """What a line in SAMPLERS changes of a study begun before it."""
    create(tmp_path).close()
    with Store.open(tmp_path, readonly=False) as store:
        store.record(1, Run("ok", samples=(Sample(1, cpu_percent=5.0),)))
    later = {**COLUMNS, "fans_rpm": Column(), "leds": Column(whole=True)}
    monkeypatch.setattr(schema, "COLUMNS", later)
    fields = [("t_ns", "int"), *((name, "Optional[float]", None) for name in later)]
    newer = dataclasses.make_dataclass("Newer", fields, frozen=True)
    for kinds in (CHILDREN, runs._KINDS):
        monkeypatch.setitem(kinds, "sample", newer)
    content = (tmp_path / FILE).read_bytes()
    samples = Comparison.load(tmp_path).samples
    assert samples.cpu_percent.tolist() == [5.0] and samples.fans_rpm.isna().all()
    assert (tmp_path / FILE).read_bytes() == content, "a reader changed the study"
    with Store.open(tmp_path, readonly=False) as store:
        store.record(2, Run("ok", samples=(newer(2, fans_rpm=900.5, leds=3),)))
        assert store.select("SELECT cpu_percent, fans_rpm, leds FROM sample ORDER BY t_ns")[1] == [
            (5.0, None, None),
            (None, 900.5, 3),
        ]
    assert Comparison.load(tmp_path).samples.fans_rpm.tolist()[1:] == [900.5]
