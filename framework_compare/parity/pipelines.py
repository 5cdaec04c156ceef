"""Level 4: what comes out of a framework's own input pipeline, against a reference decode, resize and crop."""

from __future__ import annotations

import shutil
from typing import Any, Callable, Sequence, Tuple

import numpy as np

from framework_compare.parity import crops, pictures, ramps
from framework_compare.parity.ladder import Wrong
from framework_compare.parity.result import Level
from framework_compare.protocol import Pictures, TrainConfig

Array = np.ndarray
SIZE, RAMP_SIDE = 224, 64  # pixels a side of what is asked for
RAMPS, EPOCHS = 1290, 2  # the last batch of 32 is a rest of 10
FEW = 62  # pictures flipped upside down
# Beyond the decoder: 8-bit rounding after decoding and after resizing, 11-bit fixed-point weights in some resizers.
ROUNDING_MEAN, ROUNDING_MAX = 0.6, 2.0
DECODERS = 2.0  # how many times the difference of two known decoders is allowed


class NotHere(Exception):
    """The interpreter has no native pipeline: its loader is a package that is not installed."""


def judge(run_tasks: Callable[..., Any], config: TrainConfig) -> Level:
    """The level's verdict on the pipeline of one framework; the first thing that is wrong is its `where`."""
    folder = run_tasks.folder / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        scenes = pictures.write_scenes(folder / "scenes")
        still = _ask(run_tasks, scenes, "scenes", batch_size=4, image_size=SIZE, crop="none", flip="none")
        where, error, ratio = check_pixels(scenes, still)
        listed = ramps.write(folder / "ramps", RAMPS)
        asked = {"batch_size": 32, "image_size": RAMP_SIDE, "crop": "random", "flip": "horizontal"}
        check_crops(listed, _ask(run_tasks, listed, "ramps", **asked))
        few = ramps.write(folder / "vertical", FEW)
        asked = {"batch_size": 16, "image_size": RAMP_SIDE, "crop": "none", "flip": "vertical"}
        check_vertical(few, _ask(run_tasks, few, "vertical", **asked))
        return Level(4, True, where, error, ratio)
    except Wrong as wrong:
        return Level(4, False, str(wrong))
    except NotHere as lacking:
        return Level(4, False, str(lacking), asked=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ask(run_tasks: Callable[..., Any], listed: Pictures, name: str, **settings: Any) -> Tuple[Array, Array]:
    """Images and labels of two epochs of the native pipeline, its coverage checked."""
    place = run_tasks.folder / "pictures" / name / "pictures.json"
    task = {"ask": "native", "name": "native", "pictures": str(place), "epochs": EPOCHS}
    changed = {**settings, "num_classes": len(listed), "pipeline": "native"}
    run, said, folder = run_tasks([task], f"native-{name}", **changed)
    answer = said.get("native", {"error": run.reason})
    if answer.get("error", "").startswith("Unsupported: "):
        raise NotHere(answer["error"].partition(": ")[2])
    if "error" in answer:
        raise Wrong(f"the native pipeline: {answer['error']}")
    held = np.load(folder / "native.npz")
    images, labels = held["images"], held["labels"]
    shutil.rmtree(folder, ignore_errors=True)
    check_coverage(labels, answer["sizes"], len(listed), settings["batch_size"])
    return images, labels


def check_coverage(labels: Array, sizes: Sequence[Sequence[int]], count: int, batch_size: int) -> None:
    """Wrong unless each epoch has every picture once, in full batches and a rest, and in another order."""
    full, rest = divmod(count, batch_size)
    expected = [batch_size] * full + ([rest] if rest else [])
    strange = labels[(labels < 0) | (labels >= count)]
    if len(strange):
        raise Wrong(f"a picture comes with label {strange[0]}; labels are 0 to {count - 1}")
    epochs = np.split(labels, np.cumsum([sum(one) for one in sizes])[:-1])
    for number, (found, batches) in enumerate(zip(epochs, sizes), start=1):
        seen = np.bincount(found, minlength=count)
        if (seen != 1).any() or len(seen) != count:
            index = int(np.flatnonzero(seen != 1)[0])
            raise Wrong(f"epoch {number} has {len(found)} of {count} pictures, number {index} {seen[index]} times")
        if list(batches) != expected:
            raise Wrong(f"epoch {number} comes in batches of {list(batches)}, expected {expected}")
    if any(np.array_equal(epochs[0], found) for found in epochs[1:]):
        raise Wrong("two epochs have their pictures in the same order")


def check_pixels(listed: Pictures, still: Tuple[Array, Array]) -> Tuple[str, float, float]:
    """The resampler's name, worst mean error in levels of 255, and that in units of its tolerance; else Wrong."""
    images, labels = still
    if images.shape[1:] != (3, SIZE, SIZE):
        raise Wrong(f"pictures come out as {images.shape[1:]}, expected {(3, SIZE, SIZE)}")
    found = pictures.levels_of(images)
    known = [pictures.expected(path, SIZE) for path in listed.paths]
    verdicts = {name: _worst(name, found, labels, known, listed) for name in pictures.RESAMPLERS}
    name = min(verdicts, key=lambda key: verdicts[key][1])
    path, ratio, mean = verdicts[name]
    if ratio > 1:
        off = f"{mean:.2f} levels of 255 off on average, {ratio:.1f} times what is explained"
        raise Wrong(f"pixels of {path} are {off}")
    return name, mean, ratio


def _worst(
    name: str, found: Array, labels: Array, known: Sequence[pictures.Expected], listed: Pictures
) -> Tuple[str, float, float]:
    """(picture, error in units of the tolerance, mean error) of the picture that is furthest off."""
    worst = ("", -1.0, 0.0)
    for image, label in zip(found, labels):
        one = known[int(label)]
        off = np.abs(image - one.by_resampler[name])
        mean = float(off.mean())
        allowed_mean = DECODERS * one.decoder_mean + ROUNDING_MEAN
        ratio = max(mean / allowed_mean, float(off.max()) / (DECODERS * one.decoder_max + ROUNDING_MAX))
        if ratio > worst[1]:
            worst = (listed.paths[int(label)].rpartition("/")[2], ratio, mean)
    return worst


def check_crops(listed: Pictures, drawn: Tuple[Array, Array]) -> None:
    """Wrong unless colours are in order, labels belong to pictures, and crops and flips are drawn as the protocol's."""
    images, labels = drawn
    found = ramps.read(images)
    ramps.check_channels(found)
    ramps.check_labels(found, labels, listed)
    crops.check(ramps.crops_of(found))


def check_vertical(listed: Pictures, drawn: Tuple[Array, Array]) -> None:
    """Wrong unless about half of whole pictures come upside down and none mirrored."""
    images, labels = drawn
    found = ramps.read(images)
    ramps.check_channels(found)
    ramps.check_labels(found, labels, listed)
    mirrored, upside_down = ramps.turned(found)
    if mirrored.any():
        raise Wrong(f"with flip='vertical', {mirrored.sum()} of {len(mirrored)} pictures are mirrored left to right")
    crops.check_flips(upside_down)
