"""Arithmetic and bytes of a cell beside the machine's peaks: counted from the graph, measured once, and shown."""

from __future__ import annotations

import json

import pytest

from framework_compare import Comparison
from framework_compare.environments import managed
from framework_compare.environments import peaks as any_peaks
from framework_compare.models import vgg16
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run
from framework_compare.results import roofline
from framework_compare.samplers import host, peaks
from framework_compare.samplers.peaks import Peak
from framework_compare.store.study_file import Store

SECOND = 1_000_000_000


def test_work_of_a_layer_is_what_its_definition_says():
    graph = vgg16.build(num_classes=3, image_size=32)
    forward = sum(one.flop for one in roofline.work(graph, 4, "inference"))
    assert forward == 2 * graph.macs()
    assert sum(one.flop for one in roofline.work(graph, 4, "train")) == 2 * (graph.macs() + graph.backward_macs())
    first = roofline.work(graph, 4, "inference")[0]
    weights = 3 * 64 * 9 + 64
    assert first.bytes == pytest.approx(4 * (3 * 32 * 32 + 64 * 32 * 32 + weights / 4))


def test_parameters_are_read_once_per_batch():
    graph = vgg16.build(num_classes=3, image_size=32)
    one, many = (sum(part.bytes for part in roofline.work(graph, size, "train")) for size in (1, 1000))
    assert one > 10 * many


@pytest.fixture
def study(tmp_path):
    """Two cells of VGG-16, one in bf16, of 10 images/s, on this machine."""
    cells = [Cell("torch", "vgg16", "d", "cpu", TrainConfig(precision=name)) for name in ("fp32", "bf16")]
    epochs = (Epoch(1, SECOND, 2 * SECOND, 0.1, 10, 1, 1.0, 1.0, 1.0, 1.0),)
    settings = {"datasets": {"d": {"pictures": 10, "skipped": 0}}}
    with Store.create(tmp_path / "s", settings=settings, machine=host.describe(), cells=cells, repeats=1) as store:
        for run_id, *_ in store.plan():
            store.record(run_id, Run("ok", epochs=epochs))
    return Comparison.load(tmp_path / "s")


def keep(cache, flop_per_s, bytes_per_s):
    """Have these be the peaks of this machine."""
    import numpy as np

    name = f"{peaks.file_name(str(host.cpu_model()))}-1-numpy-{np.__version__}.json"
    (cache / "peaks").mkdir(parents=True)
    (cache / "peaks" / name).write_text(json.dumps({"flop_per_s": flop_per_s, "bytes_per_s": bytes_per_s}))


def test_a_cell_stands_beside_the_peaks_of_its_machine(study, own_cache, monkeypatch):
    keep(own_cache, 1e13, 1e30)
    graph = vgg16.build(num_classes=3, image_size=224)
    monkeypatch.setattr(managed, "find", lambda *_, **__: None)  # an own cache has no environment of PyTorch
    first, second = study.roofline.itertuples()
    assert first.flop_per_s == pytest.approx(10 * 2 * (graph.macs() + graph.backward_macs()))
    assert first.roofline_share == pytest.approx(first.flop_per_s / 1e13), "as if memory were free"
    assert second.flop_per_s == first.flop_per_s and second.peak_flop_per_s != second.peak_flop_per_s
    tables = str(study.table("roofline"))
    assert "10000" in tables and "No peak: it is measured on the machine that ran the study" in tables


def test_bytes_bound_what_arithmetic_does_not(study, own_cache):
    keep(own_cache, 1e30, 1e12)
    first = next(study.roofline.itertuples())
    assert first.roofline_share == pytest.approx(first.bytes_per_s / 1e12)


def test_more_than_the_roofline_is_explained(study, own_cache):
    keep(own_cache, 1e9, 1e9)
    assert "More than 100 %" in str(study.table("roofline"))


def test_layers_of_narrow_numbers_move_half_the_bytes():
    graph = vgg16.build(num_classes=3, image_size=32)
    wide, narrow = (roofline.work(graph, 4, "train", size) for size in (4, 2))
    assert all(two.bytes == one.bytes / 2 and two.flop == one.flop for one, two in zip(wide[:-1], narrow[:-1]))
    assert wide[-1] == narrow[-1], "updates stay in float32"


def test_other_precisions_are_asked_of_pytorch_s_environment(own_cache, monkeypatch, tmp_path):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho \'{"flop_per_s": 7, "bytes_per_s": 8}\'\n')
    program.chmod(0o755)
    there = managed.Environment("torch", program, "2.0", True, "3.12", {})
    monkeypatch.setattr(managed, "find", lambda *_, **__: there)
    assert any_peaks.peak_of(host.describe(), "cpu", "bf16", 1) == Peak(7, 8)
    program.unlink()
    assert any_peaks.peak_of(host.describe(), "cpu", "bf16", 1) == Peak(7, 8), "kept"
    assert any_peaks.peak_of(host.describe(), "cpu", "fp16", 1) is None, "what cannot be measured has no peak"
    for device, precision in (("cpu:0,1", "fp32"), ("cuda:0,1", "bf16"), ("cpu", "int8")):
        assert any_peaks.peak_of(host.describe(), device, precision, 1) is None
    assert any_peaks.peak_of({**host.describe(), "cpu": "another"}, "cpu", "bf16", 1) is None


def test_no_peak_is_that_of_another_machine(own_cache):
    assert peaks.peak_of({**host.describe(), "cpu": "another"}, "cpu", "fp32", 1) is None
    assert peaks.peak_of(host.describe(), "cuda", "fp32", 1) is None


def test_a_peak_is_measured_once_in_a_process_of_its_own(own_cache, monkeypatch):
    first = peaks.peak_of(host.describe(), "cpu", "fp32", 1)
    assert first is not None and first.flop_per_s > 1e9 and first.bytes_per_s > 1e8
    monkeypatch.setattr(peaks, "_measure", lambda *_: pytest.fail("measured again"))
    assert peaks.peak_of(host.describe(), "cpu", "fp32", 1) == first


@pytest.mark.parametrize("text", ["", "{", "[]", '{"flop_per_s": 0, "bytes_per_s": 1}', '{"flop_per_s": "x"}'])
def test_a_damaged_peak_is_measured_again(text, own_cache, monkeypatch):
    keep(own_cache, 1, 1)
    (path,) = (own_cache / "peaks").iterdir()
    path.write_text(text)
    monkeypatch.setattr(peaks, "_measure", lambda *_: Peak(3.0, 4.0))
    assert peaks.peak_of(host.describe(), "cpu", "fp32", 1) == Peak(3.0, 4.0)
