"""Native pipelines read no image before its epoch has begun: what is read while nothing is timed would be free."""

import numpy as np
import pytest
from nightly import some_nightly
from PIL import Image

# Frameworks and loader workers: JAX's are threads up to two.
PIPELINES = (("torch", 2), ("tensorflow", 2), ("mxnet", 2), ("paddle", 2), ("jax", 2), ("jax", 3), ("singa", 2))
# Of each epoch the mean of all it handed over; the images are replaced before each.
BODY = """
import time
from PIL import Image

def replace(level):
    for path in images.paths:
        Image.fromarray(np.full((64, 64, 3), level, np.uint8)).save(path)

answer = []
pipeline = trainer.open_pipeline(images)
for number, level in ((1, 40), (2, 120), (3, 200)):
    time.sleep(0.3)
    replace(level)
    answer.append([float(np.mean(trainer.read_batch(batch)[0])) for batch in trainer.epoch(pipeline, number)])
trainer.release()
"""


# By day each kind of loader: processes, a graph of operations, threads.
DAILY = (("torch", 2), ("tensorflow", 2), ("jax", 2))


@pytest.mark.parametrize("pipeline", some_nightly(PIPELINES, [one for one in PIPELINES if one not in DAILY]))
def test_no_epoch_is_read_before_it_has_begun(pipeline, trainer_script, tmp_path):
    framework, workers = pipeline
    for number in range(12):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(path)
    epochs = trainer_script(
        framework, "alexnet", BODY, images=tmp_path / "images", pipeline="native", loader_workers=workers, batch_size=4,
        build=False,
    )  # fmt: skip
    # Of the levels on the disk before and after, each batch is nearest to that of its own epoch.
    levels = np.array([0, 40, 120, 200])[:, None] / 255
    expected = ((levels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).mean(axis=1)
    for number, found in enumerate(epochs, start=1):
        assert len(found) == 3 and all(np.abs(expected - mean).argmin() == number for mean in found), (found, expected)


ANY_EPOCH = """
pipeline = trainer.open_pipeline(images)

def read(number, batches=None):
    found = trainer.epoch(pipeline, number)
    return [round(float(np.sum(trainer.read_batch(batch)[0])), 2) for _, batch in zip(range(batches or 99), found)]

answer = [read(3), read(1, 1), read(3)]
trainer.release()
"""


@pytest.mark.nightly
def test_grains_threads_and_processes_read_the_same_in_any_epoch_that_is_asked_for(trainer_script, images):
    settings = dict(images=images, pipeline="native", batch_size=4, build=False)
    by_threads, by_processes = (
        trainer_script("jax", "alexnet", ANY_EPOCH, loader_workers=workers, **settings) for workers in (2, 3)
    )
    assert by_threads == by_processes
    third, begun, again = by_processes
    assert again == third and len(set(third)) == len(third) and begun[0] not in third


def test_a_loader_of_paddle_hands_over_arrays(trainer_script, some_images):
    """Batches of tensors stopped or crashed its processes in about one of a hundred epochs (3.3.1)."""
    kinds = trainer_script(
        "paddle", "alexnet", """
loader = trainer.open_pipeline(images)
answer = [type(part).__module__ for part in loader.dataset[0]]
trainer.release()
""", images=some_images, pipeline="native", loader_workers=1, build=False,
    )  # fmt: skip
    assert kinds == ["numpy", "numpy"]
