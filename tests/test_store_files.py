"""Studies on disk: what is refused, damaged, older or newer, read while written, left by a crash."""

import contextlib
import dataclasses
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from stored_study import PADDLE, RUN, TORCH, create

from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError
from framework_compare.records import Run, Sample
from framework_compare.samplers.samplers import COLUMNS, Column
from framework_compare.store import schema
from framework_compare.store.folder import FILE, LOCK
from framework_compare.store.schema import CHILDREN
from framework_compare.store.study_file import Store


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StudyError, match="thesis.tex"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StudyError, match="thesis.tex"):  # a file in the place of the folder
        create(tmp_path / "thesis.tex")
    create(tmp_path / "study").close()
    with pytest.raises(StudyError, match="already holds a study"):
        create(tmp_path / "study")


def test_what_a_creation_cut_short_leaves_does_not_stand_in_the_way(tmp_path):
    (tmp_path / LOCK).touch()
    (tmp_path / f"{FILE}.new").write_bytes(b"half a stud")
    (tmp_path / f"{FILE}.new-journal").write_bytes(b"a half")
    with create(tmp_path) as store:
        assert len(store.plan()) == 2
    assert {path.name for path in tmp_path.iterdir()} - {LOCK} == {FILE}


def test_a_submission_is_no_study_and_the_message_names_the_function_that_makes_one():
    for submission in (Path(__file__).parent.parent / "archive" / "submissions").iterdir():
        with pytest.raises(StudyError, match=r"published submission; .* load_submission\(SUBMISSION, FOLDER\)"):
            Store.open(submission)


@pytest.mark.parametrize("readonly", [True, False], ids=["reading", "writing"])
def test_what_is_no_study_is_told_and_kept(tmp_path, readonly):
    with pytest.raises(StudyError, match="contains no study"):
        Store.open(tmp_path / "absent", readonly=readonly)
    assert list(tmp_path.iterdir()) == []
    for content in (b"no database at all, though long enough" * 100, b""):
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(StudyError, match=f"{FILE} is .* not changed"):
            Store.open(tmp_path, readonly=readonly)
        assert (tmp_path / FILE).read_bytes() == content
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("CREATE TABLE meta (anything)")
    connection.close()
    with pytest.raises(StudyError, match="not a study of framework_compare"):
        Store.open(tmp_path, readonly=readonly)


def before_the_first_release(connection):
    connection.executescript("PRAGMA user_version = 0; INSERT INTO meta VALUES ('schema_version', '11');")


def newer(connection):
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")


OTHER_SCHEMAS = {
    before_the_first_release: "has a schema from before the first release; allowed: schema version 1; export it with the"
    " version that wrote it, or run the study again in another folder",
    newer: "has schema version 2; allowed: schema version 1; upgrade framework_compare, or run the study again",
}


@pytest.mark.parametrize("readonly", [True, False], ids=["reading", "writing"])
@pytest.mark.parametrize("change", OTHER_SCHEMAS)
def test_another_schema_is_refused_in_a_sentence_and_left_alone(tmp_path, change, readonly):
    create(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        change(connection)
        connection.commit()
    content = (tmp_path / FILE).read_bytes()
    with pytest.raises(StudyError, match=OTHER_SCHEMAS[change]):
        Store.open(tmp_path, readonly=readonly)
    assert (tmp_path / FILE).read_bytes() == content


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
        assert "left by a killed writer" in str(error) and "copy the folder to a writable disk" in str(error)
    shutil.copytree(tmp_path / "copy", tmp_path / "elsewhere")
    assert list(Comparison.load(tmp_path / "elsewhere").frame.status) == ["ok", "running"]


def test_a_killed_study_without_its_journal_is_shown_as_it_was_before(tmp_path, read_only):
    kill_a_writer(tmp_path / "killed")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "killed" / FILE, tmp_path / "copy")
    assert list(Comparison.load(read_only(tmp_path / "copy")).frame.status) == ["planned", "planned"]


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path):
    code = "import sys; from framework_compare.store.study_file import Store; Store.open(sys.argv[1], readonly=False)"
    with create(tmp_path), pytest.raises(StudyError, match="another process is writing"):
        result = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, cwd=tmp_path)
        assert result.returncode == 1 and "another process is writing the study" in result.stderr
        Store.open(tmp_path, readonly=False)
    Store.open(tmp_path, readonly=False).close()


def test_a_reader_sees_what_is_recorded_while_it_is_open_and_cannot_write(tmp_path):
    with create(tmp_path) as writer, Store.open(tmp_path) as reader:
        assert len(reader.plan()) == 2
        writer.record(1, RUN)
        assert len(reader.plan()) == 1
    with Store.open(tmp_path) as reader, pytest.raises(StudyError, match="readonly"):
        assert len(reader.plan()) == 1
        reader.begin(1)


def test_a_study_whose_writer_died_can_be_read_and_resumed(tmp_path):
    kill_a_writer(tmp_path)
    for readonly in (True, False):
        with Store.open(tmp_path, readonly=readonly) as store:
            assert [(run_id, cell) for run_id, cell, _ in store.plan()] == [(2, PADDLE)]


def test_a_closed_study_is_one_file_that_can_be_read_where_nothing_can_be_written(tmp_path, read_only):
    for place, cells in ((tmp_path / "empty", ()), (tmp_path / "study", (TORCH, PADDLE))):
        store = create(place, cells=cells)
        store.close()
        store.close()
        assert {path.name for path in place.iterdir()} - {LOCK} == {FILE}
        with Store.open(place) as store:
            assert len(store.plan()) == len(cells)
    with Store.open(read_only(place)) as store:
        assert len(store.plan()) == 2


def test_a_column_of_a_later_sampler_is_missing_from_older_samples_and_stored_from_now_on(tmp_path, monkeypatch):
    """What a line in SAMPLERS changes of a study begun before it."""
    create(tmp_path).close()
    with Store.open(tmp_path, readonly=False) as store:
        store.record(1, Run("ok", samples=(Sample(1, cpu_percent=5.0),)))
    later = {**COLUMNS, "fans_rpm": Column(), "leds": Column(whole=True)}
    monkeypatch.setattr(schema, "COLUMNS", later)
    fields = [("t_ns", int), *((name, float | None, None) for name in later)]
    newer = dataclasses.make_dataclass("Newer", fields, frozen=True)
    monkeypatch.setitem(CHILDREN, "sample", newer)
    content = (tmp_path / FILE).read_bytes()
    samples = Comparison.load(tmp_path).samples
    assert samples.cpu_percent.tolist() == [5.0] and samples.fans_rpm.isna().all()
    assert (tmp_path / FILE).read_bytes() == content, "a reader changed the study"
    with Store.open(tmp_path, readonly=False) as store:
        store.record(2, Run("ok", samples=(newer(2, fans_rpm=900.5, leds=3),)))
        found = store.select("SELECT cpu_percent, fans_rpm, leds FROM sample ORDER BY t_ns")
    assert found == [(5.0, None, None), (None, 900.5, 3)]
    assert Comparison.load(tmp_path).samples.fans_rpm.tolist()[1:] == [900.5]
