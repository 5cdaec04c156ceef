"""Limits on real frameworks: each in its own environment, on the real images."""

import pytest
from image_files import copies

from framework_compare import compare, largest_batch, registry

pytestmark = pytest.mark.real


def test_torch_alexnet_under_a_limit_it_cannot_meet_is_out_of_memory(real_images, tmp_path):
    settings = {"limit": 32, "image_size": 64, "epochs": 1, "memory_limit": "768MiB", "out": tmp_path / "study"}
    row = compare("torch", "alexnet", dataset=real_images, **settings).frame.iloc[0]
    assert row.status == "out-of-memory" and "memory_limit of 0.75 GiB" in row.reason


@pytest.fixture
def hundred_images(some_images, tmp_path):
    """144 entries of the 48 rendered images: enough for the batches of the sweep."""
    return copies(some_images, tmp_path / "hundred", 3)


SWEEPS = [("small", [50, 100], 32), pytest.param("alexnet", [10, 100], 224, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("model, sizes, image_size", SWEEPS)
def test_a_sweep_of_two_frameworks_ends_at_the_limit(model, sizes, image_size, hundred_images, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.MODELS, "small", registry.Model("small:build"))
    asked = {"dataset": hundred_images, "limit": 100, "batch_sizes": sizes, "image_size": image_size, "threads": 1}
    asked.update(search="doubling", memory_limit="1500MiB", out=tmp_path / "study")
    result = largest_batch(["torch", "mxnet"], model, **asked)
    assert list(result.frame.framework) == ["torch", "mxnet"]
    assert set(result.frame.next_failed_status.dropna()) <= {"out-of-memory"}
    assert set(result.probes.status) <= {"ok", "out-of-memory"}
