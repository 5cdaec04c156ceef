"""Arithmetic and bytes of a cell beside the machine's peaks: counted from the graph, measured once, and shown."""

import json
import runpy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import run
from processes import write_script
from stored_study import recorded

from framework_compare import Comparison, adapters
from framework_compare.cli import console
from framework_compare.environments import managed, peaks
from framework_compare.environments.peaks import Peak, Request
from framework_compare.errors import UsageError
from framework_compare.graph.optimizer import OPTIMIZERS
from framework_compare.models import vgg16
from framework_compare.parity.network import oracle
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run
from framework_compare.results import roofline
from framework_compare.results.roofline import STATES
from framework_compare.samplers import host
from framework_compare.samplers.disturbance import TICK_NS, Cores

SECOND = 1_000_000_000


def test_work_of_a_layer_is_what_its_definition_says_and_parameters_are_read_once_per_batch():
    graph = vgg16.build(num_classes=3, image_size=32)
    forward = sum(one.flop for one in roofline.work(graph, 4, "inference"))
    assert forward == 2 * graph.macs()
    assert sum(one.flop for one in roofline.work(graph, 4, "train")) == 2 * (graph.macs() + graph.backward_macs())
    first = roofline.work(graph, 4, "inference")[0]
    weights = 3 * 64 * 9 + 64
    assert first.bytes == pytest.approx(4 * (3 * 32 * 32 + 64 * 32 * 32 + weights / 4))
    graph = vgg16.build(num_classes=3, image_size=32)
    one, many = (sum(part.bytes for part in roofline.work(graph, size, "train")) for size in (1, 1000))
    assert one > 10 * many
    graph = vgg16.build(num_classes=3, image_size=32)
    wide, narrow = (roofline.work(graph, 4, "train", size) for size in (4, 2))
    assert all(two.bytes == one.bytes / 2 and two.flop == one.flop for one, two in zip(wide[:-1], narrow[:-1]))
    assert wide[-1] == narrow[-1], "updates stay in float32"


@pytest.fixture
def study(tmp_path):
    """Two cells of VGG-16, one in bf16, of 10 images/s, on this machine."""
    return studied(tmp_path / "s", [TrainConfig(precision=name) for name in ("fp32", "bf16")])


def studied(folder, configs):
    cells = [Cell("torch", "vgg16", "d", "cpu", config) for config in configs]
    epochs = (Epoch(1, SECOND, 2 * SECOND, 0.1, 10, 1, 1.0, 1.0, 1.0, 1.0),)
    settings = {"datasets": {"d": {"images": 10, "skipped": 0}}}
    return recorded(folder, cells, lambda *_: Run("ok", epochs=epochs), settings=settings, machine=host.describe())


def keep(flop_per_s, bytes_per_s, others=0.0):
    """Have these be the peaks of this machine."""
    path, _ = peaks._source(Request(host.describe(), "cpu", "fp32", 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(Peak(flop_per_s, bytes_per_s, others, "2026-11-25 08:00")._asdict()))
    return path


def test_a_cell_stands_beside_the_peaks_of_its_machine(study, own_cache, monkeypatch):
    keep(1e13, 1e30)
    graph = vgg16.build(num_classes=3, image_size=224)
    monkeypatch.setattr(managed, "find", lambda *_, **__: None)  # an own cache has no environment of PyTorch
    first, second = study.roofline.itertuples()
    assert first.flop_per_s == pytest.approx(10 * 2 * (graph.macs() + graph.backward_macs()))
    assert first.roofline_share == pytest.approx(first.flop_per_s / 1e13), "as if memory were free"
    assert second.flop_per_s == first.flop_per_s and second.peak_flop_per_s != second.peak_flop_per_s
    tables = str(study.table("roofline"))
    assert "10000" in tables and "Peak unknown: run `framework-compare peaks STUDY`" in tables


def test_bytes_bound_what_arithmetic_does_not_and_more_than_the_roofline_is_explained(study, own_cache):
    keep(1e30, 1e12)
    first = next(study.roofline.itertuples())
    assert first.roofline_share == pytest.approx(first.bytes_per_s / 1e12)
    keep(1e9, 1e9)
    assert "Above 100 %" in str(Comparison.load(study.folder).table("roofline"))


@pytest.mark.parametrize("optimizer", STATES)
def test_an_update_moves_the_states_of_its_optimizer(optimizer):
    """As many as the float64 oracle keeps of a parameter."""
    kept = {}
    options = {**OPTIMIZERS[optimizer], "momentum": 0.9, "rate": 0.1}
    oracle.OPTIMIZERS[optimizer](np.zeros(7), np.ones(7), kept, 1, options)
    assert roofline.states(optimizer, 0.9) == sum(np.shape(one) == (7,) for one in kept.values())
    graph = vgg16.build(num_classes=3, image_size=32)
    states = roofline.states(optimizer, 0.9)
    *_, update = roofline.work(graph, 4, "train", optimizer_states=states)
    assert update.bytes == 4 * (3 + 2 * states) * graph.parameter_count() / 4


def test_cells_differ_by_their_optimizer_alone(tmp_path, own_cache):
    assert roofline.states("sgd", 0.0) == 0
    configs = [TrainConfig(optimizer=name, momentum=0.0) for name in ("sgd", "adam")]
    sgd, adam = studied(tmp_path / "s", configs).roofline.itertuples()
    parameters = vgg16.build(num_classes=3, image_size=224).parameter_count()
    assert adam.bytes_per_image - sgd.bytes_per_image == pytest.approx(4 * 4 * parameters / 10)


def test_reading_never_measures(study, own_cache, monkeypatch, one_width):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was started"))
    monkeypatch.setattr(managed, "find", lambda *_, **__: None)
    assert len(study.roofline) == 2 and study.table("roofline") and study.kinds and study.to_json()
    study.report(study.folder / "report.html")
    study.export(study.folder / "exported")
    assert not (own_cache / "peaks").exists()


def test_a_busy_machine_is_said_below_the_table(study, own_cache):
    keep(1e12, 1e12, others=0.05)
    assert "may be too low" not in study.table("roofline", width=300)
    keep(1e12, 1e12, others=0.45)
    again = Comparison.load(study.folder)
    words = "Peaks may be too low: other programs took 45 % of a core during their measurement."
    assert words in again.table("roofline", width=300)
    assert list(again.roofline["peak_disturbed_share"].dropna()) == [0.45]


def test_the_command_measures_and_says_what_it_cannot(study, own_cache, monkeypatch):
    monkeypatch.setattr(managed, "find", lambda *_, **__: None)
    planned = run("peaks", study.folder, "--dry-run")
    about = "2 peaks, about 20 s (8 to 240 s). Nothing was started.\ncpu, fp32, 1 thread\ncpu, bf16, 1 thread\n"
    assert planned.stdout == about
    assert not (own_cache / "peaks").exists(), "a dry run measures nothing"
    done = run("peaks", study.folder, check=1)
    assert "2 peaks, about 20 s (8 s to 4 min)\n" in done.stderr
    assert "need PyTorch, which is not installed" in " ".join(done.stdout.split())
    first, second = Comparison.load(study.folder).roofline.itertuples()
    assert first.peak_flop_per_s > 0 and first.peak_bytes_per_s > 0 and first.peak_disturbed_share >= 0
    assert second.peak_flop_per_s != second.peak_flop_per_s


def test_many_peaks_are_asked_for_and_none_is_measured_where_nobody_wants_them(tmp_path, own_cache, monkeypatch):
    configs = [TrainConfig(threads=threads) for threads in range(1, 62)]
    folder, asked = studied(tmp_path / "s", configs).folder, []

    def refuse(seconds, text, say):
        asked.append(seconds)
        raise console.typer.Abort

    monkeypatch.setattr(console, "ask_about", refuse)
    monkeypatch.setattr(peaks, "measure", lambda request: pytest.fail("a peak was measured"))
    run("peaks", folder, check=130)
    assert asked == [610] and asked[0] > console.ASKED_S


@pytest.mark.parametrize(("speed", "rows"), [(1e8, 256), (1e14, None)])
@pytest.mark.parametrize("program", ["numpy", "torch"])
def test_a_processor_without_fast_products_is_measured_by_smaller_ones(program, speed, rows, monkeypatch):
    """2,048 rows in bf16 take a minute for a processor without such products, and the measurement is ended before.

    A clock of its own, on which products take what they would at a speed, and all else nothing.
    """
    now, seen = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])

    def matmul(a, b, out):
        seen.append(len(a))
        now[0] += 2 * len(a) ** 3 / speed

    def copy():
        now[0] += 1e-3

    of = runpy.run_path(str(Path(adapters.__path__[0]) / "torch" / "peaks.py"))
    monkeypatch.setitem(of["measure"].__globals__, "time", clock)
    if program == "numpy":
        monkeypatch.setattr(np, "matmul", matmul)
        library = of["of_numpy"]("cpu", "fp32", 1)
    else:
        generator = SimpleNamespace(manual_seed=lambda seed: None)
        drawn = lambda *shape, **_: SimpleNamespace(to=lambda kind: np.zeros(shape, np.float32))  # noqa: E731
        kinds = dict(bfloat16=None, uint8=None, zeros=lambda *_, **__: None, set_num_threads=lambda threads: None)
        made = dict(Generator=lambda device: generator, randn=drawn, empty_like=np.empty_like)
        torch = SimpleNamespace(matmul=matmul, **kinds, **made)
        monkeypatch.setitem(sys.modules, "torch", torch)
        library = of["of_torch"]("cpu", "bf16", 1)
    found = of["measure"](library._replace(copy=copy), "cpu")
    assert seen[-1] == (rows or of["MOST_ROWS"]["cpu"]) and found["flop_per_s"] == pytest.approx(speed)
    assert now[0] < peaks.TIMEOUT_S


def test_a_peak_is_marked_with_what_others_took_meanwhile(own_cache, monkeypatch):
    counted = iter([(0, 0), (1_000_000_000, 450_000_000)])
    monkeypatch.setattr(peaks, "_others", lambda: next(counted))
    peak = peaks._measured(own_cache / "peak.json", ("echo", '{"flop_per_s": 7, "bytes_per_s": 8}'), 1)
    assert (peak.flop_per_s, peak.bytes_per_s, peak.others) == (7, 8, 0.45)
    assert peaks._read(own_cache / "peak.json") == peak


def test_others_are_neither_this_process_nor_the_measurement(monkeypatch):
    """Of two cores for a second: 0.5 s idle, 0.8 s the measurement's, 0.1 s ours, 0.2 s of the rest the hypervisor's."""
    idle, stolen = (int(share * 1e9 / TICK_NS) for share in (0.5, 0.2))
    counter = object.__new__(peaks.CoreCounter)
    counter.count, counter.close = 2, lambda: None
    monkeypatch.setattr(peaks, "CoreCounter", lambda: counter)
    seen = []
    for t_ns, cores, child_s, own_ns in (
        (0, Cores(0, 0, 0, 0), 0.0, 0),
        (1_000_000_000, Cores(0, 0, idle, stolen), 0.8, 100_000_000),
    ):
        counter.read = lambda cores=cores: cores
        used = SimpleNamespace(ru_utime=child_s, ru_stime=0.0)
        monkeypatch.setattr(peaks.resource, "getrusage", lambda _, used=used: used)
        monkeypatch.setattr(time, "monotonic_ns", lambda t_ns=t_ns: t_ns)
        monkeypatch.setattr(time, "process_time_ns", lambda own_ns=own_ns: own_ns)
        seen.append(peaks._others())
    monkeypatch.undo()
    assert peaks._share(*seen) == pytest.approx(2 - 0.5 - 0.8 - 0.1)


def test_other_precisions_are_measured_by_pytorch_s_environment(own_cache, monkeypatch, tmp_path):
    program = write_script(tmp_path / "python", """echo '{"flop_per_s": 7, "bytes_per_s": 8}'""")
    there = managed.Environment("torch", program, "2.0", True, "3.12", {})
    monkeypatch.setattr(managed, "find", lambda *_, **__: there)
    bf16 = Request(host.describe(), "cpu", "bf16", 1)
    assert peaks.known(bf16) is None and peaks.measure(bf16)[:2] == (7, 8)
    program.unlink()
    assert peaks.known(bf16)[:2] == (7, 8), "kept"
    assert peaks.measure(bf16._replace(precision="fp16")) is None, "what cannot be measured has no peak"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "cpu:0,1"}, "peaks of cpu:0,1 in fp32 are not measured; allowed: cpu or cuda"),
        ({"precision": "int8"}, "peaks of cpu in int8 are not measured"),
        (
            {"machine": {"cpu": "another", "available_cores": 3}},
            "the study ran on another, 3 cores, which is not this machine",
        ),
    ],
)
def test_what_has_no_peak_here_says_why(own_cache, changes, reason):
    request = Request(host.describe(), "cpu", "fp32", 1)._replace(**changes)
    assert peaks.known(request) is None
    with pytest.raises(UsageError, match=reason):
        peaks.measure(request)


def test_a_damaged_peak_and_one_without_its_time_are_not_known(own_cache):
    path, asked = keep(1, 1), Request(host.describe(), "cpu", "fp32", 1)
    assert peaks.known(asked) is not None
    none = '{"flop_per_s": 0, "bytes_per_s": 1, "measured_at": "now"}'
    for text in ("", "{", "[]", none, '{"flop_per_s": "x"}', '{"flop_per_s": 1e9, "bytes_per_s": 1e9}'):
        path.write_text(text)
        assert peaks.known(asked) is None, text
