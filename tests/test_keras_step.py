"""The step of Keras' `fit` in releases whose `train_on_batch` averages over batches, and in those after them."""

import pytest

from framework_compare.adapters.keras.trainer import step_of


class Older:
    """A model whose loss is the batch itself, averaged since the last reset as up to Keras 3.14."""

    def __init__(self):
        self.seen = []

    def reset_metrics(self):
        self.seen.clear()

    def train_on_batch(self, images, labels):
        self.seen.append(images)
        return sum(self.seen) / len(self.seen)


class Newer(Older):
    def train_on_batch(self, images, labels):
        self.reset_metrics()
        return super().train_on_batch(images, labels)


@pytest.mark.parametrize("release", [Older, Newer])
def test_the_loss_of_a_step_is_that_of_its_batch(release):
    step = step_of(release())
    assert [step(loss, None) for loss in (4.0, 2.0)] == [4.0, 2.0]


def test_nothing_is_added_to_the_step_of_a_release_that_resets_itself():
    model = Newer()
    assert step_of(model) == model.train_on_batch
