"""A dry run says what a study would take, by what is known of the machine, and starts nothing."""

import pytest

from framework_compare import api, compare, dry_run
from framework_compare.forecast import Forecast
from framework_compare.launch import memory_limit
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.results import timing_history
from framework_compare.results.precision import LEAST_RUNS
from framework_compare.results.timing_history import ASSUMPTION, Known
from framework_compare.study.schedules import sentences

QUICK = {"batch_size": 4, "epochs": 1, "threads": 1, "loader_workers": 0, "image_size": 32, "sampling_hz": 0}


def planned(framework="tiny", model="linear", **config):
    return Cell(framework, model, "d", "cpu", TrainConfig(**config))


def macs(cell):
    return {"linear": 1000, "large": 5_000, "vast": 50_000}[cell.model]


def test_nothing_is_written_and_no_rival_named_that_cannot_run_here(tiny, own_cache, tmp_path):
    result = dry_run("torch", ["alexnet", "vgg16"], dataset="fire-smoke-big", threads=2)
    assert isinstance(result, Forecast) and len(result.cells) == 2
    assert not own_cache.exists()
    assert result.disk_bytes["data set fire-smoke-big"] > 1e9
    assert result.disk_bytes["environment torch"] > 5e8 and result.disk_bytes["study"] > 0
    result = dry_run(["torch", "mxnet"], "alexnet", "cuda", dataset="fire-smoke-small")
    assert all(one.lack for one in result.cells) and not result.schedule
    shown = str(dry_run("torch", "diabetes_ann", optimizer=["adam", "nadam"], batch_growth=1.1))
    assert " adam " in shown and " nadam " in shown and "batch_growth" not in shown


def test_without_earlier_studies_assumptions_are_stated_with_their_range(tiny, own_cache, tmp_path):
    result = dry_run("torch", ["alexnet", "vgg16"], dataset="fire-smoke-small", threads=2)
    alexnet, vgg = result.cells
    assert {alexnet.basis, vgg.basis} == {ASSUMPTION} and vgg.epoch_s.middle > 5 * alexnet.epoch_s.middle
    assert result.seconds.low < result.seconds.middle < result.seconds.high and result.runs == 2 * 1
    text = str(result)
    assert "2 cells, 2 runs. Nothing was started." in text and "2 to 80 G multiply-accumulates per second" in text
    assert "GB (data set fire-smoke-small" in text and result.table("latex").count("tabular")


MEMORY = (
    "All workers that take turns may use 10 GB together, 80 % of what is free now; those that do not fit take turns "
)
MEMORY += "with the fastest of the others, or run alone."


@pytest.mark.parametrize(
    ("asked", "settings", "said"),
    [
        ((["torch", "jax"], ["alexnet", "vgg16"]), {}, ["In turns: torch, jax (alexnet, vgg16).", MEMORY]),
        (
            (["torch", "jax"], "alexnet"),
            {"execution": ["default", "compiled"]},
            ["In turns: torch default, jax default, torch compiled, jax compiled (alexnet).", MEMORY],
        ),
        (("torch", ["alexnet", "vgg16"]), {}, ["Alone (no other cell competes with it): torch (alexnet, vgg16)."]),
        (("torch", ["alexnet", "vgg16"]), {"across_models": True}, ["In turns: torch alexnet, torch vgg16.", MEMORY]),
        ((["torch", "jax"], "alexnet"), {"schedule": "sequential"}, ["One run after another, as requested."]),
        (
            (["torch", "jax"], "alexnet"),
            {"batch_size": [1, 2, 3, 4, 5]},
            [
                "In turns, 8 at a time; the others of a block with the fastest of these, which runs once more: "
                + ", ".join(f"{name} {size}" for size in range(1, 6) for name in ("torch", "jax"))
                + " (alexnet).",
                MEMORY,
            ],
        ),
    ],
)
def test_a_dry_run_says_which_runs_take_turns_and_why_others_do_not(own_cache, monkeypatch, asked, settings, said):
    monkeypatch.setattr(memory_limit, "free_bytes", lambda: 12_500_000_000)
    result = dry_run(*asked, dataset="fire-smoke-small", threads=1, loader_workers=0, **settings)
    assert result.schedule == tuple(said)
    shown = " ".join(str(result).split())
    assert all(one in shown for one in said)


def test_the_reasons_of_those_that_run_alone_are_told_once_each():
    models = ("alexnet", "vgg16")
    cells = [Cell(name, model, "d", "cuda", TrainConfig(device="cuda")) for model in models for name in ("a", "b")]
    cells += [Cell("a", "linear", "d", "cpu", TrainConfig(batch_growth=1.5))]
    cells += [Cell("a", model, "d", "cuda", TrainConfig(device="cuda", pipeline="memory")) for model in models]
    assert sentences([(number, cell, 1) for number, cell in enumerate(cells)], "interleaved") == [
        "Alone (on a GPU its loaders cannot be stopped between turns): a, b (alexnet, vgg16).",
        "Alone (its batches grow): a (linear).",
        "Alone (no other cell competes with it): a (alexnet, vgg16).",
    ]


def test_the_rest_of_a_study_takes_turns_with_the_fastest_that_has_run(paced, images, own_cache, tmp_path):
    """What the dry run of `resume` says is what happens then."""
    first = tmp_path / "once"
    fails = f"def on_step(self):\n    if not os.path.exists({str(first)!r}):\n        raise ValueError"
    names = [paced("one", pace_s=0.002), paced("two", fails), paced("three", fails), paced("four", pace_s=0.02)]
    settings = {"dataset": images, "out": tmp_path / "s", "verify": "off", "pipeline": "memory"}
    study = compare(names, "linear", **settings, **{**QUICK, "epochs": 4, "batch_size": 1})
    assert study.frame.status.tolist() == ["ok", "failed", "failed", "ok"]
    rest = api.dry_resume(study.folder, retry=["failed"])
    assert rest.schedule[0] == "In turns with one, which runs once more: two, three (linear)."
    first.touch()
    study = api.resume(study.folder, retry=["failed"])
    assert study.frame.status.eq("ok").all() and study.frame.runs_ok.tolist() == [2, 1, 1, 1]
    pairs = {frozenset((one.faster, one.slower)): one.blocks for one in study.verdicts()}
    assert pairs[frozenset(("one", "two"))] == pairs[frozenset(("two", "three"))] == 1
    assert not api.dry_resume(study.folder).schedule


def test_what_was_measured_is_taken_and_bounds_samples(tiny, images, own_cache, tmp_path):
    out = own_cache / "studies" / "before"
    measured = compare(tiny, "linear", dataset=images, out=out, repeats=1, **QUICK)
    result = dry_run(tiny, "linear", dataset=images, repeats=4, **QUICK)
    (cell,) = result.cells
    assert cell.basis == "measured before" and cell.runs == 4
    assert cell.epoch_s.low <= measured.frame.epoch_s_median[0] <= cell.epoch_s.high
    assert cell.total_s.middle == pytest.approx(4 * (measured.frame.startup_s[0] + cell.epoch_s.middle))
    assert "By an assumption" not in str(result)
    compare(tiny, "linear", dataset=images, out=out, repeats=1, **QUICK)
    many = {**QUICK, "epochs": 100_000, "sample": 3.0}
    (cell,) = dry_run(tiny, "linear", dataset=images, repeats=1, **many).cells
    assert cell.epoch_s.high < 3.0 < cell.total_s.middle
    (whole,) = dry_run(tiny, "linear", dataset=images, repeats=1, **{**QUICK, "epochs": 1}).cells
    assert cell.total_s.high - whole.total_s.high <= 3.0 + 1e-9
    compare(tiny, "linear", dataset=images, out=tmp_path / "s", repeats=1, **QUICK)
    assert timing_history.measured([tmp_path / "s"], {"cpu": "another"}) == []
    assert timing_history.measured([tmp_path], {}) == [], "a folder without a study"


def test_the_nearest_of_what_is_known_is_taken():
    exact = Known(planned(), 100.0, 2.0)
    model = Known(planned(batch_size=2), 50.0, 2.0)
    other = Known(planned(model="large"), 10.0, 2.0)
    foreign = Known(planned(framework="other"), 1.0, 2.0)
    vast = Known(planned(model="vast"), 10.0, 2.0)  # whose time is of another kind
    for known, basis, middle in (
        ([foreign, other, model, exact], "measured before", 1 / 100),
        ([foreign, other, model], "measured earlier with other settings", 1 / 50),
        ([foreign, other, vast], "its framework with other models", 1 / 50),
        ([foreign, vast], "other frameworks and models", 1.0),
    ):
        seconds, by = timing_history.seconds_per_sample(planned(), known, macs)
        assert (by, seconds.middle) == (basis, pytest.approx(middle))
        assert seconds.low < seconds.middle < seconds.high

    images, arrays = (
        timing_history.seconds_per_sample(planned(batch_size=32), (), lambda _: 0, of_arrays)[0]
        for of_arrays in (False, True)
    )
    assert images == timing_history.ASSUMED_IMAGE_S
    assert arrays == tuple(one / 32 for one in timing_history.ASSUMED_STEP_S), "a batch of arrays needs no decoding"

    def seconds(known=(), **config):
        return timing_history.seconds_per_sample(planned(mode="generation", **config), known, macs)

    sizes = {"batch_size": 1}, {"batch_size": 64}, {"batch_size": 1, "new_tokens": 64}
    (one, basis), (many, _), (longer, _) = (seconds(**given) for given in sizes)
    assert basis == ASSUMPTION
    steps = 32 * timing_history.ASSUMED_TOKEN_S[1]
    assert one.middle - many.middle == pytest.approx(steps * 63 / 64)
    assert longer.middle - one.middle == pytest.approx(steps)
    measured = [Known(planned(mode="generation", batch_size=64), 500.0, 2.0)]
    found, basis = seconds(measured, batch_size=64)
    assert (found.middle, basis) == (pytest.approx(1 / 500), "measured before")
    assert seconds(measured, batch_size=1)[1] == ASSUMPTION, "steps of another size of batch tell nothing of its time"


def test_a_budget_bounds_the_time_and_samples_bound_the_runs(tiny, own_cache, tmp_path):
    request = {"dataset": "fire-smoke-big", "threads": 1, "budget": "10min"}
    result = dry_run("torch", ["alexnet", "vgg16"], **request)
    assert result.seconds.high <= 600 and result.runs == 2 * LEAST_RUNS
    assert "at most the budget of 10 minutes" in str(result)
    assert "these are the minimum runs per cell" in str(result)
    vgg = result.cells[1]
    assert vgg.epoch_s.middle > 600 > vgg.total_s.middle
    short = str(dry_run("torch", ["alexnet", "vgg16"], **{**request, "budget": "20s"}))
    assert "more than the budget of 0.333. Some cells will lack runs" in " ".join(short.split())
