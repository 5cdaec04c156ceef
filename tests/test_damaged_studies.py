"""Studies of which a part is damaged: what is shown, what is left out and told, and that nothing is written."""

import contextlib
import dataclasses
import os
import re
import sqlite3

import pytest
from stored_study import RUN, create

from framework_compare.comparison import Comparison
from framework_compare.errors import StudyError
from framework_compare.report.exports import export
from framework_compare.results.runs import store_figures
from framework_compare.store import schema
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import Store


def recorded(folder):
    """A study of which pages can be damaged: many samples, and the figures kept of them."""
    with create(folder) as store:
        run = dataclasses.replace(RUN, samples=RUN.samples * 2000)
        store.record(1, run)
        store_figures(store, 1)
    return bytearray((folder / FILE).read_bytes())


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", ["page", "cut", "odd"])
def test_a_damaged_study_is_not_shown_and_its_recovery_is_named(tmp_path, monkeypatch, how, large):
    content = recorded(tmp_path)
    place = content.rindex(b"epoch_s_median") // 4096 * 4096
    cut = {"page": content[:place] + os.urandom(4096) + content[place + 4096 :], "cut": content[:-8192]}
    (tmp_path / FILE).write_bytes(cut.get(how, content[:-1000]))
    monkeypatch.setattr(schema, "CHECKED_WHOLE_BYTES", 0 if large else 1 << 30)
    with pytest.raises(StudyError, match="damaged.*not changed; `sqlite3 .* \\.recover` prints"):
        Comparison.load(tmp_path)


def test_a_study_cut_or_damaged_anywhere_is_told_and_not_written_to(tmp_path):
    content = recorded(tmp_path)[:-1000]
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StudyError, match=f"truncated to {len(content)} bytes"):
        Store.open(tmp_path, readonly=False)
    assert (tmp_path / FILE).read_bytes() == content
    content = recorded(tmp_path / "samples")
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    (tmp_path / "samples" / FILE).write_bytes(content)
    with pytest.raises(StudyError, match="damaged"):
        Comparison.load(tmp_path / "samples")
    content = recorded(tmp_path / "schema")
    place = content.index(b"CREATE TABLE energy") + 8
    content[place] ^= 0x80
    (tmp_path / "schema" / FILE).write_bytes(content)
    with pytest.raises(StudyError, match="is damaged"):
        Comparison.load(tmp_path / "schema")


def change(folder, *queries):
    """What damage, or another program, may have made of a study that SQLite finds whole."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection:
        for query in queries:
            connection.execute(query)
        connection.commit()


# query -> what is said of it; the other run, of another cell, is shown
UNSOUND_RUNS = {
    "UPDATE run SET status = 'bogus' WHERE run_id = 1": "left out .its status is 'bogus'",
    "UPDATE run SET gauges = '3' WHERE run_id = 1": "its gauges is 3",
    "UPDATE run SET gauges = '{' WHERE run_id = 1": "its gauges is not JSON",
    "UPDATE run SET warnings = '[1]' WHERE run_id = 1": "its warnings are not text",
    "UPDATE run SET wall_s = 'x' WHERE run_id = 1": "its wall_s is 'x'",
    "UPDATE run SET wall_s = 9e999 WHERE run_id = 1": "its wall_s is inf",
    "UPDATE run SET reason = x'ff' WHERE run_id = 1": "its reason is b'.xff'",
    "UPDATE cell SET config = '{' WHERE cell_id = 1": "its config is not JSON",
    "UPDATE cell SET config = '[]' WHERE cell_id = 1": "its config is \\[\\]",
    """UPDATE cell SET config = '{"batch_size": "x"}' WHERE cell_id = 1""": "its batch_size is 'x'",
    """UPDATE cell SET config = '{"batch_sise": 4}' WHERE cell_id = 1""": "its config has 'batch_sise' in place of batch_size",
    "UPDATE cell SET config = json_set(config, '$.later', 3) WHERE cell_id = 1": "its config has 'later', which this version",
}


@pytest.mark.parametrize(("query", "said"), UNSOUND_RUNS.items())
def test_a_run_that_is_not_as_it_was_stored_is_left_out_and_told_and_exported(tmp_path, query, said):
    recorded(tmp_path / "study")
    change(tmp_path / "study", query)
    study = Comparison.load(tmp_path / "study")
    assert list(study.frame.framework) == ["paddle"] and "PaddlePaddle" in str(study.table())
    (sentence,) = study.damage
    assert re.search(f"is damaged: \\d+ rows? of table run .*{said}.*; `framework-compare export ", sentence), sentence
    done = export(tmp_path / "study", tmp_path / "out", "csv")
    assert done.damage == (sentence,) and "runs.csv" in [path.name for path in done.files]
    with Store.open(tmp_path / "study", readonly=False) as store, contextlib.suppress(StudyError):
        store.plan(["ok"])


@pytest.mark.parametrize(
    ("query", "table", "left"),
    [
        ("UPDATE epoch SET loss = 'x'", "epochs", 0),
        ("UPDATE epoch SET end_ns = start_ns", "epochs", 0),
        ("UPDATE epoch SET start_ns = -9223372036854775807, end_ns = 9223372036854775807", "epochs", 0),
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
    assert len(study.frame) == 2 and study.table("profile") and len(getattr(study, table)) == left
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
        store_figures(store, 2)
        assert len(store.select("SELECT * FROM figures")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE epoch",
        "ALTER TABLE epoch RENAME TO epocg",
        "ALTER TABLE run RENAME COLUMN died_in TO died_io",
        "UPDATE meta SET value = '[]' WHERE key = 'settings'",
        """UPDATE meta SET value = '{"datasets": [1]}' WHERE key = 'settings'""",
        "PRAGMA user_version = 99",
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


@pytest.mark.parametrize("packages", [None, 3, ["odd 2"]])
def test_a_report_leaves_out_packages_that_are_no_table(tmp_path, packages):
    recorded(tmp_path / "study")
    with Store.open(tmp_path / "study", readonly=False) as store:
        store.environment("torch", {"packages": packages})
        store.environment("jax", {"packages": {"sound": "1"}})
    page = Comparison(tmp_path / "study").report(tmp_path / "report.html").read_text()
    assert "sound 1" in page and "odd 2" not in page


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS run_id FROM c"


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (f"DROP TABLE phase; CREATE VIEW phase AS {ENDLESS}", "view 'phase'"),
        ("CREATE TRIGGER t AFTER UPDATE ON run BEGIN DELETE FROM epoch; END", "trigger 't'"),
        ("CREATE VIRTUAL TABLE words USING fts4(text)", "table 'words'"),
        ("ALTER TABLE epoch ADD COLUMN extra BLOB AS (zeroblob(999999999))", "generated column 'extra'"),
    ],
)
def test_code_in_a_strangers_study_is_not_run(tmp_path, query, what):
    recorded(tmp_path / "study")
    with contextlib.closing(sqlite3.connect(tmp_path / "study" / FILE)) as connection:
        connection.executescript(query)
    for readonly in (True, False):
        with pytest.raises(StudyError, match=f"has the {what}, which no study has"):
            Store.open(tmp_path / "study", readonly=readonly)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("gpus", "NaN", "gpus of its machine is nan"),
        ("gpus", '{"devices": 3}', "gpus of its machine is {'devices': 3}"),
        ("cpu", "[1]", r"cpu of its machine is \[1\]"),
        ("memory_bytes", '"much"', "memory_bytes of its machine is 'much'"),
    ],
)
def test_facts_of_a_machine_of_another_kind_are_told(tmp_path, key, value, said):
    recorded(tmp_path / "study")
    change(tmp_path / "study", f"INSERT OR REPLACE INTO machine VALUES ('{key}', '{value}')")
    with pytest.raises(StudyError, match=said):
        print(Comparison(tmp_path / "study").machine)
