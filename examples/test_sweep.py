"""A sweep in a suite of your own: one test per framework and model, each cell in a process of its own.

pytest examples/test_sweep.py --fc-frameworks torch
"""

from framework_compare import sweep


@sweep(["torch", "tensorflow", "mxnet", "paddle"], ["alexnet", "mobilenet_v2"])
def test_trains(cell, run_cell):
    row = run_cell(cell, dataset="fire-smoke-tiny", limit=12, batch_size=4, epochs=1, image_size=64)
    assert row.status == "ok", row.reason
    assert row.peak_rss_bytes < 8 * 2**30
