"""Where a run becomes steady is found in its step times, which are kept whole."""

import numpy as np
import pytest
from bounds import rounding

from framework_compare import Comparison, compare
from framework_compare.records import Epoch
from framework_compare.results.steadiness import KIND, MIN_STEPS, marked, read, steadiness

STEP_NS = 10_000_000
PACE_S = 0.004
SETTINGS = {"batch_size": 1, "epochs": 3, "threads": 1, "loader_workers": 0, "image_size": 32, "warmup_steps": 0}


def noise(generator, count, correlation=0.0, deviation=0.03):
    """Logarithms of step times around 1 whose neighbours are correlated, as a machine's are."""
    values = generator.normal(0, deviation * np.sqrt(1 - correlation**2), count)
    for place in range(1, count):
        values[place] += correlation * values[place - 1]
    return STEP_NS * np.exp(values)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("count", [30, 200, 2000])
def test_steady_steps_are_seldom_said_to_warm_up_or_not_to_settle(count, correlation):
    generator = np.random.default_rng([count, int(10 * correlation)])
    found = [steadiness(noise(generator, count, correlation)) for _ in range(200)]
    assert np.mean([one.warm_up > 0 for one in found]) <= 0.05
    assert np.mean([not one.settled for one in found]) <= 0.05


@pytest.mark.parametrize("warm_up", [1, 3, 20, 90])
@pytest.mark.parametrize("slow", [0.7, 1.3, 3.0])
def test_a_warm_up_is_cut_where_it_ends(warm_up, slow):
    generator = np.random.default_rng(int(100 * slow) + warm_up)
    count = max(40, 200 * (warm_up > 3))
    right = 0
    for _ in range(50):
        steps = noise(generator, count)
        steps[:warm_up] *= slow
        found = steadiness(steps)
        right += found.settled and warm_up <= found.warm_up <= warm_up + 10
    assert right >= 45


def test_a_slow_decay_is_cut_where_little_of_it_is_left_and_single_slow_steps_are_none():
    steps = noise(np.random.default_rng(1), 400) * (1 + 2 * np.exp(-np.arange(400) / 30))
    found = steadiness(steps)
    assert found.settled and 60 <= found.warm_up <= 200
    generator = np.random.default_rng(3)
    steps = noise(generator, 400)
    steps[generator.choice(np.arange(20, 400), 20)] *= 5
    assert steadiness(steps) == (0, 0.0)
    assert steadiness(np.full(MIN_STEPS - 1, STEP_NS)) is None
    assert steadiness(np.full(MIN_STEPS, STEP_NS)) == (0, 0.0)


def test_steps_that_go_on_changing_do_not_settle():
    steps, place = noise(np.random.default_rng(2), 300), np.arange(300)
    late, most_of_the_run = np.where(place >= 200, 1.3, 1), np.where(place < 250, 1.3, 1)
    for factors in (np.linspace(1, 1.2, 300), late, most_of_the_run):
        assert not steadiness(steps * factors).settled


def epochs_of(*parts):
    at, epochs = 0, []
    for number, steps in enumerate(parts, 1):
        end = at + int(sum(steps)) + 1000
        epochs.append(Epoch(number, at, end, 0.0, len(steps), len(steps), 1.0, 0.1, 0.1, 0.1))
        at = end
    return epochs


@pytest.mark.parametrize(
    "fault", ["absent", "short", "long", "a folder", "a pipe", "negative", "longer than the epoch"]
)
def test_a_file_that_does_not_fit_the_epochs_tells_nothing(tmp_path, fault):
    import os

    parts = [noise(np.random.default_rng(n), 22).astype(KIND) for n in range(2)]
    epochs, path, content = epochs_of(*parts), tmp_path / "steps.i64", np.concatenate(parts)
    if fault == "a folder":
        path.mkdir()
    elif fault == "a pipe":
        os.mkfifo(path)
    elif fault != "absent":
        if fault in ("negative", "longer than the epoch"):
            content[3] = -1 if fault == "negative" else 10**12
        data = content.tobytes()
        path.write_bytes({"short": data[:-8], "long": data + b"12345678"}.get(fault, data))
    assert read(path, epochs) is None and marked(epochs, path) == {}


def test_a_runs_step_times_are_kept_whole(paced, images, own_cache, tmp_path):
    result = compare(paced("even", pace_s=PACE_S), "linear", dataset=images, out=tmp_path / "s", **SETTINGS)
    steps, epochs = result.steps, result.epochs
    assert len(steps) == 3 * 13 and steps.groupby("epoch").step.apply(list).tolist() == 3 * [list(range(1, 14))]
    assert (steps.step_s >= PACE_S).all() and (steps.groupby("epoch").step_s.sum().to_numpy() <= epochs.epoch_s).all()
    medians = steps.groupby("epoch").step_s.median().to_numpy()
    assert medians == pytest.approx(epochs.step_s_median.to_numpy(), rel=rounding(2))
    for path in (tmp_path / "s" / "runs").glob("*/steps.i64"):
        path.unlink()
    assert len(Comparison.load(tmp_path / "s").steps) == 0


@pytest.mark.alone
def test_no_epoch_is_left_out_for_its_own_time(paced, images, own_cache, tmp_path):
    name = paced("warming", pace_s=0.02, slow=4.0, slow_steps=10)
    result = compare(name, "linear", dataset=images, out=tmp_path / "s", **{**SETTINGS, "repeats": 2})
    row, epochs = result.frame.iloc[0], result.epochs
    assert row.epoch_s == pytest.approx(epochs.epoch_s.mean()) and epochs.epoch_s.max() > 1.5 * epochs.epoch_s.min()


@pytest.mark.alone
def test_a_cell_that_never_settles_says_so(paced, images, own_cache, tmp_path):
    name = paced("slower", pace_s=0.02, growth=0.03)
    result = compare(name, "linear", dataset=images, out=tmp_path / "s", **SETTINGS)
    assert result.frame.runs_unsettled.tolist() == [1]
    assert "Warning, slower linear: 1 of 1 runs did not settle" in result.table(style="markdown")
