"""Level 4: what comes out of a framework's own input pipeline, against a reference decode, resize and crop."""

import functools
import shutil
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from framework_compare.parity.network.ladder import LevelFailed, WorkerEndedEarly
from framework_compare.parity.pipeline import draws, ramps, scenes
from framework_compare.parity.workers import RunTasks
from framework_compare.protocol import Fields, ImageFiles, TrainConfig
from framework_compare.results.parity import Level

Array = np.ndarray
Drawn = tuple[Array, Array]  # images and labels of EPOCHS epochs
SIZE, RAMP_SIDE = 224, 64  # pixels a side of what is asked for
RAMPS, NARROW, FEW, EPOCHS = 874, 310, 62, 3  # the last batch of 32 is a rest of 10, of 16 of 14
STILL: Fields = {"batch_size": 5, "image_size": SIZE, "crop": "none", "flip": "none"}
AS_TRAINED: Fields = {"batch_size": 32, "image_size": RAMP_SIDE, "crop": "random", "flip": "horizontal"}
UPSIDE_DOWN = {**AS_TRAINED, "batch_size": 16, "crop": "none", "flip": "vertical"}
NOT_FLIPPED = {**AS_TRAINED, "batch_size": 64, "flip": "none"}  # more than there are images
AS_NARROW = {**AS_TRAINED, "image_size": 128}  # more than the smaller side: crops are enlarged
# Beyond the decoder: 8-bit rounding after decoding and after resizing, 11-bit fixed-point weights in some resizers.
ROUNDING_MEAN, ROUNDING_MAX = 0.6, 2.0
DECODERS = 2.0  # how many times the difference of two known decoders is allowed


class NotHere(Exception):
    """The interpreter has no native pipeline: its loader is a package that is not installed."""


class PipelineCheck(NamedTuple):
    """One check with its settings; `check` raises LevelFailed, or returns what there is to show of what was drawn."""

    name: str
    write: Callable[[Path], ImageFiles]
    settings: Fields
    check: Callable[[ImageFiles, Drawn], tuple[str, float, float] | None]
    optional: bool = False  # left out, and said so, where a framework does not support such settings


def judge(run_tasks: RunTasks, config: TrainConfig, only: Sequence[str] = ()) -> Level:
    """The level's verdict on the pipeline of one framework; the first thing that is wrong is its `where`.

    only: names of PARTS, all if there are none.
    """
    folder = run_tasks.folder / "images"
    shutil.rmtree(folder, ignore_errors=True)
    known, left_out = [], []
    try:
        for part in PARTS:
            if only and part.name not in only:
                continue
            listed = part.write(folder / part.name)
            try:
                known.append(part.check(listed, _ask(run_tasks, listed, part.name, **part.settings)))
            except NotHere as lacking:
                if not part.optional:
                    raise
                left_out.append(f"not asked: {part.name} ({lacking})")
        shown = [one for one in known if one is not None]
        check_alike([name for name, *_ in shown])
        where, error, ratio = max(shown, key=lambda one: one[2], default=("", None, None))
        return Level(4, True, "; ".join(filter(None, [where, *left_out])), error, ratio)
    except LevelFailed as wrong:
        return Level(4, False, str(wrong), answered=not isinstance(wrong, WorkerEndedEarly))
    except NotHere as lacking:
        return Level(4, False, str(lacking), asked=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ask(run_tasks: RunTasks, listed: ImageFiles, name: str, **settings: Any) -> Drawn:
    """Images and labels of EPOCHS epochs of the native pipeline, its coverage checked."""
    place = run_tasks.folder / "images" / name / "images.json"
    task = {"ask": "native", "name": "native", "images": str(place), "epochs": EPOCHS}
    changed = {**settings, "num_classes": len(listed), "pipeline": "native"}
    run, said, folder = run_tasks([task], f"native-{name}", **changed)
    if run.status == "unsupported":
        raise NotHere(run.reason)
    if "native" not in said:
        raise WorkerEndedEarly(f"the native pipeline: {run.reason}")
    answer = said["native"]
    if answer.get("error", "").startswith("Unsupported: "):
        raise NotHere(answer["error"].partition(": ")[2])
    if "error" in answer:
        raise LevelFailed(f"the native pipeline: {answer['error']}")
    held = np.load(folder / "native.npz")
    images, labels = held["images"], held["labels"]
    shutil.rmtree(folder, ignore_errors=True)
    check_coverage(labels, answer["sizes"], len(listed), settings["batch_size"])
    return images, labels


def check_alike(names: Sequence[str]) -> None:
    """LevelFailed if whole images and random crops are resized otherwise."""
    if len(set(names)) > 1:
        raise LevelFailed(f"whole images are resized {names[0]}, random crops {names[1]}")


def check_coverage(labels: Array, sizes: Sequence[Sequence[int]], count: int, batch_size: int) -> None:
    """LevelFailed unless each epoch has every image once, in full batches and a rest."""
    full, rest = divmod(count, batch_size)
    expected = [batch_size] * full + ([rest] if rest else [])
    strange = labels[(labels < 0) | (labels >= count)]
    if len(strange):
        raise LevelFailed(f"an image comes with label {strange[0]}; labels are 0 to {count - 1}")
    epochs = np.split(labels, np.cumsum([sum(one) for one in sizes])[:-1])
    for number, (found, batches) in enumerate(zip(epochs, sizes), start=1):
        seen = np.bincount(found, minlength=count)
        if (seen != 1).any():
            index = int(np.flatnonzero(seen != 1)[0])
            raise LevelFailed(f"epoch {number} has {len(found)} of {count} images, number {index} {seen[index]} times")
        if list(batches) != expected:
            raise LevelFailed(f"epoch {number} has batches of {list(batches)}, expected {expected}")


def check_pixels(listed: ImageFiles, still: Drawn) -> tuple[str, float, float]:
    """The resampler's name, worst mean error in levels (of 255), and that in units of its tolerance; else LevelFailed."""
    images, labels = still
    if images.shape[1:] != (3, SIZE, SIZE):
        raise LevelFailed(f"images have the shape {images.shape[1:]}, expected {(3, SIZE, SIZE)}")
    found = scenes.levels_of(images)
    known = [scenes.expected(path, SIZE) for path in listed.paths]
    worst = {}
    for name in scenes.RESAMPLERS:
        ratios, means = [], []
        for image, one in zip(found, [known[label] for label in labels]):
            off = np.abs(image - one.by_resampler[name])
            means.append(float(off.mean()))
            of_mean = means[-1] / (DECODERS * one.decoder_mean + ROUNDING_MEAN)
            ratios.append(max(of_mean, float(off.max()) / (DECODERS * one.decoder_max + ROUNDING_MAX)))
        place = int(np.argmax(ratios))
        worst[name] = ratios[place], means[place], listed.paths[labels[place]].rpartition("/")[2]
    name = min(worst, key=lambda key: worst[key][0])
    ratio, mean, path = worst[name]
    if ratio > 1:
        off_by = f"{mean:.2f} of 255 levels off on average, {ratio:.1f} times what decoders and resamplers explain"
        raise LevelFailed(f"pixels of {path} are {off_by}")
    return name, mean, ratio


def check_crops(listed: ImageFiles, drawn: Drawn) -> tuple[str, float, float]:
    """LevelFailed unless order, colours, labels, crops and flips of images asked for AS_TRAINED are as the protocol's."""
    images, labels = drawn
    batch_size, wanted = AS_TRAINED["batch_size"], EPOCHS * len(listed)
    if len(labels) != wanted:
        raise LevelFailed(f"{EPOCHS} epochs have {len(labels)} images, expected {wanted}")
    draws.check_orders(labels, len(listed), batch_size)
    found = ramps.read(images)
    ramps.check_channels(found)
    fits = ramps.texture_of(images, found)
    name = ramps.nearest_resampler(fits)
    ramps.check_labels(fits[name].code, labels, listed)
    cut = ramps.crops_of(found)
    draws.check_independence(cut, labels, len(listed), batch_size)
    draws.check_crops(cut)
    return ramps.check_texture(name, fits[name], listed, labels, cut[:, 2:4].min(axis=1), RAMP_SIDE)


def check_vertical(listed: ImageFiles, drawn: Drawn) -> None:
    """LevelFailed unless about half of whole images come upside down and none mirrored."""
    mirrored, upside_down = _turned(listed, drawn)
    if mirrored.any():
        raise LevelFailed(
            f"with flip='vertical', {mirrored.sum()} of {len(mirrored)} images are mirrored left to right"
        )
    draws.check_flips(upside_down)


def check_not_flipped(listed: ImageFiles, drawn: Drawn) -> None:
    """LevelFailed if an image is mirrored or upside down, or all of them are whole."""
    for turned, how in zip(_turned(listed, drawn), ("mirrored left to right", "upside down")):
        if turned.any():
            raise LevelFailed(f"with flip='none' and random crops, {turned.sum()} of {len(turned)} images are {how}")
    draws.check_cut(ramps.crops_of(ramps.read(drawn[0])))


def check_narrow(listed: ImageFiles, drawn: Drawn, size: tuple[int, int]) -> None:
    """LevelFailed unless random crops of images of a size are as the protocol's."""
    found = ramps.read(drawn[0])
    ramps.check_channels(found)
    draws.check_narrow(ramps.crops_of(found, size), size)


def _turned(listed: ImageFiles, drawn: Drawn) -> tuple[Array, Array]:
    """Return which images are mirrored left to right, and which are upside down; their colours and labels are checked."""
    images, labels = drawn
    found = ramps.read(images)
    ramps.check_channels(found)
    fits = ramps.texture_of(images, found)
    ramps.check_labels(fits[ramps.nearest_resampler(fits)].code, labels, listed)
    return ramps.turned(found)


def _narrow(name: str, size: tuple[int, int]) -> PipelineCheck:
    write = functools.partial(ramps.write, size=size, count=NARROW)
    return PipelineCheck(name, write, AS_NARROW, functools.partial(check_narrow, size=size))


PARTS = (
    PipelineCheck("still", scenes.write_scenes, STILL, check_pixels),
    PipelineCheck("as trained", functools.partial(ramps.write, count=RAMPS), AS_TRAINED, check_crops),
    _narrow("wide", ramps.WIDE),
    _narrow("tall", ramps.TALL),
    PipelineCheck("upside down", functools.partial(ramps.write, count=FEW), UPSIDE_DOWN, check_vertical, optional=True),
    PipelineCheck(
        "not flipped", functools.partial(ramps.write, count=FEW), NOT_FLIPPED, check_not_flipped, optional=True
    ),
)
