"""The file of a data set of arrays, and the batches that a worker makes of it."""

import dataclasses
import hashlib
import json
import zipfile

import numpy as np
import pytest
from bounds import rounding

from framework_compare import registry
from framework_compare.batches.arrays import ArrayPipeline, Pixels, memory_batch, read_split
from framework_compare.batches.order import epoch_order
from framework_compare.datasets.arrays import ArrayData, Baseline, Split, load
from framework_compare.errors import DataError, UsageError
from framework_compare.graph import Field, Task

TASK = Task(
    (Field("tokens", (5,), "int32", 50), Field("series", (4, 1))),
    Field("label", (), "int64"),
    3,
    "cross_entropy",
    ("accuracy",),
)


def split(count: int, seed: int) -> Split:
    generator = np.random.default_rng(seed)
    inputs = {
        "tokens": generator.integers(0, 50, (count, 5), np.int32),
        "series": generator.normal(size=(count, 4, 1)).astype(np.float32),
    }
    return Split(inputs, generator.integers(0, 3, count), {"words": np.arange(count)})


def small(**changes) -> ArrayData:
    fields = {
        "name": "small",
        "task": TASK,
        "train": split(23, 0),
        "validation": split(7, 1),
        "facts": {"generated": True, "scaling": {"minimum": 1.5, "maximum": 2}},
        "baseline": Baseline("none", np.zeros((7, 3), np.float32)),
    }
    return ArrayData(**{**fields, **changes})


def images(layout_size: int = 4) -> ArrayData:
    generator = np.random.default_rng(2)
    task = Task((Field("image", (3, layout_size, layout_size + 1)),), Field("label", (), "int64"), 2, "cross_entropy")
    shape = (9, 3, layout_size, layout_size + 1)
    part = Split({"image": generator.integers(0, 256, shape, np.uint8)}, np.arange(9) % 2)
    pixels = {"image": Pixels((0.1, 0.2, 0.3), (-1.0, 0.0, 1.0))}
    return ArrayData("images", task, part, part, {}, Baseline("none", np.zeros((9, 2), np.float32)), pixels)


def written(data, path):
    data.write(path)
    return path


def test_what_is_written_is_read_again_on_both_sides_and_by_numpy(tmp_path):
    data = small()
    path = written(data, tmp_path / "small.npz")
    for name in ("train", "validation"):
        stored, original = read_split(path, name), getattr(data, name)
        assert stored.task == TASK and stored.facts == data.facts and len(stored) == len(original)
        np.testing.assert_array_equal(stored.inputs[0], original.inputs["tokens"])
        np.testing.assert_array_equal(stored.inputs[1], original.inputs["series"])
        np.testing.assert_array_equal(stored.target, original.target)
        np.testing.assert_array_equal(stored.extras["words"], original.extras["words"])
    with np.load(written(data, tmp_path / "small.npz")) as archive:
        np.testing.assert_array_equal(archive["train.input.tokens"], data.train.inputs["tokens"])


def test_data_are_described_and_the_same_bytes_wherever_and_whenever_written(tmp_path, monkeypatch):
    data = images()
    described = json.loads(json.dumps(data.describe()))
    assert described["samples"] == {"train": 9, "validation": 9} and described["images"] == len(data) == 9
    assert Task.from_dict(described["task"]) == data.task and described["checksum"] == data.checksum()
    first = written(small(), tmp_path / "a.npz").read_bytes()
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert written(small(), tmp_path / "b.npz").read_bytes() == first
    assert small().checksum() == hashlib.sha256(first).hexdigest()
    assert small(facts={"generated": False}).checksum() != small().checksum()


def test_a_failed_write_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    small().write(tmp_path / "small.npz")
    before = (tmp_path / "small.npz").read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(DataError, match="data set 'small' cannot be written to .*small.npz'.*No space left"):
        small(facts={}).write(tmp_path / "small.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["small.npz"]
    assert (tmp_path / "small.npz").read_bytes() == before
    with pytest.raises(DataError, match="cannot be written to .*No such file"):
        small().write(tmp_path / "missing" / "small.npz")


def test_a_damaged_or_missing_file_is_one_sentence(tmp_path):
    path = written(small(), tmp_path / "small.npz")
    with pytest.raises(UsageError, match="unknown split 'test'; allowed: train, validation"):
        read_split(path, "test")
    data = path.read_bytes()
    middle = data.index(b"validation.input.series.npy") + 200
    path.write_bytes(data[:middle] + bytes(8) + data[middle + 8 :])
    with pytest.raises(DataError, match="data set file .*small.npz' cannot be read: Bad CRC.*prepare the study again"):
        read_split(path, "validation")
    path.write_bytes(data[:500])
    with pytest.raises(DataError, match="cannot be read: File is not a zip file"):
        read_split(path, "train")
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        read_split(path, "train")
    with zipfile.ZipFile(tmp_path / "old.npz", "w") as archive:
        archive.writestr("document.json", json.dumps({"version": 99}))
    with pytest.raises(DataError, match="it has format version 99; this program reads version 1"):
        read_split(tmp_path / "old.npz", "train")


@pytest.fixture
def stored(tmp_path):
    return read_split(written(small(), tmp_path / "small.npz"), "train")


def epoch(stored, number, **options):
    with ArrayPipeline(stored, **options) as pipeline:
        return list(pipeline.epoch(number))


def test_batches_have_the_order_of_the_image_pipeline(stored):
    batches = epoch(stored, 3, batch_size=5, seed=11)
    order = epoch_order(11, 3, 23)
    assert [len(target) for _, target in batches] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate([target for _, target in batches]), stored.target[order])
    np.testing.assert_array_equal(np.concatenate([inputs[0] for inputs, _ in batches]), stored.inputs[0][order])
    np.testing.assert_array_equal(np.concatenate([inputs[1] for inputs, _ in batches]), stored.inputs[1][order])

    def first(number, seed):
        return epoch(stored, number, batch_size=23, seed=seed)[0][0][0].tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(2, 0) and first(1, 0) != first(1, 1)
    batches = epoch(stored, 1, batch_size=10, shuffle=False)
    np.testing.assert_array_equal(np.concatenate([target for _, target in batches]), stored.target)
    inputs, target = memory_batch(stored, batch_size=6, seed=4)
    np.testing.assert_array_equal(target, stored.target[epoch_order(4, 0, 23)[:6]])
    assert len(inputs) == 2 and len(memory_batch(stored, batch_size=100)[1]) == 23


def test_batches_are_new_contiguous_arrays_made_where_the_adapter_wants_them(stored):
    before = stored.inputs[1].copy()
    for (tokens, series), target in epoch(stored, 1, batch_size=4):
        assert (tokens.dtype, series.dtype, target.dtype) == (np.int32, np.float32, np.int64)
        assert tokens.flags.c_contiguous and series.flags.c_contiguous and target.flags.c_contiguous
        series[...] = 0
    np.testing.assert_array_equal(stored.inputs[1], before)
    made = []

    def allocate(shape):
        made.append(np.empty(shape, np.float32))
        return made[-1]

    batches = epoch(stored, 1, batch_size=10, allocate=allocate)
    assert all(inputs[1] is array for (inputs, _), array in zip(batches, made)) and len(made) == 3


def test_images_become_the_same_floats_in_both_layouts(tmp_path):
    data = images()
    stored = read_split(written(data, tmp_path / "images.npz"), "train")
    first, labels = epoch(stored, 2, batch_size=9)[0]
    last, same = epoch(stored, 2, batch_size=9, layout="NHWC")[0]
    assert first.shape == (9, 3, 4, 5) and last.shape == (9, 4, 5, 3) and last.flags.c_contiguous
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)
    np.testing.assert_array_equal(labels, same)
    raw = data.train.inputs["image"][epoch_order(0, 2, 9)].astype(np.float64)
    expected = raw * np.array([0.1, 0.2, 0.3])[:, None, None] + np.array([-1, 0, 1])[:, None, None]
    allowed = rounding(2, np.float32) * np.abs(expected).max()  # a product and a sum
    np.testing.assert_allclose(first, expected, rtol=0, atol=allowed)


def test_a_pipeline_says_what_it_cannot_do_and_that_it_is_closed(stored):
    pipeline = ArrayPipeline(stored, batch_size=5)
    batches = pipeline.epoch(0)
    next(batches)
    pipeline.close()
    pipeline.close()
    with pytest.raises(UsageError, match="the input pipeline is closed; open another one"):
        next(batches)
    for options, message in (({"batch_size": 0}, "batch_size is 0"), ({"layout": "CHWN"}, "unknown layout 'CHWN'")):
        with pytest.raises(UsageError, match=message):
            ArrayPipeline(stored, **{"batch_size": 2, **options})


def changed(name: str, array: np.ndarray) -> Split:
    whole = split(23, 0)
    return dataclasses.replace(whole, inputs={**whole.inputs, name: array})


NAN = split(23, 0).inputs["series"].copy()
NAN[4, 2] = np.nan


def test_arrays_that_are_not_what_the_task_says_are_refused():
    for changes, message in (
        ({"train": changed("series", NAN)}, "train split: series of sample 4 has a value that is not finite"),
        ({"train": changed("tokens", np.zeros((23, 3, 8, 8), np.float32))}, r"is float32 \(23, 3, 8, 8\), the task as"),
        ({"train": changed("tokens", np.full((23, 5), 50, np.int32))}, "tokens from 50 to 50, allowed: 0 to 49"),
        ({"train": split(0, 0)}, "train split: it has no samples"),
        ({"validation": dataclasses.replace(split(7, 1), target=np.full(7, 3))}, "labels from 3 to 3, allowed: 0 to 2"),
        ({"validation": dataclasses.replace(split(7, 1), target=np.full(7, -1))}, "labels from -1 to -1, allowed: 0"),
        ({"train": dataclasses.replace(split(23, 0), inputs={})}, r"its inputs are \[\], the task asks for"),
        ({"train": dataclasses.replace(split(23, 0), extras={"words": np.arange(3)})}, "'words' has 3 samples, must"),
        ({"baseline": Baseline("none", np.zeros(7))}, r"outputs are \(7,\), must be \(7, 3\)"),
    ):
        with pytest.raises(DataError, match=message):
            small(**changes)
    task = dataclasses.replace(TASK, target=Field("label", (1,)), outputs=1, loss="binary_cross_entropy")
    parts = {
        name: dataclasses.replace(split(n, 0), target=np.full((n, 1), 0.5, np.float32))
        for name, n in (("train", 23), ("validation", 7))
    }
    with pytest.raises(DataError, match="label has values that are neither 0 nor 1"):
        small(task=task, baseline=Baseline("none", np.zeros((7, 1))), **parts)


def test_names_and_options_are_checked_and_own_data_sets_registered(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="unknown data set 'iris'; allowed: cifar10, diabetes"):
        load("iris")
    with pytest.raises(UsageError, match="data set 'diabetes' has no option 'window'; allowed: seed"):
        load("diabetes", window=3)
    with pytest.raises(DataError, match="path .*nowhere' does not exist; without a path the data are generated"):
        load("diabetes", tmp_path / "nowhere")
    monkeypatch.setattr(registry, "DATASETS", dict(registry.DATASETS))
    registry.register_dataset("mine", "framework_compare.datasets.diabetes:diabetes", arrays=True)
    assert load("mine").task.loss == "binary_cross_entropy"
