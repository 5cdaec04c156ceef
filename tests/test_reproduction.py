"""Published studies again: their table beside ours, what is left out where, resuming, and refusals."""

import math
from dataclasses import replace

import pandas
import pytest
from command_line import run
from heard import Heard

from framework_compare import registry, reproduction
from framework_compare.errors import UnknownNameError
from framework_compare.plan import planning
from framework_compare.plan.ladders import Rung
from framework_compare.plan.reproductions import GAINS, RATIOS, REPRODUCTIONS, SIZES, Reproduction, ReproductionPart
from framework_compare.report import reproduction_tables
from framework_compare.reproduction import reproduce
from framework_compare.results.block_times import BlockTimes
from framework_compare.results.columns import CELL_COLUMNS

FAST = {"epochs": 2, "threads": 1, "loader_workers": 0, "image_size": 32, "pipeline": "memory", "sampling_hz": 0}


@pytest.fixture
def short(tiny, images, own_cache, monkeypatch):
    """A published study of the test framework, under the names of PyTorch and AlexNet; its name."""
    monkeypatch.setitem(registry.FRAMEWORKS, "torch", replace(registry.FRAMEWORKS[tiny], title="PyTorch"))
    monkeypatch.setitem(registry.MODELS, "alexnet", replace(registry.MODELS["linear"], title="AlexNet"))
    monkeypatch.setitem(reproduction_tables.SETS, images.name, "small")
    monkeypatch.setattr(reproduction.nvml, "describe_gpus", lambda: None)
    base = {"dataset": images, **FAST}
    settings = {"GPU": {"device": "cuda"}, "private": {"gpu_threads": "private"}, "Adam": {"batch_size": 4}}
    rungs = tuple(Rung(*rung) for rung in settings.items())
    parts = {
        "epochs": ReproductionPart(
            ("alexnet",), {**base, "epochs": 3}, {"epochs": 2}, published="lerat_table1_cpu.csv", beside=RATIOS,
            reference="torch",
        ),
        "gains": ReproductionPart(
            ("alexnet",), base, {}, rungs, published="abidate_gains.csv", beside=GAINS,
            workload="lstm_ibm", phase="train", places={"base": 0, "Adam": 1},
        ),
        "batches": ReproductionPart(
            ("alexnet",), {**base, "batch_sizes": (2, 4)}, published="lerat_batches.csv", beside=SIZES
        ),
        "gpu": ReproductionPart(("alexnet",), base, devices=("cuda",)),
        "plain": ReproductionPart(("alexnet",), base),
    }  # fmt: skip
    monkeypatch.setitem(REPRODUCTIONS, "short", Reproduction("a source", parts, ("torch", "singa"), ("singa",)))
    monkeypatch.setattr(reproduction.managed, "find", lambda name: None)
    return "short"


def test_published_figures_stand_beside_ours(short, tmp_path):
    listener = Heard()
    result = reproduce(short, out=tmp_path / "r", repeats=1, watcher=listener)
    ratios, gains, sizes = result.tables()
    (row,) = ratios.rows
    assert [value.text for value in row.values[:2]] == ["176", "1.00"]  # 139 s for 791 images, and itself
    assert float(row.values[2].text.split()[0]) > 0 and row.values[3].text == "1.00"
    base, adam = gains.rows
    assert [row.names for row in (base, adam)] == [("PyTorch", "base"), ("PyTorch", "Adam")]  # no GPU, no rung of it
    assert [figure.text for figure in adam.values[:2]] == ["54.0", "15.7"] and float(adam.values[3].text) > 0
    (row,) = sizes.rows
    assert [figure.text for figure in row.values] == ["100", "-", "4", "-", "-"]
    text = str(result)
    assert "a source, epochs: published figures and ours" in text and "plain: no figures are published." in text
    said = " ".join(listener.said)
    assert "gpu is skipped: it needs a GPU" in said and "singa is skipped: it has no environment" in said


def test_a_row_of_a_cell_that_failed_once_has_no_ratio():
    """Its other runs are ok, and would give one."""
    fixed = {**dict.fromkeys(CELL_COLUMNS, math.nan), "model": "alexnet", "dataset": "fire-smoke-small", "reason": "no"}
    epoch = {"epoch_s_median": 2.0, "images": 791, "runs": 2, "warnings": "", "parity": None, "batch_growth": 1}
    rows = [
        {**fixed, **epoch, "framework": "torch", "status": "ok", "runs_ok": 2},
        {**fixed, **epoch, "framework": "mxnet", "status": "crashed", "runs_ok": 1},
    ]
    blocks = BlockTimes({0: {1: 2.0, 2: 2.1}, 1: {1: 3.0}})
    part = REPRODUCTIONS["lerat2021"].parts["cpu"]
    torch, mxnet = reproduction_tables.ratios(part, pandas.DataFrame(rows), blocks, "x").rows
    assert [row.values[3].text for row in (torch, mxnet)] == ["1.00", "-"] and mxnet.values[2].text == "crashed"


def test_it_is_resumed_and_quick_is_another_size_than_full(short, tmp_path):
    asked = {"out": tmp_path / "r", "repeats": 1, "parts": ["epochs"]}
    quick, again = reproduce(short, **asked), reproduce(short, **asked)
    started = [one.studies["epochs"].runs["started_at"].tolist() for one in (quick, again)]
    assert started[0] == started[1]
    full = reproduce(short, full=True, **{**asked, "out": tmp_path / "full"})
    assert [len(one.studies["epochs"].epochs) for one in (quick, full)] == [2, 3]


def test_real_data_goes_to_its_part(short, images, tmp_path):
    other = tmp_path / "other"
    other.symlink_to(images)
    result = reproduce(short, out=tmp_path / "r", repeats=1, parts=["plain"], data={"plain": other})
    assert result.studies["plain"].frame["dataset"].tolist() == ["other"]


def test_a_budget_reaches_comparisons_only(short, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(reproduction, "compare", lambda *names, **request: calls.append(request))
    reproduce(short, out=tmp_path / "r", parts=["epochs", "gains"], repeats=1, budget="30min")
    assert [("budget" in call, "repeats" in call) for call in calls] == [(True, False), (False, True)]
    assert "limit" not in calls[0], "a budget samples the published sizes"
    assert [call.get("reference") for call in calls] == ["torch", None], "ratios are published over PyTorch"
    assert calls[0]["epochs"] == 2, "of three: many short epochs of one run would take the time of all others"
    reproduce(short, out=tmp_path / "f", parts=["epochs"], budget="30min", full=True)
    assert calls[-1]["epochs"] == 3


def test_what_it_would_take_is_shown_and_nothing_started(short):
    found = reproduction.dry_run(short, repeats=2)
    assert set(found) == {"epochs", "batches", "gains", "plain"}
    assert found["epochs"].runs == 2 and "Total: about" in str(found["epochs"])
    assert "The estimate assumes that no size fails." in str(found["batches"])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"name": "lerat"}, "lerat2021"), ({"parts": ["x"]}, "epochs"), ({"data": {"x": "y"}}, "epochs")],
)
def test_unknown_names_are_refused_with_what_is_known(short, tmp_path, wrong, named):
    with pytest.raises(UnknownNameError, match=named):
        reproduce(**{"name": short, "out": tmp_path / "r", **wrong})
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("name", [name for name in REPRODUCTIONS if name != "short"])
def test_declared_parts_can_be_planned_in_both_sizes(name):
    """Settings, models and published rungs are names that exist; no file of data is drawn or trained on."""
    for part in REPRODUCTIONS[name].parts.values():
        for quick in ({}, part.quick):
            own = {**part.settings, **quick}
            planning.find_models(own.pop("models", part.models))
            for key in ("dataset", "limit", "repeats", "batch_sizes"):
                own.pop(key, None)
            values = {key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}
            assert planning.expand_configs(values)
        for file in filter(None, [part.published]):
            assert reproduction_tables.rows(file) and all(row["source"] for row in reproduction_tables.rows(file))
        if part.beside == GAINS:
            rungs = {"base", *(rung.name for rung in part.rungs)}
            theirs = reproduction_tables.rung_seconds(part)
            assert set(part.places) <= rungs and set(part.places.values()) == set(theirs)


def test_the_command_prints_both(short, tmp_path):
    done = run("reproduce", short, "--part=epochs", "--repeats=1", "--style=markdown", f"--out={tmp_path / 'r'}")
    assert "| AlexNet | colours | PyTorch | 176 | 1.00 |" in done.stdout
