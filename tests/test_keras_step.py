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
    model = release()
    step = step_of(model)
    assert [step(loss, None) for loss in (4.0, 2.0)] == [4.0, 2.0]
    assert (step == model.train_on_batch) == (release is Newer), "one that resets itself is left as it is"
