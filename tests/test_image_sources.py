"""Images as arrays: MNIST, CIFAR-10, Tiny ImageNet and guava from the files that are published, and a packed text."""

import pickle
from pathlib import Path

import numpy as np
from bounds import decimals
from image_files import write_idx
from PIL import Image
from real_arrays import baseline, known, real

from framework_compare.datasets.arrays import load


def test_mnist_comes_in_idx_form_and_its_parts_share_no_image():
    data = load("mnist", real("mnist_10k"), train=1000, validation=500)
    assert (len(data.train), len(data.validation), data.facts["images"]) == (1000, 500, 10_000)
    assert sum(sum(counts) for counts in data.facts["images_per_class"].values()) == 1500
    assert "MNIST, 10,000 test digits, images" in known(data)
    whole = load("mnist", real("mnist_10k"))
    assert (len(whole.train), len(whole.validation)) == (8000, 2000)
    train = {image.tobytes() for image in data.train.inputs["image"]}
    assert not train & {image.tobytes() for image in data.validation.inputs["image"]}
    from framework_compare.datasets import mnist

    folder = real("mnist_10k")
    images, labels = mnist.read_pair(folder / "t10k-images-idx3-ubyte.gz", folder / "t10k-labels-idx1-ubyte.gz")
    assert images.shape == (10_000, 1, 28, 28) and labels[0] == 7
    patches = images[0, 0].reshape(14, 2, 14, 2).transpose(0, 2, 1, 3).reshape(-1, 4) / 255
    assert (np.abs(patches - [0, 0, 0.3294, 0.7255]).max(axis=1) <= decimals(4)).any()


def test_all_of_mnist_keeps_its_own_split(tmp_path):
    generator = np.random.default_rng(0)
    for name, count in (("train", 30), ("t10k", 12)):
        images, labels = generator.integers(0, 256, (count, 28, 28)), generator.integers(0, 10, count)
        write_idx(tmp_path, name, images, labels)
    data = load("mnist", tmp_path)
    assert (len(data.train), len(data.validation)) == (30, 12)
    assert len(load("mnist", tmp_path, train=7).train) == 7
    assert len(load("mnist", tmp_path, validation=5).validation) == 5


def test_folders_of_images_have_the_counts_of_their_manifests():
    for name, folder, samples, classes in (
        ("cifar10", "caltech10_32", (1322, 268), 10),
        ("tiny-imagenet", "caltech101_64", (2376, 594), 99),
        ("guava", "guava_disease", (800, 128), 8),
    ):
        data = load(name, real(folder))
        assert (len(data.train), len(data.validation), data.task.outputs) == (*samples, classes)
        assert baseline(data)["accuracy"] < 0.16


def test_guava_has_healthy_or_not_as_a_metric():
    values = baseline(load("guava", real("guava_disease"), image_size=16))
    assert values["healthy_accuracy"] == 0.875 and values["accuracy"] == 0.125


def colour(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (value, 0, 255 - value)).save(path)


def tiny_imagenet(folder: Path) -> Path:
    """The form in which Tiny ImageNet is downloaded."""
    for value, name in ((10, "n01"), (200, "n02")):
        for number in range(3):
            colour(folder / "train" / name / "images" / f"{name}_{number}.png", value)
        (folder / "train" / name / f"{name}_boxes.txt").write_text("box")
    rows = [("val_0.png", "n02", 200), ("val_1.png", "n01", 10)]
    for name, _, value in rows:
        colour(folder / "val" / "images" / name, value)
    (folder / "val" / "val_annotations.txt").write_text("".join(f"{n}\t{c}\t0\t0\t7\t7\n" for n, c, _ in rows))
    (folder / "test" / "images").mkdir(parents=True)
    return folder


def test_tiny_imagenet_and_cifar10_are_read_as_they_are_downloaded(tmp_path):
    data = load("tiny-imagenet", tiny_imagenet(tmp_path), image_size=8)
    assert data.facts["classes"] == ["n01", "n02"] and len(data.train) == 6
    np.testing.assert_array_equal(data.validation.target, [1, 0])
    np.testing.assert_array_equal(data.validation.inputs["image"][:, 0, 0, 0], [200, 10])
    data = load("cifar10", cifar_batches(tmp_path / "cifar"))
    assert (len(data.train), len(data.validation)) == (8, 4) and data.facts["classes"][9] == "truck"
    content = pickle.loads((tmp_path / "cifar" / "data_batch_2").read_bytes())
    np.testing.assert_array_equal(data.train.inputs["image"][5].ravel(), content[b"data"][1])
    assert data.train.target[5] == 9


def cifar_batches(folder: Path) -> Path:
    """Batches as CIFAR-10's python version has them, four images each."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        content = {b"data": generator.integers(0, 256, (4, 3072), np.uint8), b"labels": [0, 9, 3, 1]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder
