"""datasets/preprocess.py: the crop that is drawn, the pixels that come out, the normalisation."""

import io
import math

import numpy as np
import pytest
from bounds import rounding, standard_errors
from PIL import Image

from framework_compare.batches import preprocess
from framework_compare.batches.preprocess import Crop, decode_crop_resize, draw_crop, image_state


def gradient(width: int, height: int) -> Image.Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))


def resized(image: Image.Image, box: "tuple[int, int, int, int]") -> np.ndarray:
    return np.asarray(image.crop(box).resize((50, 50), Image.Resampling.BILINEAR)).astype(int)


def encoded(image: Image.Image, form: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def reference_crop(state: np.random.RandomState, width: int, height: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop.get_params as torchvision writes it, on another generator."""
    for _ in range(10):
        area = width * height * state.uniform(0.08, 1.0)
        ratio = math.exp(state.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = int(round(math.sqrt(area * ratio))), int(round(math.sqrt(area / ratio)))
        if 0 < w <= width and 0 < h <= height:
            return state.randint(0, width - w + 1), state.randint(0, height - h + 1), w, h
    if width / height < 3 / 4:
        w, h = width, int(round(width / (3 / 4)))
    elif width / height > 4 / 3:
        w, h = int(round(height * (4 / 3))), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


@pytest.mark.parametrize("width, height", [(640, 480), (300, 300), (480, 1280), (2000, 100)], ids=str)
def test_crops_are_distributed_as_random_resized_crop(width: int, height: int) -> None:
    count = 6000
    other = np.random.RandomState(99)
    ours = np.array([draw_crop(image_state(1, 0, i), width, height)[:4] for i in range(count)], float)
    theirs = np.array([reference_crop(other, width, height) for _ in range(count)], float)
    for column in range(4):
        grid = np.unique(np.concatenate([ours[:, column], theirs[:, column]]))
        cdfs = [np.searchsorted(np.sort(a[:, column]), grid, "right") / count for a in (ours, theirs)]
        # Kolmogorov-Smirnov, two samples, alpha 1e-4
        assert np.abs(cdfs[0] - cdfs[1]).max() < 2.23 * math.sqrt(2 / count)


@pytest.mark.parametrize("width, height", [(1, 1), (1, 1000), (1000, 1), (2, 3), (500, 375), (5000, 40)], ids=str)
def test_crops_lie_inside_the_image(width: int, height: int) -> None:
    for i in range(200):
        crop = draw_crop(image_state(0, 0, i), width, height)
        assert crop.width >= 1 <= crop.height
        assert 0 <= crop.left <= width - crop.width and 0 <= crop.top <= height - crop.height


def test_half_of_the_images_are_flipped_and_extreme_ones_fall_back_to_their_centre() -> None:
    for size, expected in {(1000, 100): (433, 0, 133, 100), (100, 1000): (0, 433, 100, 133)}.items():
        crops = [draw_crop(image_state(0, 0, i), *size)[:4] for i in range(100)]
        assert crops.count(expected) > 50
    for flip in ("horizontal", "vertical"):
        flips = [draw_crop(image_state(5, 0, i), 300, 200, flip=flip).flip for i in range(4000)]
        assert set(flips) == {flip, "none"}
        assert abs(flips.count(flip) / 4000 - 0.5) < standard_errors(0.5, 4000)
    for i in range(100):
        plain = draw_crop(image_state(5, 0, i), 300, 200, flip="none")
        assert plain.flip == "none"
        assert plain[:4] == draw_crop(image_state(5, 0, i), 300, 200, flip="vertical")[:4]


def test_a_crop_depends_on_seed_epoch_and_index() -> None:
    key = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (2**32, 0, 0)]
    crops = [draw_crop(image_state(*k), 4000, 3000) for k in key]
    assert len(set(crops)) == len(key)
    assert crops == [draw_crop(image_state(*k), 4000, 3000) for k in key]
    # Results of studies years apart are compared: these numbers must never change.
    assert draw_crop(image_state(0, 0, 0), 640, 480) == Crop(37, 49, 354, 411, "horizontal")
    assert draw_crop(image_state(7, 3, 41), 640, 480) == Crop(188, 68, 365, 355, "horizontal")


def test_a_whole_image_is_stretched_and_a_crop_cut_out_before_it_is_resized() -> None:
    image = gradient(400, 100)
    pixels = decode_crop_resize(encoded(image, "PNG"), preprocess.whole(400, 100), 50)
    expected = np.asarray(image.resize((50, 50), Image.Resampling.BILINEAR))
    assert np.array_equal(pixels, expected)
    image = gradient(300, 200)
    pixels = decode_crop_resize(encoded(image, "PNG"), Crop(31, 17, 120, 150), 64)
    expected = image.crop((31, 17, 151, 167)).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.array_equal(pixels, np.asarray(expected))
    assert pixels.shape == (64, 64, 3) and pixels.dtype == np.uint8 and pixels.flags.c_contiguous
    data = encoded(gradient(90, 120))
    plain = decode_crop_resize(data, Crop(10, 20, 60, 70), 32)
    for flip, axis in (("horizontal", 1), ("vertical", 0)):
        assert np.array_equal(decode_crop_resize(data, Crop(10, 20, 60, 70, flip), 32), np.flip(plain, axis))


RESIZED = 2  # levels: half a one for either axis of two images that are resized
CROPS = [(0, 0, 1000, 700), (13, 5, 801, 633), (869, 569, 131, 131), (3, 1, 517, 260), (600, 400, 9, 5)]


@pytest.mark.parametrize("crop", [Crop(*box) for box in CROPS], ids=lambda c: f"{c.width}x{c.height}")
@pytest.mark.parametrize("size", [32, 64, 224])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=["420", "progressive", "444"])
def test_simplejpeg_and_pillow_give_the_same_pixels(monkeypatch, crop: Crop, size: int, options: dict) -> None:
    data = encoded(gradient(1000, 700), quality=90, **options)
    whole, divisor = preprocess.whole(1000, 700), preprocess._divisor(crop, size)
    whole_by_simplejpeg = np.asarray(preprocess._decode_jpeg(data, whole, divisor))
    whole_by_pillow = np.asarray(preprocess._decode_any(data, whole, divisor)[0])
    fast = decode_crop_resize(data, crop, size)
    monkeypatch.setattr(preprocess, "simplejpeg", None)
    slow = decode_crop_resize(data, crop, size)
    # They may be of two builds of libjpeg-turbo; what is resized differs by no more than what was decoded.
    decoders = np.abs(whole_by_simplejpeg.astype(int) - whole_by_pillow).max()
    assert np.abs(fast.astype(int) - slow).max() <= (decoders + RESIZED if decoders else 0)


@pytest.mark.parametrize("width, height", [(1001, 703), (999, 515), (224 * 8 + 7, 224 * 8 + 1)], ids=str)
@pytest.mark.parametrize("with_simplejpeg", [True, False], ids=["simplejpeg", "pillow"])
def test_decoding_small_moves_nothing(monkeypatch, width: int, height: int, with_simplejpeg: bool) -> None:
    if not with_simplejpeg:
        monkeypatch.setattr(preprocess, "simplejpeg", None)
    image = gradient(width, height)
    crop = Crop(width - 470, height - 500, 469, 497)
    data = encoded(image, quality=98)
    pixels = decode_crop_resize(data, crop, 50).astype(int)
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    expected = resized(image, box)
    inner = (slice(1, -1), slice(1, -1))  # at its edges the crop alone is a different image
    full = np.abs(resized(Image.open(io.BytesIO(data)), box) - expected)[inner].max()
    assert np.abs(pixels - expected)[inner].max() <= full + RESIZED
    moved = np.abs(resized(image, tuple(side + 1 for side in box)) - expected)[inner].mean(axis=(0, 1))
    found = np.abs((pixels - expected)[inner].mean(axis=(0, 1)))
    assert (found < moved / 2).all(), "by half a pixel of the file or more"


@pytest.mark.parametrize("with_simplejpeg", [True, False], ids=["simplejpeg", "pillow"])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_exif_orientation_is_ignored(monkeypatch, with_simplejpeg: bool, form: str) -> None:
    if not with_simplejpeg:
        monkeypatch.setattr(preprocess, "simplejpeg", None)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned, plain = encoded(gradient(200, 100), form, exif=exif), encoded(gradient(200, 100), form)
    assert turned != plain
    assert preprocess.encoded_size(turned) == (200, 100)
    crop = Crop(20, 10, 150, 80)
    assert np.array_equal(decode_crop_resize(turned, crop, 40), decode_crop_resize(plain, crop, 40))


def convert(mode: str) -> Image.Image:
    return gradient(80, 60).convert(mode)


def test_grey_and_cmyk_jpegs_become_rgb() -> None:
    pixels = decode_crop_resize(encoded(convert("L")), Crop(0, 0, 80, 60), 30)
    assert pixels.shape == (30, 30, 3)
    assert np.array_equal(pixels[..., 0], pixels[..., 2])
    data = encoded(convert("CMYK"), quality=95)
    pixels = decode_crop_resize(data, Crop(0, 0, 80, 60), 30)
    expected = np.asarray(gradient(80, 60).resize((30, 30), Image.Resampling.BILINEAR))
    inks = np.asarray(convert("CMYK")).astype(int)
    lost = np.abs(np.asarray(Image.open(io.BytesIO(data))) - inks).max()
    assert np.abs(pixels.astype(int) - expected).max() <= 2 * lost + RESIZED, "of an ink, and of black"


@pytest.mark.filterwarnings("error")
def test_png_of_any_mode_becomes_rgb_without_a_warning_and_16_bits_keep_their_high_byte() -> None:
    for mode in ("P", "RGBA", "LA", "1", "L"):
        pixels = decode_crop_resize(encoded(convert(mode), "PNG"), Crop(0, 0, 80, 60), 30)
        expected = np.asarray(convert(mode).convert("RGB").resize((30, 30), Image.Resampling.BILINEAR))
        assert np.array_equal(pixels, expected), mode
    data = encoded(convert("P"), "PNG", transparency=bytes(range(256)))
    assert decode_crop_resize(data, Crop(0, 0, 80, 60), 30).shape == (30, 30, 3)
    values = (np.arange(256, dtype=np.uint16) * 256 + 77).reshape(16, 16)
    data = encoded(Image.fromarray(values), "PNG")
    pixels = decode_crop_resize(data, Crop(0, 0, 16, 16), 16)
    assert np.array_equal(pixels[..., 1], np.arange(256).reshape(16, 16))


@pytest.mark.parametrize("data", [b"", b"no image", encoded(gradient(300, 300))[:3000]], ids=["empty", "text", "cut"])
def test_what_does_not_decode_raises(data: bytes) -> None:
    with pytest.raises((OSError, ValueError)):
        decode_crop_resize(data, Crop(0, 0, 300, 300), 30)


def test_normalise_is_what_the_protocol_says() -> None:
    pixels = np.random.RandomState(0).randint(0, 256, (16, 16, 3)).astype(np.uint8)
    expected = (pixels / 255 - np.array(preprocess.MEAN)) / np.array(preprocess.STD)
    allowed = rounding(3, np.float32) * np.abs(pixels / 255 / np.array(preprocess.STD)).max()
    for layout, shape in (("NCHW", (3, 16, 16)), ("NHWC", (16, 16, 3))):
        out = np.full(shape, np.nan, np.float32)
        preprocess.normalise_into(out, pixels, layout)
        hwc = out.transpose(1, 2, 0) if layout == "NCHW" else out
        np.testing.assert_allclose(hwc, expected, rtol=0, atol=allowed)
