"""The mean loss of an epoch, read late."""

import pytest

from framework_compare.worker.losses import LossSum


class Device:
    """Says how many losses were read at a time, and how many steps had been taken by then."""

    def __init__(self):
        self.steps, self.reads = 0, []

    def step(self):
        self.steps += 1
        return self.steps - 1

    def read_losses(self, losses):
        self.reads.append((self.steps, list(losses)))
        return [float(loss) for loss in losses]


def epoch(lag, steps):
    device = Device()
    losses = LossSum(device, lag)
    for number in range(steps):
        losses.add(device.step(), 1 if number == steps - 1 else 4)
    return device, losses


def test_losses_are_read_late_and_the_rest_together_at_the_end():
    device, losses = epoch(lag=3, steps=6)
    assert device.reads == [(4, [0]), (5, [1]), (6, [2])]
    losses.mean()
    assert device.reads[3:] == [(6, [3, 4, 5])]


@pytest.mark.parametrize("lag", [1, 8])
@pytest.mark.parametrize("steps", [1, 7, 8, 9, 40])
def test_the_mean_is_that_of_all_images(lag, steps):
    _, losses = epoch(lag, steps)
    sizes = [4] * (steps - 1) + [1]
    expected = sum(number * size for number, size in enumerate(sizes)) / sum(sizes)
    assert losses.mean() == pytest.approx(expected) and losses.samples == sum(sizes)
