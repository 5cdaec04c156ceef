"""Each pipeline gives every image once per epoch, in a new order each time; the last batch has the remaining ones."""

import pytest

from framework_compare.conformance.material import CLASSES, EVEN, FEW


@pytest.mark.parametrize(
    "name, count",
    [("native", CLASSES), ("even", EVEN), ("few", FEW)],
    ids=["rest-of-3", "no-rest", "less-than-a-batch"],
)
def test_native_has_every_image_once(ready, name, count):
    _check_coverage(ready.conduct[name], count, ready.config.batch_size, "with 2 loader workers")


def test_native_has_every_image_once_without_loader_workers(ready):
    _check_coverage(ready.again["native"], CLASSES, ready.config.batch_size, "with loader_workers=0")


def test_native_shuffles_anew(ready):
    first, second = ready.conduct["native"]["labels"]
    assert first != second, f"two epochs have their images in the same order ({first}), expected a new order in each"


def test_native_order_follows_the_seed(ready):
    first, again = ready.conduct["native"]["labels"], ready.again["native"]["labels"]
    if first != again:
        pytest.skip(
            "two workers of one seed shuffle differently, which the protocol allows; for reproducible runs,"
            " shuffle by config.seed, as framework_compare.batches.order.EpochOrder does"
        )


def test_native_batches_have_the_layout(ready):
    _check_kinds(ready, ready.conduct["native"], "epoch()")


def test_shared_batches_arrive_unchanged(ready):
    found = ready.conduct["shared"]
    _check_coverage(found, CLASSES, ready.config.batch_size, "from the shared pipeline")
    _check_kinds(ready, found, "to_device_batch()")
    assert found["exact"], (
        "batches of the shared pipeline read back after a training step differ from those that to_device_batch() was given,"
        " expected the same numbers: neither to_device_batch() nor train_step() may change or reuse them"
    )


def test_memory_batch_stays_as_it_is(ready):
    found = ready.conduct["memory"]
    sizes = _sizes(CLASSES, ready.config.batch_size)
    assert found["sizes"] == [sizes] * 2, f"the memory pipeline's batches have sizes {found['sizes']}, expected {sizes}"
    assert not found["unlike"], (
        f"the held batch reads differently before step {found['unlike'][0] + 1} than before the first, expected the same:"
        " train_step() may not change its batch"
    )


def _sizes(count, batch_size):
    full, rest = divmod(count, batch_size)
    return [batch_size] * full + ([rest] if rest else [])


def _check_coverage(found, count, batch_size, where):
    for number, (labels, sizes) in enumerate(zip(found["labels"], found["sizes"]), start=1):
        lost = sorted(set(range(count)) - set(labels))
        twice = sorted({label for label in labels if labels.count(label) > 1})
        assert not lost and not twice, (
            f"epoch {number} {where} has {len(labels)} of {count} images; missing numbers: {lost}; repeated"
            f" numbers: {twice}; expected each exactly once, and a last batch of the remaining ones"
        )
        assert sizes == _sizes(count, batch_size), (
            f"epoch {number} {where} comes in batches of {sizes}, expected {_sizes(count, batch_size)}"
        )


def _check_kinds(ready, found, what):
    side = ready.config.image_size
    layout = ready.conduct["interface"]["layout"]["value"]
    shape = [3, side, side] if layout == "NCHW" else [side, side, 3]
    for size, images, labels in zip(sum(found["sizes"], []), found["images"], found["label arrays"]):
        assert (images["shape"], images["dtype"]) == ([size, *shape], "float32"), (
            f"read_batch() of a batch of {what} has images {images['dtype']} {tuple(images['shape'])}, expected float32"
            f" {(size, *shape)}, as `layout` says {layout}"
        )
        assert (labels["shape"], labels["dtype"]) == ([size], "int64"), (
            f"read_batch() of a batch of {what} has labels {labels['dtype']} {tuple(labels['shape'])}, expected"
            f" int64 {(size,)}"
        )
