"""Limits on real frameworks: each in its own environment, on the real images."""

import pytest
from image_files import copies

from framework_compare import compare, largest_batch

pytestmark = pytest.mark.real


def test_torch_alexnet_under_a_limit_it_cannot_meet_is_out_of_memory(real_images, tmp_path):
    settings = {"limit": 32, "image_size": 64, "epochs": 1, "memory_limit": "768MiB", "out": tmp_path / "study"}
    row = compare("torch", "alexnet", dataset=real_images, **settings).frame.iloc[0]
    assert row.status == "out-of-memory" and "memory_limit of 0.75 GiB" in row.reason


@pytest.mark.nightly  # by day test_stability.py sweeps a test framework
def test_a_sweep_of_two_frameworks_ends_at_the_limit(some_images, tmp_path):
    images = copies(some_images, tmp_path / "hundred", 3)  # 144 entries of the 48 rendered ones
    asked = {"dataset": images, "limit": 100, "batch_sizes": [10, 100], "image_size": 224, "threads": 1}
    asked.update(search="doubling", memory_limit="1500MiB", out=tmp_path / "study")
    result = largest_batch(["torch", "mxnet"], "alexnet", **asked)
    assert list(result.frame.framework) == ["torch", "mxnet"]
    assert set(result.frame.next_failed_status.dropna()) <= {"out-of-memory"}
    assert set(result.probes.status) <= {"ok", "out-of-memory"}
