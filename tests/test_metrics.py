"""Figures of hand-made runs whose figures are known."""

import dataclasses

import pytest
from bounds import rounding
from stored_study import ok

from framework_compare.records import STATUSES, Energy, Epoch, Phase, Run, Sample, Slice
from framework_compare.results import metrics
from framework_compare.results.metrics import METRICS, Measured

SECOND = 1_000_000_000
# A machine that has been up for 200 days: beyond what a float holds to the nanosecond.
UP = 200 * 86_400 * SECOND


def epochs(*seconds, start_s=10, wait=0.25, images=100):
    out, at = [], UP + start_s * SECOND
    for number, length in enumerate(seconds, 1):
        end = at + int(length * SECOND)
        out.append(Epoch(number, at, end, wait * length, images, 10, 2.0 / number, length / 10, 0.0, 1.0))
        at = end
    return tuple(out)


def sample(t_s, **readings):
    return Sample(UP + int(t_s * SECOND), **readings)


def measured(run):
    """A run as the store gives it."""
    kinds = {"phases": Phase, "epochs": Epoch, "samples": Sample, "energy": Energy, "slices": Slice}
    fields = {kind: [field.name for field in dataclasses.fields(record)] for kind, record in kinds.items()}
    columns = {
        kind: {name: [getattr(one, name) for one in getattr(run, kind)] for name in fields[kind]} for kind in kinds
    }
    return Measured(vars(run), **columns)


def of_run(run):
    return metrics.figures([measured(run)])


def figure(name, run):
    return of_run(run)[name]


def test_epoch_figures_are_of_runs_that_ended_well():
    run = Run("ok", epochs=epochs(1, 2, 6))
    assert figure("epoch_s", run) == 3.0
    assert figure("epoch_s_median", run) == 2.0
    assert figure("images_per_s", run) == pytest.approx(300 / 9)
    assert figure("data_wait_share", run) == pytest.approx(0.25)
    assert figure("step_s_median", run) == pytest.approx(0.2)
    assert figure("loss_first", run) == 2.0
    assert figure("loss_last", run) == pytest.approx(2 / 3)
    assert figure("epoch_s", Run("ok", epochs=epochs(0.000000001))) == 1e-9
    assert set(of_run(Run("not-installed")).values()) == {None}
    for status in set(STATUSES) - {"ok"}:
        found = of_run(Run(status, peak_rss_bytes=7, epochs=epochs(1, 1, 1), phases=(Phase("build", 0, SECOND),)))
        assert {found[name] for name in ("epoch_s", "epoch_s_ci_low", "images_per_s", "loss_last")} == {None}, status
        assert (found["peak_rss_bytes"], found["build_s"]) == (7, 1.0)


def test_readings_are_of_the_measured_epochs_only():
    readings = [(5, 900.0), (11, 100.0), (12, 200.0), (12.5, 800.0)]
    samples = tuple(sample(t, cpu_percent=cpu, machine_cpu_percent=cpu / 10) for t, cpu in readings)
    run = Run("ok", epochs=epochs(1, 1), samples=samples)
    assert figure("cpu_percent_mean", run) == pytest.approx(150.0)
    assert figure("cpu_percent_max", run) == 200.0
    assert figure("cpu_percent_p95", run) == pytest.approx(195.0)
    assert figure("machine_cpu_percent_mean", run) == pytest.approx(15.0)
    samples = (sample(11), sample(12, cpu_percent=50.0), sample(13))
    run = Run("ok", epochs=epochs(4), samples=samples)
    assert (figure("cpu_percent_mean", run), figure("gpu_percent_mean", run)) == (50.0, None)
    assert figure("cpu_percent_mean", Run("ok", epochs=epochs(1), samples=(sample(10, cpu_percent=7.0),))) == 7.0
    counts = [(1, 99), (11, 12), (12, 17), (20, 1)]
    run = Run("ok", epochs=epochs(5), samples=tuple(sample(t, threads=n) for t, n in counts))
    assert (figure("threads_min", run), figure("threads_max", run)) == (12, 17)


def test_a_reading_stands_for_the_time_since_the_one_before_it_in_its_epoch():
    """A tick that falls into the next reading makes one of 300 % beside one of 100 %; the second had 200 %."""
    samples = tuple(sample(10 + 0.1 * n, cpu_percent=300.0 if n % 2 else 100.0) for n in range(1, 41))
    run = Run("ok", epochs=epochs(4), samples=samples)
    assert figure("cpu_percent_max", run) == 300.0
    assert figure("cpu_percent_p95", run) == pytest.approx(200.0, rel=rounding(10))
    samples = (sample(11, cpu_percent=100.0), sample(14, cpu_percent=200.0))
    assert figure("cpu_percent_mean", Run("ok", epochs=epochs(4), samples=samples)) == pytest.approx(175.0)
    samples = (sample(2, cpu_percent=100.0), sample(11, cpu_percent=100.0), sample(12, cpu_percent=200.0))
    assert figure("cpu_percent_mean", Run("ok", epochs=epochs(4), samples=samples)) == pytest.approx(150.0)


def test_peak_memory_is_the_larger_of_what_the_run_and_the_samples_say():
    for own, seen, peak in ((10, 7, 10), (10, 12, 12), (None, 12, 12), (10, None, 10)):
        run = Run("ok", peak_rss_bytes=own, epochs=epochs(1), samples=(sample(0, rss_bytes=seen),))
        assert figure("peak_rss_bytes", run) == peak


def test_readings_of_gpus_and_phases_are_of_the_measured_epochs():
    readings = {"gpu_percent": 50.0, "gpu_memory_bytes": 8, "gpu_power_w": 120.0}
    samples = (sample(0, gpu_memory_bytes=9), sample(11, **readings))
    found = of_run(Run("ok", epochs=epochs(5), samples=samples))
    names = ("gpu_percent_mean", "gpu_memory_peak_bytes", "gpu_power_w_mean")
    assert [found[name] for name in names] == pytest.approx([50, 9, 120])
    names = {"import": "import_s", "build": "build_s", "first-step": "first_step_s", "warm-up": "warm_up_s"}
    phases = tuple(Phase(name, UP, UP + n * SECOND, n) for n, name in enumerate(names, 1))
    found = of_run(Run("ok", wall_s=9.0, phases=phases))
    assert [found[name] for name in names.values()] == [1, 2, 3, 4]
    assert (found["pss_peak_bytes"], found["wall_s"]) == (4, 9.0)
    readings = [(5, 99.0, 100.0, 0x40, 9), (11, 60.0, 1000.0, 1, 3), (12, 64.0, 1900.0, 4, 8), (14, 62.0, 1900.0, 0, 7)]
    samples = tuple(
        sample(t, gpu_temperature_c=c, gpu_sm_clock_mhz=mhz, gpu_throttle=mask, gpu_process_memory_bytes=held)
        for t, c, mhz, mask, held in readings
    )
    found = of_run(Run("ok", epochs=epochs(4), samples=samples))
    assert found["gpu_temperature_c_max"] == 64.0
    assert found["gpu_sm_clock_mhz_mean"] == pytest.approx((1000 + 1900 + 2 * 1900) / 4)
    assert found["gpu_throttled_share"] == pytest.approx(0.25)
    assert METRICS["gpu_throttle_reasons"].show(found["gpu_throttle_reasons"]) == "idle, power cap"
    assert found["gpu_process_memory_peak_bytes"] == 9
    first, second, third = epochs(1, 1, 2)
    changed = (
        dataclasses.replace(second, copy_s=0.1, compute_s=0.8),
        dataclasses.replace(third, copy_s=0.5, compute_s=1.0),
    )
    found = of_run(Run("ok", epochs=(first, *changed)))
    assert found["copy_share"] == pytest.approx(0.6 / 3) and found["compute_share"] == pytest.approx(1.8 / 3)
    assert figure("copy_share", Run("ok", epochs=(first,))) is None


def test_runs_of_a_cell_are_taken_together_with_an_interval_over_their_medians():
    runs = [
        Run("ok", wall_s=10.0, epochs=epochs(1, 2), samples=(sample(11, cpu_percent=100.0),)),
        # Of another boot, whose clock ran over the same numbers.
        Run("ok", wall_s=20.0, epochs=epochs(3, 6, start_s=0), samples=(sample(3, cpu_percent=200.0),)),
        Run("crashed", wall_s=99.0, epochs=epochs(50), peak_rss_bytes=2**50),
    ]
    found = metrics.figures([measured(run) for run in runs])
    assert (found["epoch_s"], found["wall_s"], found["peak_rss_bytes"]) == (3.0, 15.0, None)
    assert found["images_per_s"] == pytest.approx(400 / 12)
    assert found["cpu_percent_mean"] == pytest.approx((100 * 1 + 200 * 3) / 4)
    found = metrics.figures([measured(ok(1, 2, 9))])
    assert (found["epoch_s"], found["epoch_s_median"]) == (4.0, 2.0)
    assert (found["epoch_s_ci_low"], found["epoch_s_ci_high"]) == (None, None)
    few, many = ([metrics.figures([measured(ok(*n * [s])) for s in (1, 2, 4)])] for n in (1, 50))
    assert [figures["epoch_s_median"] for figures in few + many] == pytest.approx([2, 2])
    assert few[0]["epoch_s_ci_low"] == pytest.approx(many[0]["epoch_s_ci_low"])
    assert few[0]["epoch_s_ci_low"] < 1 and few[0]["epoch_s_ci_high"] > 4


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        *(("epoch_s", 12.345, "12.3"), ("epoch_s", 16480.2, "16480"), ("epoch_s", 0.001234, "0.00123")),
        *(("epoch_s", 0.0, "0"), ("epoch_s", None, "-"), ("epoch_s", float("nan"), "-")),
        ("data_wait_share", 0.0512, "5.12"),
        ("peak_rss_bytes", 3 * 2**30, "3.00"),
        ("parameters", 57_016_131.0, "57016131"),
        ("threads_max", 11.0, "11"),
    ],
)
def test_figures_are_shown_in_their_unit(name, value, text):
    assert METRICS[name].show(value) == text
    assert not [name for name, one in METRICS.items() if not one.label or one.better not in ("", "lower", "higher")]


def readings(device, *points, source="counter"):
    return tuple(Energy(device, UP + int(t * SECOND), joules, source) for t, joules in points)


def test_energy_of_an_image_is_of_the_measured_epochs_less_what_a_device_takes_when_idle():
    # 100 W before, 300 W during, 50 W after epochs from 10 to 14 s; the reading at 14.5 s came late.
    energy = readings("gpu", (0, 5.0), (10, 1005.0), (12, 1605.0), (14, 2205.0), (14.5, 2230.0))
    energy += readings("host-package-0", (9, 0.0), (15, 60.0)) + readings("host-package-1", (9, 0.0), (15, 120.0))
    run = Run("ok", epochs=epochs(1, 3), energy=energy)
    assert figure("gpu_j_per_image", run) == pytest.approx(1200 / 200)
    assert figure("host_j_per_image", run) == pytest.approx((40 + 80) / 200)
    energy = readings("gpu", (10, 0.0), (14, 1200.0)) + readings("host-package-0", (10, 0.0), (14, 400.0))
    run = Run("ok", epochs=epochs(1, 3), energy=energy, gauges=idle(gpu=60.0, host_package_0=25.0))
    found = of_run(run)
    assert (found["gpu_idle_w"], found["host_idle_w"]) == (60.0, 25.0)
    assert found["gpu_above_idle_j_per_image"] == pytest.approx((1200 - 4 * 60) / 200)
    assert found["host_above_idle_j_per_image"] == pytest.approx((400 - 4 * 25) / 200)
    for gauges in ({}, {"idle_w": 7}, {"idle_w": {"gpu": "60"}}, {"idle_w": {"gpu": -1.0}}):  # not known
        found = of_run(Run("ok", epochs=epochs(4), energy=readings("gpu", (10, 0.0), (14, 1200.0)), gauges=gauges))
        assert found["gpu_idle_w"] is found["gpu_above_idle_j_per_image"] is None and found["gpu_j_per_image"] == 12

    def run(gpu_j, *more):
        return Run("ok", epochs=epochs(4), energy=(*readings("gpu", (10, 0.0), (14, gpu_j)), *more))

    host = readings("host-package-0", (10, 0.0), (14, 100.0))
    found = metrics.figures([measured(one) for one in (run(700.0, *host), run(900.0, *host), run(9.0))])
    names = ("j_per_image", "j_per_image_ci_low", "j_per_image_ci_high")
    mean, low, high = (found[name] for name in names)
    assert mean == pytest.approx((8.0 * 10.0) ** 0.5) and low < 8.0 < 10.0 < high
    assert figure("j_per_image_ci_low", run(700.0)) is None and figure("j_per_image", run(700.0)) == 7


def idle(**watts):
    return {"idle_w": {name.replace("_", "-"): value for name, value in watts.items()}}


@pytest.mark.parametrize(
    ("lengths", "points"),
    [
        *(((4,), [(10.5, 0.0), (20, 100.0)]), ((4,), [(0, 0.0), (13, 100.0)]), ((4,), [])),
        *(((4,), [(0, 7.0), (20, 7.0)]), ((0.2,), [(0, 0.0), (20, 100.0)])),
    ],
    ids=["began-late", "ended-early", "none", "stuck", "too-short"],
)
def test_energy_that_is_not_known_is_none(lengths, points):
    assert figure("gpu_j_per_image", Run("ok", epochs=epochs(*lengths), energy=readings("gpu", *points))) is None


def powers(*points):
    return tuple(sample(t, gpu_power_w=watts, gpu_percent=watts / 10) for t, watts in points)


def test_power_is_the_counters_joules_over_the_same_seconds_by_the_length_of_runs():
    # What the driver averages over a second has not come to the epochs' 300 W.
    energy = readings("gpu", (9, 0.0), (10, 100.0), (14, 1300.0))
    run = Run("ok", epochs=epochs(1, 3), samples=powers((11, 150.0), (12, 250.0), (14, 250.0)), energy=energy)
    assert figure("gpu_power_w_mean", run) == pytest.approx(300.0)
    short = Run("ok", epochs=epochs(1, 1), energy=readings("gpu", (10, 0.0), (12, 200.0)))
    long = Run("ok", epochs=epochs(3, 3), energy=readings("gpu", (10, 0.0), (16, 1800.0)))
    unread = Run("ok", epochs=epochs(3, 3), samples=powers((11.5, 9.0), (16, 9.0)))
    found = metrics.figures([measured(run) for run in (short, long, unread)])
    assert found["gpu_power_w_mean"] == pytest.approx(2000 / 8)


@pytest.mark.parametrize("points", [[], [(10.5, 0.0), (20, 9.0)]], ids=["no-counter", "began-late"])
def test_power_and_percent_without_a_counter_leave_out_the_first_second_of_the_epochs(points):
    samples = powers((9, 100.0), (10.5, 200.0), (10.9, 300.0), (12, 400.0), (13, 400.0), (14, 800.0), (15, 100.0))
    found = of_run(Run("ok", epochs=epochs(0.5, 0.25, 3.25), samples=samples, energy=readings("gpu", *points)))
    assert found["gpu_power_w_mean"] == pytest.approx((400 + 400 + 800) / 3)
    assert found["gpu_percent_mean"] == pytest.approx((40 + 40 + 80) / 3)


def test_each_run_has_a_first_second_of_its_own_and_epochs_of_less_than_two_have_no_mean():
    run = Run("ok", epochs=epochs(3), samples=powers((10.5, 100.0), (13, 400.0)))
    assert metrics.figures([measured(run)] * 2)["gpu_power_w_mean"] == 400.0
    found = of_run(Run("ok", epochs=epochs(0.9, 1), samples=powers((11, 100.0), (11.5, 100.0))))
    assert (found["gpu_power_w_mean"], found["gpu_percent_mean"]) == (None, None)


@pytest.mark.parametrize(("length", "known"), [(9, None), (12, 36.0)])
def test_integrated_power_is_energy_over_ten_seconds_or_more_and_never_the_mean_power(length, known):
    energy = readings("gpu", (0, 0.0), (30, 9000.0), source="power integral")
    found = of_run(Run("ok", epochs=epochs(length), samples=powers((11, 9.0), (18, 320.0)), energy=energy))
    assert found["gpu_j_per_image"] == (known and pytest.approx(known))
    assert found["gpu_power_w_mean"] == pytest.approx(320.0)
