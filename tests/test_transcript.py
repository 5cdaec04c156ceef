"""What a worker tells of an epoch's device times, checked like all else it tells."""

from __future__ import annotations

import pytest

from framework_compare.errors import ProtocolError
from framework_compare.transcript import Transcript

EPOCH = {
    "event": "epoch", "t_ns": 9, "number": 1, "start_ns": 0, "end_ns": 8, "data_wait_ns": 1, "images": 2, "steps": 1,
    "loss": 1.0, "step_ns": [1, 2, 3],
}  # fmt: skip


def told(**fields):
    transcript = Transcript(0, epochs=1)
    transcript.add({**EPOCH, **fields})
    return transcript.epochs[0]


def test_device_times_of_an_epoch_are_kept_in_seconds():
    epoch = told(copy_ns=250_000_000, compute_ns=1_500_000_000)
    assert (epoch.copy_s, epoch.compute_s) == (0.25, 1.5)


@pytest.mark.parametrize("fields", [{}, {"copy_ns": None, "compute_ns": None}], ids=["absent", "null"])
def test_an_epoch_without_device_times_has_none(fields):
    epoch = told(**fields)
    assert epoch.copy_s is epoch.compute_s is None


@pytest.mark.parametrize("name", ["copy_ns", "compute_ns"])
@pytest.mark.parametrize("value", [-1, 1.5, "7", True, 1 << 63, [1]])
def test_device_times_that_are_no_counts_are_malformed(name, value):
    with pytest.raises(ProtocolError, match="malformed epoch event"):
        told(**{name: value})
