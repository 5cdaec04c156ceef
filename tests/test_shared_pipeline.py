"""datasets/shared.py: the batches every framework trains on."""

import dataclasses
import gc
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from image_files import image_bytes
from PIL import Image
from processes import wait_for

from framework_compare.adapters.tensorflow.pipeline import one_pass
from framework_compare.batches import preprocess
from framework_compare.batches.images import SharedPipeline, memory_batch
from framework_compare.batches.order import epoch_order
from framework_compare.batches.preprocess import Reading
from framework_compare.datasets.folder import read_folder
from framework_compare.errors import DataError, UsageError
from framework_compare.protocol import ImageFiles, TrainConfig

REAL = Path(__file__).parents[2] / "shared" / "data" / "fire_smoke_791"
SIZE = 32


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> ImageFiles:
    """23 images of many kinds; the label tells the image."""
    folder = tmp_path_factory.mktemp("images")
    state = np.random.RandomState(0)
    kinds = [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "P"), ("PNG", "RGBA")]
    paths, formats = [], []
    for number in range(23):
        form, mode = kinds[number % len(kinds)]
        small = Image.fromarray(state.randint(0, 256, (6, 8, 3)).astype(np.uint8))
        image = small.resize((60 + 17 * number, 50 + 11 * number), Image.Resampling.BICUBIC).convert(mode)
        image.save(folder / f"{number}", form)
        paths.append(str(folder / f"{number}"))
        formats.append(form)
    return ImageFiles(tuple("abc"), tuple(paths), tuple(range(23)), tuple(formats))


def pipeline(files: ImageFiles, **settings: object) -> SharedPipeline:
    return SharedPipeline(files, **{"batch_size": 4, "image_size": SIZE, "seed": 1, **settings})


def epoch(files: ImageFiles, number: int = 0, **settings: object) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels of one epoch."""
    with pipeline(files, **settings) as opened:
        images, labels = zip(*opened.epoch(number))
    return np.concatenate(images), np.concatenate(labels)


def test_each_image_once_an_epoch_in_batches_of_which_the_last_is_short(files: ImageFiles) -> None:
    with pipeline(files, workers=2) as opened:
        batches = list(opened.epoch(0))
    assert [len(labels) for _, labels in batches] == [4, 4, 4, 4, 4, 3]
    for images, labels in batches:
        assert images.shape == (len(labels), 3, SIZE, SIZE) and images.flags.c_contiguous
        assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    orders = [epoch(files, number)[1].tolist() for number in range(3)]
    assert all(sorted(order) == list(range(23)) for order in orders)
    assert len(set(map(tuple, orders))) == 3
    # Results of studies years apart are compared: these numbers must never change.
    assert epoch_order(0, 0, 8).tolist() == [2, 6, 0, 4, 1, 3, 5, 7]


@pytest.mark.parametrize(
    "settings",
    [
        *({"workers": 1}, {"workers": 7}, {"workers": 2, "processes": True}),
        *({"workers": 2, "batch_size": size} for size in (1, 5, 23, 100)),
    ],
    ids=str,
)
def test_workers_and_batch_size_change_nothing(files: ImageFiles, settings: dict) -> None:
    expected, got = epoch(files, 2, workers=0), epoch(files, 2, **settings)
    assert np.array_equal(expected[0], got[0]) and np.array_equal(expected[1], got[1])


def test_an_image_is_the_documented_function_of_seed_epoch_and_index_in_both_layouts(files: ImageFiles) -> None:
    nchw, nhwc = epoch(files, layout="NCHW"), epoch(files, layout="NHWC")
    assert nhwc[0].shape == (23, SIZE, SIZE, 3)
    assert nhwc[0].tobytes() == np.ascontiguousarray(nchw[0].transpose(0, 2, 3, 1)).tobytes()
    images, labels = epoch(files, 3, seed=9, flip="vertical", workers=2)
    assert labels.tolist() == epoch_order(9, 3, 23).tolist()
    for image, index in zip(images, labels.tolist()):
        data = Path(files.paths[index]).read_bytes()
        size = preprocess.encoded_size(data)
        crop = preprocess.draw_crop(preprocess.image_state(9, 3, index), *size, flip="vertical")
        expected = np.empty((3, SIZE, SIZE), np.float32)
        preprocess.normalise_into(expected, preprocess.decode_crop_resize(data, crop, SIZE), "NCHW")
        assert np.array_equal(image, expected)


def test_every_batch_has_its_own_memory_and_that_of_memory_is_the_first_of_epoch_zero(files: ImageFiles) -> None:
    with pipeline(files, workers=2) as opened:
        batches = [images for images, _ in opened.epoch(0)]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(batches) for b in batches[:i])
    config = TrainConfig(batch_size=5, image_size=SIZE, seed=1)
    images, labels = memory_batch(files, config, layout="NHWC")
    expected = epoch(files, layout="NHWC")
    assert np.array_equal(images, expected[0][:5]) and np.array_equal(labels, expected[1][:5])


def test_no_thread_is_left_after_close_and_an_epoch_left_early_can_be_followed_by_another(files: ImageFiles) -> None:
    before = threading.active_count()
    opened = pipeline(files, workers=5)
    next(opened.epoch(0))
    assert threading.active_count() > before
    opened.close()
    opened.close()
    assert threading.active_count() == before
    expected = epoch(files, 1)[0]
    with pipeline(files, workers=2) as opened:
        next(opened.epoch(0))
        assert np.array_equal(np.concatenate([images for images, _ in opened.epoch(1)]), expected)


def test_a_closed_pipeline_says_so(files: ImageFiles) -> None:
    for workers in (0, 2):
        opened = pipeline(files, workers=workers)
        batches = opened.epoch(0)
        next(batches)
        opened.close()
        for left in (batches, opened.epoch(1)):
            with pytest.raises(UsageError, match="closed"):
                next(left)


def test_prefetch_is_bounded(files: ImageFiles, monkeypatch) -> None:
    read: list[dict] = []
    real = Reading.fill
    monkeypatch.setattr(Reading, "fill", lambda self, image, **task: read.append(task) or real(self, image, **task))
    many = ImageFiles(("a",), files.paths * 10, files.labels * 10, files.formats * 10)
    with pipeline(many, workers=2) as opened:
        batches = opened.epoch(0)
        next(batches)
        threading.Event().wait(0.2)
        assert len(read) <= 12  # the batch in hand and two more
        batches.close()


CUT = image_bytes(size=(200, 200))[:-3000]


@pytest.mark.parametrize("content", [b"", b"text", CUT, None], ids=["empty", "text", "cut", "missing"])
def test_an_image_gone_bad_is_named(files: ImageFiles, tmp_path: Path, content: bytes | None) -> None:
    bad = tmp_path / "gone\nbad.jpg"
    if content is not None:
        bad.write_bytes(content)
    mixed = dataclasses.replace(files, paths=(*files.paths[:-1], str(bad)))
    for how in ({"workers": 0}, {"workers": 2}, {"workers": 2, "processes": True}):
        with pytest.raises(DataError, match=r"gone\\nbad\.jpg' cannot be read"):
            epoch(mixed, **how)


def decoders() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if "decoders.serve" in " ".join(process.cmdline())]


def test_no_process_is_left_after_close_and_one_that_was_killed_is_told(files: ImageFiles) -> None:
    opened = pipeline(files, workers=3, processes=True)
    next(opened.epoch(0))
    assert len(decoders()) == 3
    opened.close()
    assert not decoders()
    with pipeline(files, workers=1, processes=True) as opened:
        decoders()[0].kill()
        with pytest.raises(DataError, match="a process that reads images ended with code -9"):
            list(opened.epoch(0))


def test_settings_are_checked(files: ImageFiles) -> None:
    before = threading.active_count()
    sizes = (("batch_size", 0), ("batch_size", 2.0), ("image_size", 0), ("workers", -1))
    for setting, value in (*sizes, ("flip", "x"), ("layout", "CHWN")):
        with pytest.raises(UsageError, match=f"{setting}.*{value}"):
            pipeline(files, **{setting: value})
    gc.collect()
    assert threading.active_count() == before


@pytest.mark.skipif(
    not REAL.exists(), reason=f"the 791 real images are not at {REAL}; CONTRIBUTING.md says where they are published"
)
def test_the_real_images(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path))
    real = read_folder(REAL).files
    images, labels = epoch(real, image_size=64, batch_size=100, workers=2)
    assert np.bincount(labels).tolist() == [264, 264, 263]
    assert np.abs(images.mean(axis=(0, 2, 3))).max() < 1.0 and 0.5 < images.std() < 2.0


class Dataset:
    """An iterable whose iterators note which thread deletes them."""

    def __init__(self):
        self.deleted_by = []

    def __iter__(self):
        return Iterator(self.deleted_by)


class Iterator:
    def __init__(self, deleted_by):
        self._deleted_by, self._left = deleted_by, [1, 2]

    def __iter__(self):
        return self

    def __next__(self):
        if not self._left:
            raise StopIteration
        return self._left.pop(0)

    def __del__(self):
        self._deleted_by.append(threading.current_thread())


def test_training_does_not_wait_while_the_iterator_of_a_pass_is_deleted():
    dataset = Dataset()
    assert list(one_pass(dataset)) == [1, 2]
    sample = one_pass(dataset)
    assert next(sample) == 1
    sample.close()
    assert wait_for(lambda: len(dataset.deleted_by) == 2)
    assert threading.main_thread() not in dataset.deleted_by
