"""Copying and computing of frameworks without a device's clock; the device here is a count of nanoseconds."""

from typing import List

from framework_compare.protocol import Batch, DeviceTimes
from framework_compare.worker.epochs import IsolatedTimes

HANDED_OVER_NS, COPY_NS, STEP_NS, LONG = 5, 100, 1_000, 10**9


class Device:
    """An asynchronous one: a call takes its handing over, and work on a batch of N images N times as long as on one."""

    def __init__(self, hiccup_at: int = -1) -> None:
        self.now = self.idle_at = 0
        self.hiccup_at = hiccup_at
        self.waited: List[int] = []

    def _give(self, work_ns: int) -> None:
        self.now += HANDED_OVER_NS
        self.idle_at = max(self.idle_at, self.now) + work_ns

    def train_step(self, batch: Batch) -> None:
        self._give(STEP_NS * batch.size)

    def to_device_batch(self, images: List[int], labels: List[int]) -> Batch:
        self._give(COPY_NS * len(images))
        return Batch(images, labels, len(images))

    def read_batch(self, batch: Batch):
        return batch.images, batch.labels

    def synchronize(self) -> None:
        self.now = max(self.now, self.idle_at) + (10**9 if len(self.waited) == self.hiccup_at else 0)
        self.waited.append(self.now)


def batch(size: int) -> Batch:
    return Batch([0] * size, [0] * size, size)


def timed(*sizes: int, copies: bool = True, device: Device) -> IsolatedTimes:
    return IsolatedTimes(device, [batch(size) for size in sizes], copies=copies, now=lambda: device.now)


def test_steps_and_copies_are_bounded_by_the_epoch():
    found = timed(8, device=Device()).epoch([8] * 10, LONG)
    assert abs(found.compute_ns - 10 * 8 * STEP_NS) <= 10 * HANDED_OVER_NS
    assert abs(found.copy_ns - 10 * 8 * COPY_NS) <= 10 * HANDED_OVER_NS
    assert timed(8, device=Device()).epoch([8] * 10, 70_000) == DeviceTimes(10 * 8 * COPY_NS, 70_000)


def test_batches_of_other_sizes_count_as_what_they_are():
    alone = timed(8, 3, device=Device())
    whole, last = alone.epoch([8] * 4, LONG), alone.epoch([8, 8, 8, 8, 3], LONG)
    assert last.compute_ns - whole.compute_ns == alone.epoch([3], LONG).compute_ns < whole.compute_ns / 10
    alone = timed(8, 6, 4, device=Device())
    parts = [alone.epoch([size], LONG).compute_ns for size in (4, 6, 6, 8)]
    assert alone.epoch([4, 6, 6, 8], LONG).compute_ns == sum(parts)


def test_nothing_is_copied_where_one_batch_is_held_or_a_copy_takes_no_time():
    found = timed(8, copies=False, device=Device()).epoch([8, 8], LONG)
    assert found.copy_ns == 0 and found.compute_ns > 0
    device = Device()
    device.to_device_batch = lambda images, labels: Batch(images, labels, len(images))
    assert timed(8, device=device).epoch([8] * 3, LONG).copy_ns == 0


def device_of_one_timing() -> Device:
    device = Device()
    timed(8, device=device)
    return device


def test_a_long_step_is_not_repeated_and_one_hiccup_does_not_count():
    device, steps = Device(), []
    device.train_step = lambda batch, _step=device.train_step: steps.append(batch) or _step(batch)
    timed(10**6, copies=False, device=device)
    assert len(steps) == 3
    for hiccup_at in range(len(device_of_one_timing().waited)):
        found = timed(8, device=Device(hiccup_at)).epoch([8], LONG)
        assert isinstance(found, DeviceTimes) and max(found) < 10**6
