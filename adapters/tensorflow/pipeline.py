"""torchvision's ImageNet recipe in tf.data, which crops a JPEG while it decodes it."""

from __future__ import annotations

import math
import threading
from typing import Any, Iterable, Iterator

import numpy as np

from framework_compare.adapters.common.pipeline import MEAN, STD, read_rgb
from framework_compare.protocol import ImageFiles, TrainConfig


def make_dataset(tf: Any, files: ImageFiles, config: TrainConfig) -> Any:
    """tf.data as its performance guide has it: shuffled file names, parallel map, batch, prefetch."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, config.loader_workers)
    options.threading.max_intra_op_parallelism = 1
    is_jpeg = [kind == "JPEG" for kind in files.formats]
    rows = tf.data.Dataset.from_tensor_slices((list(files.paths), is_jpeg, np.array(files.labels, np.int64)))
    rows = rows.shuffle(len(files), seed=config.seed, reshuffle_each_iteration=True)
    # random ops with a state would draw the same crops again in every epoch: tf.data starts them anew with each
    seeds = tf.data.Dataset.random(seed=config.seed, rerandomize_each_iteration=True).batch(2)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and looking for it takes 0.4 s
    def read(row: Any, seed: Any) -> Any:
        path, jpeg, label = row
        return _read_image(tf, path, jpeg, tf.random.stateless_uniform([DRAWS], seed), config), label

    dataset = tf.data.Dataset.zip(rows, seeds).map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    return dataset.batch(config.batch_size).prefetch(tf.data.AUTOTUNE).with_options(options)


def one_pass(dataset: Iterable[Any]) -> Iterator[Any]:
    """The batches of one pass, whose iterator is deleted by a thread.

    Deleting it now and then waits until tf.data's autotuner wakes, for up to as long as the pass has taken (TensorFlow
    2.21; docs/records/fairness-findings.md). No CPU is used meanwhile, and training need not wait for it.
    """
    iterator = iter(dataset)
    try:
        yield from iterator
    finally:
        last = [iterator]
        del iterator
        threading.Thread(target=last.clear, daemon=True).start()


TRIES = 10
DRAWS = 2 * TRIES + 3  # areas, ratios, place in two directions, flip


def _read_image(tf: Any, path: Any, jpeg: Any, draws: Any, config: TrainConfig) -> Any:
    data, size = tf.io.read_file(path), config.image_size
    crop = tf.cond(jpeg, lambda: _crop_jpeg(tf, data, draws, config), lambda: _crop_other(tf, path, draws, config))
    image = tf.image.resize(crop, (size, size), antialias=False)
    if config.flip != "none":
        flip = {"horizontal": tf.image.flip_left_right, "vertical": tf.image.flip_up_down}[config.flip]
        image = tf.cond(draws[-1] < 0.5, lambda: flip(image), lambda: image)
    image.set_shape((size, size, 3))
    return (image / 255.0 - tf.constant(MEAN)) / tf.constant(STD)


def _crop_jpeg(tf: Any, data: Any, draws: Any, config: TrainConfig) -> Any:
    window = _crop_window(tf, tf.image.extract_jpeg_shape(data), draws, config)
    return tf.image.decode_and_crop_jpeg(data, window, channels=3)


def _crop_other(tf: Any, path: Any, draws: Any, config: TrainConfig) -> Any:
    """Formats TensorFlow cannot crop while decoding, some of which it cannot decode: through Pillow."""
    image = tf.numpy_function(lambda name: read_rgb(name.decode()), [path], tf.uint8)
    image.set_shape((None, None, 3))
    top, left, height, width = tf.unstack(_crop_window(tf, tf.shape(image), draws, config))
    return image[top : top + height, left : left + width]


def _crop_window(tf: Any, shape: Any, draws: Any, config: TrainConfig) -> Any:
    """(top, left, height, width): the whole image, or of RandomResizedCrop ten draws' first that fits, else the centre.

    tf.image.sample_distorted_bounding_box draws the aspect ratio uniformly; the protocol draws its logarithm so.
    """
    height, width = shape[0], shape[1]
    if config.crop == "none":
        return tf.stack([0, 0, height, width])
    area = tf.cast(height * width, tf.float32) * (0.08 + 0.92 * draws[:TRIES])
    ratio = tf.exp((2 * draws[TRIES : 2 * TRIES] - 1) * math.log(4 / 3))
    w = tf.cast(tf.round(tf.sqrt(area * ratio)), tf.int32)
    h = tf.cast(tf.round(tf.sqrt(area / ratio)), tf.int32)
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first, any_fits = tf.argmax(tf.cast(fits, tf.int32)), tf.reduce_any(fits)
    exact_h, exact_w = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
    too_narrow, too_wide = (tf.cast(tf.round(side), tf.int32) for side in (exact_w / (3 / 4), exact_h * (4 / 3)))
    centre_h = tf.where(exact_w / exact_h < 3 / 4, too_narrow, height)
    centre_w = tf.where(exact_w / exact_h > 4 / 3, too_wide, width)
    size = tf.where(any_fits, tf.stack([h[first], w[first]]), tf.stack([centre_h, centre_w]))
    room = tf.stack([height, width]) - size
    offset = tf.cast(draws[2 * TRIES : 2 * TRIES + 2] * tf.cast(room + 1, tf.float32), tf.int32)
    offset = tf.where(any_fits, tf.minimum(offset, room), room // 2)
    return tf.concat([offset, size], axis=0)
