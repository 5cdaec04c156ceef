"""Mistakes of augmentation: methods of a trainer, the words that level 4 has for each, the part of it that sees it."""

from network_mistakes import configured

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
            yield self.to_device_batch(images, labels)
"""
OPENED = """
    def open_pipeline(self, images):
        from framework_compare.batches import preprocess
        if self.random_crops:
            {change}
        return super().open_pipeline(images)
"""
RARELY_FLIPPED = """
    def open_pipeline(self, images):
        from framework_compare.batches import preprocess
        draw, chance = preprocess.draw_crop, numpy.random.RandomState(1)

        def draw_fewer(*where, flip):
            crop = draw(*where, flip=flip)
            return crop if chance.random_sample() < 0.86 else crop._replace(flip="none")

        preprocess.draw_crop = draw_fewer
        return super().open_pipeline(images)
"""
ALWAYS_HORIZONTAL = configured('flip=config.flip.replace("vertical", "horizontal")')
ALWAYS_FLIPPED = configured('flip="horizontal" if config.crop == "random" else config.flip')
WHOLE = configured('crop="none" if config.flip == "none" else config.crop')
LATE_LABELS = """
    def epoch(self, pipeline, number):
        batches = list(pipeline.epoch(number))
        labels = numpy.concatenate([found for _, found in batches])
        labels = numpy.roll(labels, self.config.batch_size) if self.random_crops else labels
        for i, (images, found) in enumerate(batches):
            start = i * self.config.batch_size
            yield self.to_device_batch(images, labels[start : start + len(found)])
"""
ORDERED = """
    def epoch(self, pipeline, number):
        from framework_compare.batches import images as shared
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
        from framework_compare.batches import images as shared
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
    def open_pipeline(self, images):
        from framework_compare.batches import preprocess
        draw, now, seeded, flips = preprocess.draw_crop, [], preprocess.image_state, ("horizontal", "none")

        def image_state(*which):
            now[:] = which
            return seeded(*which)

        def draw_crop(state, width, height, *, flip):
            crop, epoch, index = draw(state, width, height, flip=flip), now[1], now[2]
            u, v = state.random_sample(2)
            left = int(u * (width - crop.width + 1))
            return {change}

        if self.random_crops:
            preprocess.image_state, preprocess.draw_crop = image_state, draw_crop
        return super().open_pipeline(images)
"""
RESIZED = """
    def open_pipeline(self, images):
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
        return super().open_pipeline(images)
"""
FLIPPED_BATCHES = """
    def epoch(self, pipeline, number):
        for place, (images, labels) in enumerate(pipeline.epoch(number)):
            if self.random_crops and place % 2:
                images = numpy.ascontiguousarray(images[:, :, :, ::-1])
            yield self.to_device_batch(images, labels)

    def open_pipeline(self, images):
        import dataclasses
        if self.random_crops:
            self.config = dataclasses.replace(self.config, flip="none")
        return super().open_pipeline(images)
"""
BLURRED = RESIZED.replace("{change}", "image.resize((size, size), 2).filter(ImageFilter.{change})")
UNEXPLAINED = "what decoders and resamplers explain"
MISTAKES = {
    "two neighbours exchanged": (ORDERED.format(change=EXCHANGED), "over the whole set: positions in the list"),
    "batched before shuffled": (ORDERED.format(change=BATCHES), "not shuffled over the whole set"),
    "the same batches in another order": (SHUFFLED_BATCHES, "of 873 neighbours of another epoch are neighbours again"),
    "rolled by one": (ORDERED.format(change="return numpy.roll(listed, number)"), "not shuffled over the whole set"),
    "halves shuffled apart": (ORDERED.format(change=SECOND_HALF), "list and epoch 1 have a rank correlation"),
    "order alternates": (REPEATED.format(change="number % 2"), "epochs 1 and 3 have their images in the same order"),
    "all repeats from epoch 3": (REPEATED.format(change="(number - 1) % 2 + 1"), "epochs 1 and 3 have their images"),
    "one number for left and top": (
        DRAWN.format(change="crop._replace(left=left, top=int(u * (height - crop.height + 1)))"),
        "the place from the left and the place from the top of random crops are correlated",
    ),
    "flip by place": (
        DRAWN.format(change="crop._replace(left=left, flip=flips[int(2 * u)])"),
        "the place from the left and the flip of random crops are correlated",
    ),
    "flip by area": (
        DRAWN.format(change="crop._replace(flip=flips[int(crop.width * crop.height > 18200)])"),
        "the area and the flip of random crops are correlated",
    ),
    "flip by epoch": (DRAWN.format(change="crop._replace(flip=flips[epoch % 2])"), "in epoch 1, 0.000 of 874 images"),
    "flip by image": (
        DRAWN.format(change="crop._replace(flip=flips[index % 2])"),
        "the flip of an image's random crop correlates with that of another epoch",
    ),
    "place by image": (
        DRAWN.format(change="crop._replace(left=int((index * 0.618 + 0.01 * u) % 1 * (width - crop.width + 1)))"),
        "the place from the left of an image's random crop correlates with that of another epoch",
    ),
    "nearest pixel": (RESIZED.format(change="image.resize((size, size), 0)"), UNEXPLAINED),
    "bicubic": (RESIZED.format(change="image.resize((size, size), Image.Resampling.BICUBIC)"), UNEXPLAINED),
    "area": (RESIZED.format(change="image.resize((size, size), Image.Resampling.BOX)"), UNEXPLAINED),
    "blurred": (BLURRED.format(change="GaussianBlur(0.7)"), UNEXPLAINED),
    "box blur": (BLURRED.format(change="BoxBlur(1)"), UNEXPLAINED),
    "no antialias in random crops only": (
        RESIZED.format(change="image.transform((size, size), 0, affine, 2)"),
        "whole images are resized bilinear, antialiased, random crops bilinear",
        "still",
        "as trained",
    ),
    "flip by batch": (FLIPPED_BATCHES, "flips are drawn per batch"),
    "area from 0.15": (OPENED.format(change="preprocess.SCALE = (0.15, 1.0)"), "area of random crops is too narrow"),
    "area from 0.05": (OPENED.format(change="preprocess.SCALE = (0.05, 1.0)"), "area of random crops is too wide"),
    "area to 0.9": (OPENED.format(change="preprocess.SCALE = (0.08, 0.9)"), "area of random crops is too narrow"),
    "ratio 4/5 to 5/4": (OPENED.format(change="preprocess.RATIO = (4 / 5, 5 / 4)"), "random crops is too narrow"),
    "ratio 2/3 to 3/2": (OPENED.format(change="preprocess.RATIO = (2 / 3, 3 / 2)"), "crops is too wide"),
    "flip share 0.43": (RARELY_FLIPPED, "are flipped, expected 0.5"),
    "flipped along both axes": (
        EPOCH.format(change="images = numpy.ascontiguousarray(images[:, :, :: 1 - 2 * (number % 2)])"),
        "upside down",
    ),
    "of wide images all where none of ten tries fits": (
        OPENED.format(change="preprocess._centre_crop = lambda w, h, flip: preprocess.Crop(0, 0, w, h, flip)"),
        "of wide images have a side ratio of up to 3.75",
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
        "of tall images have a side ratio of up to 3.75",
        "tall",
    ),
    "images smaller than the network's whole": (
        DRAWN.format(
            change="crop if min(width, height) >= self.config.image_size else preprocess.whole(width, height)"
        ),
        "a side ratio of up to 3.75",
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
    def open_pipeline(self, images):
        self.few = len(images) < self.config.batch_size
        return super().open_pipeline(images)

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
    "colours paler": (EPOCH.format(change="images = images * numpy.float32(0.9)"), "of 255, expected"),
}


# Every other one is like one of these, seen by the same check; those of orders, draws and ranges are seen in
# numbers alone by test_pipeline_judges.py.
BY_DAY = (
    *("no antialias in random crops only", "area from 0.15", "of wide images all where none of ten tries fits"),
    *("a rest of one image dropped", "nothing of a set smaller than a batch", "vertical taken for horizontal"),
    *("flipped though not asked for", "whole images where nothing is flipped", "labels off by one"),
    "blue and red swapped",
)
NIGHTLY = [mistake for mistake in MISTAKES if mistake not in BY_DAY]
