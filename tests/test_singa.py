"""What needs no SINGA: which wheel its adapter refuses, its label wherever it is named, its setting."""

import json
import sys

import drawn_study
import pytest
from command_line import run

from framework_compare import dry_run, registry
from framework_compare.adapters.singa import repairs
from framework_compare.environments import support
from framework_compare.errors import Unsupported
from framework_compare.plan.reproductions import REPRODUCTIONS
from framework_compare.plan.settings import SETTINGS
from framework_compare.report import parity_tables, reproduction_tables, side_by_side
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.parity import PASSED, Parity

LABEL = "SINGA 3.0.0.dev1 (2020), repaired at run time"
SENTENCE = f"singa is {LABEL}."
SIZES = ("largest_ok", "next_failed", "next_failed_status")


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder of files called as the wheel's, whose contents are not."""
    for folder in ("singa", "singa.libs"):
        (tmp_path / folder).mkdir()
    for name in repairs.FILES:
        (tmp_path / "singa" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    return tmp_path / "singa"


def test_another_wheel_or_python_is_refused(wheel, monkeypatch):
    def refused(words):
        with pytest.raises(Unsupported, match=words):
            repairs.load()

    refused(r"has checksum .*; only the wheel singa 3.0.0.dev1 .* is repaired: run")
    (wheel / repairs.EXTENSION).rename(wheel / "elsewhere")
    refused(f"lacks {repairs.EXTENSION}; only the wheel")
    (wheel / "elsewhere").rename(wheel / repairs.EXTENSION)
    (wheel.parent / "singa.libs" / repairs.LIBRARIES[0]).unlink()
    refused("lacks libdnnl-034bb581.so.1; only the wheel")
    for minor in (7, 13):
        monkeypatch.setattr(sys, "version_info", (3, minor, 1))
        refused(f"Python 3.8 to 3.12; this interpreter is 3.{minor}")
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    monkeypatch.setattr(repairs.importlib.util, "find_spec", lambda name: None)
    refused("singa is not installed .*env create singa")


def test_the_label_is_one_and_its_setting_says_what_it_does():
    assert registry.framework("singa").python == repairs.PYTHONS
    assert registry.framework("singa").label == repairs.LABEL == LABEL
    assert registry.labels(["torch", "singa", "singa", "absent"]) == (SENTENCE,)
    assert support.lack("singa", "cuda:0").remedy == "run it on a CPU, which its only wheel is built for"
    assert SETTINGS["internals"].choices == ("public", "private")
    assert "private field" in SETTINGS["internals"].meaning


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return drawn_study.study(tmp_path_factory.mktemp("labels") / "study", ("torch", "singa"), ("alexnet",))


@pytest.mark.parametrize("style", ["terminal", "markdown", "github", "latex"])
def test_every_table_of_a_study_has_the_label(study, style):
    for kind in study.kinds:
        assert SENTENCE in " ".join(study.table(kind, style).split()), kind


def test_other_tables_have_the_label(study, own_cache, tmp_path):
    frame, count = study.frame, len(study.frame)
    published = REPRODUCTIONS["lerat2021"].parts
    parity = Parity("singa", "3.0.0.dev1", "alexnet", "default", PASSED)
    tables = (
        side_by_side.table(study.beside(study), (study.folder, study.folder), (count, count)),
        reproduction_tables.ratios(published["cpu"], frame, BlockTimes(), "caption"),
        reproduction_tables.sizes(published["batches"], frame.assign(**{name: None for name in SIZES}), "caption"),
        parity_tables.parity_table([parity]),
    )
    assert all(SENTENCE in table.remarks for table in tables)
    planned = dry_run("singa", "alexnet", dataset="fire-smoke-tiny")
    assert SENTENCE in " ".join(str(planned).split())


def test_commands_and_files_have_the_label(study, own_cache, tmp_path, one_width):
    for command in ("list", "inspect alexnet"):
        assert SENTENCE in " ".join(run(*command.split()).stdout.split())
    assert json.loads(study.to_json())["labels"] == [SENTENCE]
    study.plot("epoch-time").save(tmp_path / "times.svg")
    assert (tmp_path / "times.txt").read_text().endswith(f"{SENTENCE}\n")
    assert SENTENCE in " ".join(study.report(tmp_path / "report.html").read_text().split())
