"""Studies as files of other formats, and what is left of damaged ones."""

import copy
import dataclasses
import importlib.util
import json
import struct
import subprocess
import sys
from pathlib import Path

import drawn_study
import jsonschema
import pandas as pd
import pytest
from bounds import digits
from command_line import run

from framework_compare import Comparison
from framework_compare.errors import StudyError, UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Energy, Epoch, Phase, ProfileRow, Run, Sample
from framework_compare.report import exports, json_document
from framework_compare.report.exports import export
from framework_compare.report.renderers import DIGITS
from framework_compare.results.columns import CELL_COLUMNS
from framework_compare.store.folder import FILE
from framework_compare.store.study_file import REQUEST, Store

SECOND = 1_000_000_000
NASTY = "=cmd()|' <script>; \"quoted\", 'x'\nnext\tline \x1b[31m"
CELLS = tuple(Cell("torch", "alexnet", "small", "cpu", TrainConfig(batch_size=n)) for n in range(1, 41))
SAMPLES = tuple(Sample(n * SECOND // 10, 100.0, n, 11) for n in range(200))
RUN = Run(
    "ok",
    reason=NASTY,
    phases=(Phase("epochs", 0, 20 * SECOND),),
    epochs=(Epoch(1, 0, 20 * SECOND, 0.5, 791, 50, 1.1, 0.04, 0.03, 0.05),),
    samples=SAMPLES,
    profile=(ProfileRow("kernel", NASTY, 3, 0.25),),
    energy=(Energy("gpu", 0, 1.0, "counter"), Energy("gpu", SECOND, 701.0, "counter")),
)
LACKING = importlib.util.find_spec("pyarrow") is None
PARQUET = pytest.param("parquet", marks=pytest.mark.skipif(LACKING, reason="needs pyarrow: the extra parquet"))


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    with Store.create(folder, settings={"note": NASTY}, machine={"cpu": "x"}, cells=CELLS, repeats=1) as store:
        for run_id in range(1, len(CELLS)):
            store.record(run_id, RUN)
    return folder


def read(path):
    readers = {".csv": pd.read_csv, ".json": pd.read_json, ".parquet": pd.read_parquet}
    return readers[path.suffix](path)


@pytest.mark.parametrize("kind", [PARQUET, "csv", "json"])
def test_every_table_is_exported_whole(study, tmp_path, kind):
    done = export(study, tmp_path / "out", kind)
    lengths = {path.stem: len(read(path)) for path in done.files if path.stem != "study"}
    assert done.damage == () and lengths == {
        **{"cells": 40, "runs": 40, "epochs": 39, "slices": 0, "phases": 39, "profile": 39},
        **{"samples": 39 * 200, "energy": 39 * 2},
    }
    facts = json.loads((tmp_path / "out" / "study.json").read_text())
    assert facts["settings"] == {"note": NASTY} and facts["machine"] == {"cpu": "x"}
    found, frame = read(tmp_path / "out" / f"samples.{kind}"), Comparison.load(study).samples
    assert list(found.columns) == list(frame.columns) and found.rss_bytes.tolist() == frame.rss_bytes.tolist()


def test_failed_runs_and_text_that_would_be_a_formula_are_exported(study, tmp_path):
    export(study, tmp_path / "out", "csv")
    assert "'=cmd()" in (tmp_path / "out" / "cells.csv").read_text()
    with Store.open(study, readonly=False) as store:
        store.record(40, dataclasses.replace(RUN, status="crashed", signal="SIGSEGV", log_tail="the end"))
    export(study, tmp_path / "failed-out", "json")
    last = read(tmp_path / "failed-out" / "runs.json").iloc[-1]
    assert (last.status, last.signal, last.log_tail) == ("crashed", "SIGSEGV", "the end")


def test_parquet_without_pyarrow_says_what_to_do(study, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'framework-compare\[parquet\]', or choose csv or json"):
        export(study, tmp_path / "out", "parquet")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_and_unknown_formats_are_refused(study, tmp_path):
    with pytest.raises(UsageError, match="unknown format 'xlsx'; allowed: parquet, csv, json"):
        export(study, tmp_path / "out", "xlsx")
    with pytest.raises(StudyError, match="contains no study"):
        export(tmp_path, tmp_path / "out", "csv")
    export(study, tmp_path / "out", "csv")
    with pytest.raises(UsageError, match="already holds .*csv"):
        export(study, tmp_path / "out", "csv")


@pytest.mark.parametrize("how", ["page", "cut", "header", "all"])
def test_a_damaged_study_is_not_exported_and_its_recovery_is_named(study, tmp_path, how):
    content = bytearray((study / FILE).read_bytes())
    page = len(content) // 2 // 4096 * 4096
    if how == "page":
        content[page : page + 3 * 4096] = b"\xff" * (3 * 4096)
    elif how == "cut":
        del content[len(content) * 2 // 3 :]
    elif how == "all":
        content[:] = b"\xff" * len(content)
    else:
        content[0] ^= 0x10
    (study / FILE).write_bytes(content)
    with pytest.raises(StudyError, match=r"damaged or not an SQLite file .*was not changed; `sqlite3 .* \.recover`"):
        export(study, tmp_path / "out", "csv")
    assert (study / FILE).read_bytes() == content and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [PARQUET, "csv", "json"])
def test_a_column_that_damage_made_of_several_kinds_is_exported(study, tmp_path, kind):
    with Store.open(study, readonly=False) as store:
        store._connection.execute("UPDATE run SET wall_s = 'x', reason = x'ff', exit_code = 3 WHERE run_id = 1")
    done = export(study, tmp_path / "out", kind)
    assert any("1 row of table run left out" in line for line in done.damage)
    first = read(tmp_path / "out" / f"runs.{kind}").iloc[0]
    assert (first.wall_s, first.reason, int(first.exit_code)) == ("x", "b'\\xff'", 3)


def test_full_disks_and_cut_exports_are_told_and_leave_nothing(study, tmp_path, monkeypatch):
    def full(frame, path):
        path.write_text("half of")
        if path.name.startswith("phases"):
            raise OSError(28, "No space left on device")

    monkeypatch.setitem(exports.WRITERS, "csv", full)
    with pytest.raises(StudyError, match="No space left on device; free some space there and repeat the command"):
        export(study, tmp_path / "out", "csv")
    assert not list((tmp_path / "out").iterdir())
    monkeypatch.undo()
    assert all(path.is_file() for path in export(study, tmp_path / "out", "csv").files)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(StudyError, match="No space left on device"):
        export(study, tmp_path / "full-out", "csv")


def test_benchmark_tools_read_the_interval_of_each_cell(tmp_path):
    made = drawn_study.study(tmp_path / "study")
    ok = made.frame[made.frame.status == "ok"].set_index(["framework", "model"])
    for kind in ("bencher", "github-action-benchmark"):
        made.export(tmp_path / "out", kind)
    by_name = json.loads((tmp_path / "out" / "bencher.json").read_text())
    listed = json.loads((tmp_path / "out" / "github-action-benchmark.json").read_text())
    assert list(by_name) == [one["name"] for one in listed] and len(listed) == len(ok)
    cell, seconds = ok.loc[("torch", "alexnet")], by_name["torch-alexnet-cpu"]["epoch-seconds"]
    cells = (cell.epoch_s_median, cell.epoch_s_ci_low, cell.epoch_s_ci_high)
    assert tuple(seconds[name] for name in ("value", "lower_value", "upper_value")) == cells
    one = next(one for one in listed if one["name"] == "torch-alexnet-cpu")
    assert one["unit"] == "s/epoch" and one["value"] == cell.epoch_s_median
    made.export(tmp_path / "out", "pytest-benchmark")
    path = tmp_path / "out" / "pytest-benchmark.json"
    document = json.loads(path.read_text())
    ok = made.frame[made.frame.status == "ok"]
    assert [one["stats"]["rounds"] for one in document["benchmarks"]] == ok.runs_ok.tolist()
    for one, cell in zip(document["benchmarks"], ok.itertuples()):
        mean = sum(one["stats"]["data"]) / one["stats"]["rounds"]
        assert one["stats"]["mean"] == pytest.approx(mean)
        assert min(one["stats"]["data"]) <= cell.epoch_s_median <= max(one["stats"]["data"])
    script = Path(sys.executable).with_name("pytest-benchmark")
    if not script.exists():
        pytest.skip("pytest-benchmark is missing: pip install -e '.[test]'")
    done = subprocess.run([script, "compare", path, "--columns=mean,rounds"], capture_output=True, text=True)
    assert "torch-alexnet-cpu" in done.stdout and "alexnet on cpu" in done.stdout


def test_mlflow_reads_each_run_back(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is missing: pip install -e '.[test]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = drawn_study.study(tmp_path / "study")
    (place,) = export(made.folder, tmp_path / "out", "mlflow").files
    client = mlflow.MlflowClient(place)
    experiment = client.get_experiment_by_name("framework_compare")
    found = client.search_runs([experiment.experiment_id], max_results=1000)
    ended = made.runs[~made.runs.status.isin(["planned", "running"])]
    assert len(found) == len(ended)
    assert {run.info.status for run in found} == {"FINISHED" if ok else "FAILED" for ok in ended.status == "ok"}
    run = next(run for run in found if run.info.run_name == "torch-alexnet-1")
    own = made.epochs[(made.epochs.framework == "torch") & (made.epochs.model == "alexnet") & (made.epochs.repeat == 1)]
    logged = client.get_metric_history(run.info.run_id, "epoch_s")
    assert [one.value for one in sorted(logged, key=lambda one: one.step)] == own.epoch_s.tolist()
    assert run.data.params["batch_size"] == str(int(own.batch_size.iloc[0])) and run.data.tags["framework"] == "torch"
    assert {one.data.tags["counts"] for one in found} == {str(one).lower() for one in ended.counts}


def test_wandb_writes_an_offline_run_for_each_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is missing: pip install -e '.[test]'")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    made = drawn_study.study(tmp_path / "study")
    made.export(tmp_path / "out", "wandb")
    ended = made.runs[~made.runs.status.isin(["planned", "running"])]
    files = list((tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == len(ended)
    logged = dict(map(_wandb_epochs, files))
    own = made.epochs[(made.epochs.framework == "torch") & (made.epochs.model == "alexnet") & (made.epochs.repeat == 1)]
    assert logged["torch-alexnet-1"] == own.epoch_s.tolist()


def _wandb_epochs(path):
    """The name of an offline run and its `epoch_s` by step, from its file: records in blocks of 32 KiB, as LevelDB logs them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts, name, epochs = path.read_bytes(), 7, b"", "", []
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts = (b"" if kind in (1, 2) else parts) + data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last of several
            record = Record.FromString(parts)
            name = record.run.display_name or name
            items = {(*one.nested_key, one.key)[0]: one.value_json for one in record.history.item}
            epochs += [float(items["epoch_s"])] if "epoch_s" in items else []
    return name, epochs


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_a_tracker_that_is_missing_is_named(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    made = drawn_study.study(tmp_path / "study")
    with pytest.raises(UsageError, match=f"format {kind} needs .*: pip install"):
        made.export(tmp_path / "out", kind)


def validate(document) -> None:
    jsonschema.Draft202012Validator(json_document.schema()).validate(document)


def test_a_study_validates_and_has_every_column_of_its_frame(comparison):
    jsonschema.Draft202012Validator.check_schema(json_document.schema())
    document = json.loads(comparison.to_json())
    validate(document)
    assert all({*CELL_COLUMNS, "ratio_to_best"} <= set(cell) for cell in document["cells"])
    assert document["schema_version"] == json_document.SCHEMA_VERSION and document["started_at"].startswith("2026-11")
    for cell, row in zip(document["cells"], comparison.frame.itertuples()):
        stored = row.epoch_s_median
        assert cell["epoch_s_median"] == (None if stored != stored else pytest.approx(stored, rel=digits(DIGITS)))
    assert len(document["verdicts"]) == len(comparison.verdicts())


def test_a_study_without_a_run_validates_and_its_request_is_not_passed_on(tmp_path):
    Store.create(tmp_path / "a", settings={}, machine={}, cells=[], repeats=1).close()
    Store.create(tmp_path / "b", settings={}, machine={}, cells=[CELLS[0]], repeats=1).close()
    for name in "ab":
        validate(json.loads(run("show", tmp_path / name, "--json").stdout))
    settings = {REQUEST: {"dataset": ["/home/me/images"]}}
    Store.create(tmp_path / "study", settings=settings, machine={}, cells=[], repeats=1).close()
    assert "/home/me" not in run("show", tmp_path / "study", "--json").stdout


def test_a_wrong_document_does_not_validate(comparison):
    for path, value in (
        *((("schema_version",), 2), (("cells", 0, "epoch_s_median"), "1.2"), (("cells", 0, "peak_rss_bytes"), 1.5)),
        *((("cells", 0, "status"), "fine"), (("cells", 0, "ratio_to_best"), 0.9), (("verdicts", 0, "shown"), None)),
        (("machine",), None),
    ):
        document = copy.deepcopy(json.loads(comparison.to_json()))
        place = document
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            validate(document)


@pytest.mark.parametrize("more", [["--table", "time"], ["--toml"], ["latest"]], ids=" ".join)
def test_json_is_of_one_whole_study(comparison, more):
    assert "allowed: one of them" in run("show", comparison.folder, *more, "--json", check=2).stderr
