"""A study as one JSON document: it validates against its schema, and says what the frames say."""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest
from bounds import digits
from command_line import run

from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.report import json_document
from framework_compare.report.renderers import DIGITS
from framework_compare.results.columns import CELL_COLUMNS
from framework_compare.store.study_file import REQUEST, Store


def validate(document) -> None:
    jsonschema.Draft202012Validator(json_document.schema()).validate(document)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(json_document.schema())


def test_a_study_validates_and_has_every_column_of_its_frame(comparison):
    document = json.loads(comparison.to_json())
    validate(document)
    assert all({*CELL_COLUMNS, "ratio_to_best"} <= set(cell) for cell in document["cells"])
    assert document["schema_version"] == json_document.SCHEMA_VERSION and document["started_at"].startswith(
        "2026-11-22"
    )
    for cell, row in zip(document["cells"], comparison.frame.itertuples()):
        stored = row.epoch_s_median
        assert cell["epoch_s_median"] == (None if stored != stored else pytest.approx(stored, rel=digits(DIGITS)))
    assert len(document["verdicts"]) == len(comparison.verdicts())


def test_a_study_without_a_run_validates(tmp_path):
    Store.create(tmp_path / "a", settings={}, machine={}, cells=[], repeats=1).close()
    Store.create(
        tmp_path / "b", settings={}, machine={}, cells=[Cell("x", "y", "z", "cpu", TrainConfig())], repeats=1
    ).close()
    for name in "ab":
        validate(json.loads(run("show", tmp_path / name, "--json").stdout))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("cells", 0, "epoch_s_median"), "1.2"),
        (("cells", 0, "peak_rss_bytes"), 1.5),
        (("cells", 0, "status"), "fine"),
        (("cells", 0, "ratio_to_best"), 0.9),
        (("verdicts", 0, "shown"), None),
        (("machine",), None),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_wrong_document_does_not_validate(comparison, path, value):
    document = copy.deepcopy(json.loads(comparison.to_json()))
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(document)


def test_the_request_stays_out_of_what_is_passed_on(tmp_path):
    settings = {REQUEST: {"dataset": ["/home/me/images"]}}
    Store.create(tmp_path / "study", settings=settings, machine={}, cells=[], repeats=1).close()
    assert "/home/me" not in run("show", tmp_path / "study", "--json").stdout


@pytest.mark.parametrize("more", [["--table", "time"], ["--toml"], ["latest"]], ids=" ".join)
def test_json_is_of_one_whole_study(comparison, more):
    assert "allowed: one of them" in run("show", comparison.folder, *more, "--json", check=2).stderr
