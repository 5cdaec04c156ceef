"""Level 4 passes an honest pipeline whatever its seed, and says of each seeded mistake what it is."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from nightly import some_nightly

from framework_compare import registry
from framework_compare.environments.managed import Environment
from framework_compare.parity import cache
from framework_compare.parity.network.ladder import LevelFailed
from framework_compare.parity.pipeline import crops, independence, orders, pipelines, ramps, textures
from framework_compare.parity.verify import Climb
from framework_compare.protocol import TrainConfig
from framework_compare.results import verdicts
from framework_compare.results.parity import PASSED, PROVED, Level, Parity

COUNT = pipelines.RAMPS * pipelines.EPOCHS
HONEST_SEEDS = [10, pytest.param(100, marks=pytest.mark.nightly)]
# So that every mistake below is one of augmentation alone, as nothing else of level 4 would show it.
CLASS = """

class Mutated(ReferenceTrainer):
    @property
    def random_crops(self):
        return self.config.crop == "random"

{body}
"""
EPOCH = """
    def epoch(self, pipeline, number):
        for images, labels in pipeline.epoch(number):
            if self.random_crops:
                {change}
            yield self.adopt(images, labels)
"""
OPENED = """
    def open_pipeline(self, pictures):
        from framework_compare.batches import preprocess
        if self.random_crops:
            {change}
        return super().open_pipeline(pictures)
"""
RARELY_FLIPPED = """
    def open_pipeline(self, pictures):
        from framework_compare.batches import preprocess
        draw, chance = preprocess.draw_crop, numpy.random.RandomState(1)

        def draw_fewer(*where, flip):
            crop = draw(*where, flip=flip)
            return crop if chance.random_sample() < 0.86 else crop._replace(flip="none")

        preprocess.draw_crop = draw_fewer
        return super().open_pipeline(pictures)
"""
ALWAYS_HORIZONTAL = """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, flip=config.flip.replace("vertical", "horizontal")))
"""
ALWAYS_FLIPPED = """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, flip="horizontal" if config.crop == "random" else config.flip))
"""
WHOLE = """
    def __init__(self, config):
        import dataclasses
        super().__init__(dataclasses.replace(config, crop="none" if config.flip == "none" else config.crop))
"""
LATE_LABELS = """
    def epoch(self, pipeline, number):
        batches = list(pipeline.epoch(number))
        labels = numpy.concatenate([found for _, found in batches])
        labels = numpy.roll(labels, self.config.batch_size) if self.random_crops else labels
        for i, (images, found) in enumerate(batches):
            start = i * self.config.batch_size
            yield self.adopt(images, labels[start : start + len(found)])
"""
ORDERED = """
    def epoch(self, pipeline, number):
        from framework_compare.batches import pictures as shared
        size = self.config.batch_size

        def epoch_order(seed, number, count):
            random, listed = numpy.random.RandomState(number), numpy.arange(count)
            {change}

        shared.epoch_order = epoch_order
        return super().epoch(pipeline, number)
"""
EXCHANGED = "i = random.randint(count - 1); listed[i : i + 2] = listed[i : i + 2][::-1]; return listed"
BATCHES = (
    "places = [*random.permutation(count // size), count // size]\n"
    "            return numpy.concatenate([listed[i * size :][:size] for i in places])"
)
SECOND_HALF = (
    "halves = listed[: count // 2], listed[count // 2 :]\n"
    "            return numpy.concatenate([random.permutation(half) for half in halves])"
)
SHUFFLED_BATCHES = """
    def epoch(self, pipeline, number):
        from framework_compare.batches import pictures as shared
        size = self.config.batch_size
        real = self.__dict__.setdefault("real", shared.epoch_order)

        def epoch_order(seed, number, count):
            once, places = real(seed, 0, count), numpy.random.RandomState(number).permutation(count // size)
            return numpy.concatenate([once[i * size :][:size] for i in [*places, count // size]])

        shared.epoch_order = epoch_order
        return super().epoch(pipeline, number)
"""
REPEATED = """
    def epoch(self, pipeline, number):
        return super().epoch(pipeline, {change})
"""
DRAWN = """
    def open_pipeline(self, pictures):
        from framework_compare.batches import preprocess
        draw, now, seeded, flips = preprocess.draw_crop, [], preprocess.picture_state, ("horizontal", "none")

        def picture_state(*which):
            now[:] = which
            return seeded(*which)

        def draw_crop(state, width, height, *, flip):
            crop, epoch, index = draw(state, width, height, flip=flip), now[1], now[2]
            u, v = state.random_sample(2)
            left = int(u * (width - crop.width + 1))
            return {change}

        if self.random_crops:
            preprocess.picture_state, preprocess.draw_crop = picture_state, draw_crop
        return super().open_pipeline(pictures)
"""
RESIZED = """
    def open_pipeline(self, pictures):
        from framework_compare.batches import preprocess
        from PIL import Image, ImageFilter
        import functools, io

        @functools.lru_cache(maxsize=64)
        def decoded(data):
            return preprocess.to_rgb(Image.open(io.BytesIO(data)))

        def resize(data, crop, size):
            box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
            image = decoded(data).crop(box)
            affine = image.width / size, 0, 0, 0, image.height / size, 0
            pixels = numpy.asarray({change})
            return pixels[:, ::-1] if crop.flip == "horizontal" else pixels

        if self.random_crops:
            preprocess.decode_crop_resize = resize
        return super().open_pipeline(pictures)
"""
FLIPPED_BATCHES = """
    def epoch(self, pipeline, number):
        for place, (images, labels) in enumerate(pipeline.epoch(number)):
            if self.random_crops and place % 2:
                images = numpy.ascontiguousarray(images[:, :, :, ::-1])
            yield self.adopt(images, labels)

    def open_pipeline(self, pictures):
        import dataclasses
        if self.random_crops:
            self.config = dataclasses.replace(self.config, flip="none")
        return super().open_pipeline(pictures)
"""
MISTAKES = {
    "two neighbours exchanged": (ORDERED.format(change=EXCHANGED), "over the whole set: places in the list"),
    "batched before shuffled": (ORDERED.format(change=BATCHES), "not shuffled over the whole set"),
    "the same batches in another order": (SHUFFLED_BATCHES, "of 873 neighbours of another epoch are neighbours again"),
    "rolled by one": (ORDERED.format(change="return numpy.roll(listed, number)"), "not shuffled over the whole set"),
    "halves shuffled apart": (ORDERED.format(change=SECOND_HALF), "list and epoch 1 have a rank correlation"),
    "order alternates": (REPEATED.format(change="number % 2"), "epochs 1 and 3 have their images in the same order"),
    "all repeats from epoch 3": (REPEATED.format(change="(number - 1) % 2 + 1"), "epochs 1 and 3 have their images"),
    "one number for left and top": (
        DRAWN.format(change="crop._replace(left=left, top=int(u * (height - crop.height + 1)))"),
        "the place from the left and the place from the top of random crops go together",
    ),
    "flip by place": (
        DRAWN.format(change="crop._replace(left=left, flip=flips[int(2 * u)])"),
        "the place from the left and the flip of random crops go together",
    ),
    "flip by area": (
        DRAWN.format(change="crop._replace(flip=flips[int(crop.width * crop.height > 18200)])"),
        "the area and the flip of random crops go together",
    ),
    "flip by epoch": (DRAWN.format(change="crop._replace(flip=flips[epoch % 2])"), "in epoch 1, 0.000 of 874 images"),
    "flip by image": (
        DRAWN.format(change="crop._replace(flip=flips[index % 2])"),
        "the flip of an image's random crop goes with that of another epoch",
    ),
    "place by image": (
        DRAWN.format(change="crop._replace(left=int((index * 0.618 + 0.01 * u) % 1 * (width - crop.width + 1)))"),
        "the place from the left of an image's random crop goes with that of another epoch",
    ),
    "nearest pixel": (RESIZED.format(change="image.resize((size, size), 0)"), "what is explained"),
    "bicubic": (RESIZED.format(change="image.resize((size, size), Image.Resampling.BICUBIC)"), "what is explained"),
    "area": (RESIZED.format(change="image.resize((size, size), Image.Resampling.BOX)"), "what is explained"),
    "blurred": (
        RESIZED.format(change="image.resize((size, size), 2).filter(ImageFilter.GaussianBlur(0.7))"),
        "what is explained",
    ),
    "box blur": (
        RESIZED.format(change="image.resize((size, size), 2).filter(ImageFilter.BoxBlur(1))"),
        "what is explained",
    ),
    "no antialias in random crops only": (
        RESIZED.format(change="image.transform((size, size), 0, affine, 2)"),
        "whole images are resized bilinear, antialiased, random crops bilinear",
        "still",
        "as trained",
    ),
    "flip by batch": (FLIPPED_BATCHES, "flips are drawn by batches"),
    "area from 0.15": (OPENED.format(change="preprocess.SCALE = (0.15, 1.0)"), "area of random crops has too narrow"),
    "area from 0.05": (OPENED.format(change="preprocess.SCALE = (0.05, 1.0)"), "area of random crops has too wide"),
    "area to 0.9": (OPENED.format(change="preprocess.SCALE = (0.08, 0.9)"), "area of random crops has too narrow"),
    "ratio 4/5 to 5/4": (OPENED.format(change="preprocess.RATIO = (4 / 5, 5 / 4)"), "too narrow a range"),
    "ratio 2/3 to 3/2": (OPENED.format(change="preprocess.RATIO = (2 / 3, 3 / 2)"), "crops has too wide a range"),
    "flip share 0.43": (RARELY_FLIPPED, "are flipped, expected 0.5"),
    "flipped along both axes": (
        EPOCH.format(change="images = numpy.ascontiguousarray(images[:, :, :: 1 - 2 * (number % 2)])"),
        "upside down",
    ),
    "of wide images all where none of ten tries fits": (
        OPENED.format(change="preprocess._centre_crop = lambda w, h, flip: preprocess.Crop(0, 0, w, h, flip)"),
        "of wide images have sides of up to 3.75 to 1",
        "wide",
    ),
    "of wide images more than ten tries": (
        OPENED.format(change="preprocess.TRIES = 100"),
        "of the random crops of wide images reach across",
        "wide",
    ),
    "of wide images the left where none of ten tries fits": (
        OPENED.format(change="preprocess._centre_crop = lambda w, h, flip: preprocess.Crop(0, 0, 107, 80, flip)"),
        "do so in the middle, expected 0.095",
        "wide",
    ),
    "tall images whole": (
        DRAWN.format(change="crop if width >= height else preprocess.whole(width, height)"),
        "of tall images have sides of up to 3.75 to 1",
        "tall",
    ),
    "images smaller than the network's whole": (
        DRAWN.format(
            change="crop if min(width, height) >= self.config.image_size else preprocess.whole(width, height)"
        ),
        "sides of up to 3.75 to 1",
        "wide",
    ),
    "a rest of one image dropped": (
        """
    def epoch(self, pipeline, number):
        return (batch for batch in super().epoch(pipeline, number) if batch.size > 1)
""",
        "epoch 1 has 10 of 11 images",
        "still",
    ),
    "nothing of a set smaller than a batch": (
        """
    def open_pipeline(self, pictures):
        self.few = len(pictures) < self.config.batch_size
        return super().open_pipeline(pictures)

    def epoch(self, pipeline, number):
        return iter(()) if self.few else super().epoch(pipeline, number)
""",
        "",
        "not flipped",
    ),
    "vertical taken for horizontal": (ALWAYS_HORIZONTAL, "mirrored left to right", "upside down"),
    "flipped though not asked for": (ALWAYS_FLIPPED, "with flip='none' and random crops, 9", "not flipped"),
    "whole images where nothing is flipped": (WHOLE, "random crops have a median area of 1.00", "not flipped"),
    "labels off by one": (EPOCH.format(change="labels = numpy.roll(labels, 1)"), "comes with the label of"),
    "labels off by a batch": (LATE_LABELS, "comes with the label of"),
    "one class index swapped": (
        EPOCH.format(change="labels = numpy.array([{0: 1, 1: 0}.get(int(l), int(l)) for l in labels])"),
        "comes with the label of",
    ),
    "a label that no image has": (EPOCH.format(change="labels = labels - 1"), "label -1; labels are 0 to"),
    "blue and red swapped": (
        EPOCH.format(change="images = numpy.ascontiguousarray(images[:, ::-1])"),
        "the channels of an image are blue, green, red, expected red, green, blue",
    ),
    "colours paler": (EPOCH.format(change="images = images * numpy.float32(0.9)"), "levels of 255, expected"),
}


# Like another one that is seen by the same check; those of orders, draws and ranges are seen in numbers alone below.
NIGHTLY = (
    "all repeats from epoch 3",
    "area",
    "area from 0.05",
    "area to 0.9",
    "batched before shuffled",
    "bicubic",
    "blurred",
    "colours paler",
    "flip by area",
    "flip by batch",
    "flip by epoch",
    "flip by place",
    "flip share 0.43",
    "images smaller than the network's whole",
    "labels off by a batch",
    "nearest pixel",
    "of wide images the left where none of ten tries fits",
    "one class index swapped",
    "one number for left and top",
    "order alternates",
    "place by image",
    "ratio 2/3 to 3/2",
    "ratio 4/5 to 5/4",
    "rolled by one",
    "the same batches in another order",
    "two neighbours exchanged",
)


@pytest.fixture
def judge(ask_mutated):
    """Level 4 of the float32 reference with the methods given, in a worker of its own."""

    def run(body: str = "", only=(), **settings):
        return pipelines.judge(*ask_mutated(CLASS.format(body=body), **settings), only)

    return run


@pytest.mark.nightly  # of the default seed test_parity.py climbs all levels by day
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_an_honest_pipeline_passes_whatever_its_seed(judge, seed):
    level = judge(seed=seed)
    assert level.passed, level.where


@pytest.mark.parametrize("mistake", some_nightly(MISTAKES, NIGHTLY))
def test_a_mistake_of_augmentation_is_named(judge, mistake):
    body, words, *part = MISTAKES[mistake]
    level = judge(body, only=part or ["as trained"])
    assert not level.passed, f"{mistake} is a hole in level 4"
    assert words in level.where


LEFT_TO_RIGHT_ONLY = {
    "by the trainer": """
    def unsupported(self):
        return "flip 'vertical': mirrors left to right only" if self.config.flip == "vertical" else super().unsupported()
""",
    "by its pipeline": """
    def open_pipeline(self, pictures):
        from framework_compare.errors import Unsupported
        if self.config.flip == "vertical":
            raise Unsupported("flip 'vertical': mirrors left to right only")
        return super().open_pipeline(pictures)
""",
}


@pytest.mark.parametrize("said", LEFT_TO_RIGHT_ONLY)
def test_settings_that_a_framework_does_not_support_are_left_out_and_named(judge, said):
    level = judge(LEFT_TO_RIGHT_ONLY[said], only=["upside down", "not flipped"])
    assert level.passed and "not asked: upside down (flip 'vertical'" in level.where, level


def test_a_loader_may_use_its_memory_again(judge):
    body = """
    def epoch(self, pipeline, number):
        held = {}
        for images, labels in pipeline.epoch(number):
            array = held.setdefault(images.shape, numpy.empty_like(images))
            array[:] = images
            yield self.adopt(array, labels)
"""
    level = judge(body, only=["still"])
    assert level.passed, level.where


def test_a_worker_that_is_killed_in_a_pipeline_has_not_answered(judge):
    level = judge("\n    def epoch(self, pipeline, number):\n        import os\n        os.kill(os.getpid(), 9)\n")
    assert not level.passed and not level.answered


def test_the_pipeline_that_is_judged_has_the_loader_workers_of_the_config(judge):
    level = judge(
        "    def open_pipeline(self, pictures):\n        raise RuntimeError(f'{self.config.loader_workers} workers')\n",
        loader_workers=3,
    )
    assert "3 workers" in level.where


def test_a_verdict_on_one_number_of_loader_workers_is_none_on_another():
    entry, config = registry.framework("torch"), TrainConfig(loader_workers=2)
    keys = {
        cache.pipeline_key(entry, "1.0", dataclasses.replace(config, loader_workers=workers)) for workers in (0, 1, 2)
    }
    assert len(keys) == 3
    assert cache.pipeline_key(entry, "1.0", dataclasses.replace(config, batch_size=7)) in keys


@pytest.fixture
def known(tmp_path, own_cache, monkeypatch):
    """A climb that knows of levels 0 to 3 and 5 that they hold, and of the native pipeline that it does not."""
    held = Parity("torch", "1.0", "alexnet", "default", PASSED, levels=tuple(Level(n, True) for n in (0, 1, 2, 3, 5)))
    monkeypatch.setattr(cache, "load_network", lambda key: held)
    monkeypatch.setattr(cache, "load_levels", lambda key: [])
    monkeypatch.setattr(cache, "load_pipeline", lambda key: Level(4, False, "blue, green, red"))
    monkeypatch.setattr(pipelines, "judge", lambda run_tasks, config: Level(4, False, "blue, green, red"))
    return Climb(tmp_path, {"torch": Environment("torch", Path(sys.executable), "1.0", False, "3.11", {})})


@pytest.mark.parametrize("ask", ["parity", "cached"])
@pytest.mark.parametrize("pipeline, shown", [("native", "0-3, not 4: blue"), ("shared", "0-3, 5")])
def test_a_native_pipeline_that_is_wrong_is_no_matter_of_a_cell_without_it(known, ask, pipeline, shown):
    verdict = getattr(known, ask)("torch", "alexnet", TrainConfig(pipeline=pipeline))
    assert verdict.column().startswith(shown)
    assert verdict.column() in PROVED or pipeline == "native"


@pytest.mark.parametrize("changed", [{"pipeline": "shared"}, {"loader_workers": 2}], ids=["pipeline", "loader workers"])
def test_a_study_keeps_verdicts_on_other_pipelines_apart(changed):
    row = {**TrainConfig().to_dict(), "framework": "torch", "model": "alexnet"}
    assert verdicts.key(row) != verdicts.key({**row, **changed})


def drawn_otherwise(seed: int, whole=np.round, area=(0.08, 1.0), widest=4 / 3, flips=0.5) -> np.ndarray:
    """COUNT crops whose sides become whole pixels by a rule of their own, or that are drawn from other ranges."""
    rng = np.random.default_rng(seed)
    width, height = ramps.SIZE
    areas = width * height * rng.uniform(*area, 3 * COUNT)
    ratios = np.exp(rng.uniform(-math.log(widest), math.log(widest), 3 * COUNT))
    w, h = whole(np.sqrt(areas * ratios)), whole(np.sqrt(areas / ratios))
    w, h = (side[(w <= width) & (h <= height)][:COUNT] for side in (w, h))
    if whole is np.positive:
        left, top = (rng.random(COUNT) * (full - side) for full, side in ((width, w), (height, h)))
    else:
        left, top = (np.floor(rng.random(COUNT) * (full - side + 1)) for full, side in ((width, w), (height, h)))
    return np.stack([left, top, w, h, rng.random(COUNT) < flips], axis=1)


RULES = {"nearest": np.round, "downwards": np.floor, "not at all": np.positive}


@pytest.mark.parametrize("seeds", HONEST_SEEDS)
@pytest.mark.parametrize("rule", RULES)
def test_honest_crops_pass_with_every_seed_however_a_framework_rounds(rule, seeds):
    noise = np.random.default_rng(0)
    for seed in range(2, 2 + seeds):
        drawn = drawn_otherwise(seed, RULES[rule])
        drawn[:, :4] += noise.normal(0, 0.07, (COUNT, 4))
        crops.check(drawn)


@pytest.mark.parametrize("seeds", HONEST_SEEDS)
def test_honest_orders_and_draws_pass_with_every_seed(seeds):
    count, batch_size = pipelines.RAMPS, pipelines.AS_TRAINED["batch_size"]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        labels = np.concatenate([rng.permutation(count) for _ in range(pipelines.EPOCHS)])
        orders.check(labels, count, batch_size)
        independence.check(drawn_otherwise(seed), labels, count, batch_size)


def exchanged(rng: np.random.Generator, listed: np.ndarray) -> np.ndarray:
    place = rng.integers(len(listed) - 1)
    return np.concatenate([listed[:place], listed[place : place + 2][::-1], listed[place + 2 :]])


def batches_shuffled(rng: np.random.Generator, listed: np.ndarray) -> np.ndarray:
    batches = np.split(listed, range(BATCH, len(listed), BATCH))
    return np.concatenate([*(batches[place] for place in rng.permutation(len(batches) - 1)), batches[-1]])


def halves_shuffled(rng: np.random.Generator, listed: np.ndarray) -> np.ndarray:
    return np.concatenate([rng.permutation(half) for half in np.array_split(listed, 2)])


BATCH = pipelines.AS_TRAINED["batch_size"]
# What becomes of the list, or of an order that was drawn once, in each epoch.
ORDERS = {
    "two neighbours exchanged": (exchanged, False),
    "batched before shuffled": (batches_shuffled, False),
    "the same batches in another order": (batches_shuffled, True),
    "rolled by one": (lambda rng, listed: np.roll(listed, rng.integers(1, len(listed))), False),
    "halves shuffled apart": (halves_shuffled, False),
    "all repeats from epoch 3": (None, True),
}


@pytest.mark.parametrize("mistake", ORDERS)
def test_a_mistake_of_orders_is_named_from_their_numbers(mistake):
    change, anew = ORDERS[mistake]
    rng = np.random.default_rng(0)
    listed = rng.permutation(pipelines.RAMPS) if anew else np.arange(pipelines.RAMPS)
    if change:
        epochs = [change(rng, listed) for _ in range(pipelines.EPOCHS)]
    else:
        epochs = [listed, rng.permutation(listed), listed]
    with pytest.raises(LevelFailed) as error:
        orders.check(np.concatenate(epochs), pipelines.RAMPS, BATCH)
    assert MISTAKES[mistake][1] in str(error.value)


def by_place(crops: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return 2 * crops[:, 0] > ramps.SIZE[0] - crops[:, 2]


def by_area(crops: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return crops[:, 2] * crops[:, 3] > 18200


def by_epoch(crops: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.arange(len(labels)) // pipelines.RAMPS % 2


def by_batch(crops: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.arange(len(labels)) % pipelines.RAMPS // BATCH % 2


FLIPS = {
    "flip by place": by_place,
    "flip by area": by_area,
    "flip by epoch": by_epoch,
    "flip by image": lambda crops, labels: labels % 2,
    "flip by batch": by_batch,
}


def flipped(crops: np.ndarray, labels: np.ndarray, mistake: str) -> np.ndarray:
    return np.column_stack([crops[:, :4], FLIPS[mistake](crops, labels)])


def one_number(crops: np.ndarray, labels: np.ndarray, mistake: str) -> np.ndarray:
    rooms = np.array(ramps.SIZE) - crops[:, 2:4]
    drawn = np.random.default_rng(1).random(len(crops))
    return np.column_stack([np.floor(drawn[:, None] * (rooms + 1)), crops[:, 2:]])


def placed(crops: np.ndarray, labels: np.ndarray, mistake: str) -> np.ndarray:
    drawn = (labels * 0.618 + 0.01 * np.random.default_rng(1).random(len(labels))) % 1
    return np.column_stack([np.floor(drawn * (ramps.SIZE[0] - crops[:, 2] + 1)), crops[:, 1:]])


DRAWS = {**dict.fromkeys(FLIPS, flipped), "one number for left and top": one_number, "place by image": placed}


@pytest.mark.parametrize("mistake", DRAWS)
def test_a_mistake_of_draws_is_named_from_their_numbers(mistake):
    rng = np.random.default_rng(0)
    labels = np.concatenate([rng.permutation(pipelines.RAMPS) for _ in range(pipelines.EPOCHS)])
    with pytest.raises(LevelFailed) as error:
        independence.check(DRAWS[mistake](drawn_otherwise(2), labels, mistake), labels, pipelines.RAMPS, BATCH)
    assert MISTAKES[mistake][1] in str(error.value)


def test_a_shuffle_buffer_that_is_too_small_is_seen():
    count = pipelines.RAMPS
    for seed in range(5):
        labels = np.concatenate([buffered(count, count // 2, 10 * seed + epoch) for epoch in range(3)])
        with pytest.raises(LevelFailed, match="not shuffled over the whole set"):
            orders.check(labels, count, 32)


def buffered(count: int, size: int, seed: int) -> np.ndarray:
    """An order as a shuffle buffer of `size` gives it."""
    rng, held, drawn = np.random.default_rng(seed), list(range(size)), []
    for number in range(size, count + size):
        place = rng.integers(len(held))
        drawn.append(held[place])
        held[place] = number if number < count else held[-1]
        held = held if number < count else held[:-1]
    return np.array(drawn)


# What docs/records/fairness-sensitivity.md says is seen.
SEEN = {
    "area from 0.0875": dict(area=(0.0875, 1.0)),
    "area from 0.07": dict(area=(0.07, 1.0)),
    "area to 0.9": dict(area=(0.08, 0.9)),
    "ratio to 1.28": dict(widest=1.28),
    "ratio to 1.38": dict(widest=1.38),
    "flip share 0.4": dict(flips=0.4),
}


@pytest.mark.parametrize("seeds", [4, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("ranges", SEEN)
def test_ranges_that_are_off_are_seen_with_every_seed(ranges, seeds):
    for seed in range(seeds):
        with pytest.raises(LevelFailed):
            crops.check(drawn_otherwise(seed, **SEEN[ranges]))


def test_too_many_values_beyond_a_sample_are_as_rare_as_said():
    inner, outer = 40, 10
    count = crops.least_beyond(inner, outer)
    probability = math.comb(outer, count) / math.comb(inner + outer, count)  # the `count` largest are all of `outer`
    assert probability < crops.ALPHA <= math.comb(outer, count - 1) / math.comb(inner + outer, count - 1)


def test_a_picture_is_read_to_a_part_of_a_pixel(tmp_path):
    from framework_compare.batches import preprocess

    listed = ramps.write(tmp_path / "ramps", ramps.FILES)
    drawn = crops.reference(ramps.FILES, 3)
    images = np.empty((ramps.FILES, 3, 64, 64), np.float32)
    for image, path, (left, top, width, height, flipped) in zip(images, listed.paths, drawn):
        crop = preprocess.Crop(int(left), int(top), int(width), int(height), "horizontal" if flipped else "none")
        preprocess.normalise_into(image, preprocess.decode_crop_resize(Path(path).read_bytes(), crop, 64), "NCHW")
    found = ramps.read(images)
    ramps.check_channels(found)
    fits = ramps.texture_of(images, found)
    ramps.check_labels(fits[textures.nearest(fits)].code, np.arange(ramps.FILES), listed)
    assert np.abs(ramps.crops_of(found) - drawn).max() < 0.5


def test_a_picture_that_is_padded_is_no_plain_crop():
    images = np.zeros((1, 3, 64, 64), np.float32)
    images[0, 0], images[0, 1] = np.linspace(0, 2, 64), np.linspace(0, 2, 64)[:, None]
    ramps.check_channels(ramps.read(images))
    images[:, :, :, :4] = 0.3
    with pytest.raises(LevelFailed, match="no plain crop"):
        ramps.check_channels(ramps.read(images))
