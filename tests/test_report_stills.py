"""The report before its scripts have run, and its colours in the dark."""

import io

import pytest
from browser_page import NEEDED, PLOT, Opened
from PIL import Image

from framework_compare.report.figures import files, look
from framework_compare.report.figures.subject import Subject

pytestmark = NEEDED
TEXT, SHAPE = 4.5, 3.0  # the lowest contrasts that WCAG allows
PAPER = (26, 26, 26)
APART = 60  # of two colours, as a distance of RGB


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_stills_fit_the_window_with_text_that_is_legible(browser, report_file, width):
    opened = Opened(browser, report_file, width=width, scripts=False)
    boxes = opened.page.eval_on_selector_all(
        f"{PLOT} img", "all => all.map(one => [one.getBoundingClientRect().right, one.width, one.currentSrc])"
    )
    assert len(boxes) > 8
    for right, wide, source in boxes:
        assert right <= width
        drawn = float(source.partition("width=")[2][1:].partition(source.partition("width=")[2][0])[0])
        assert wide / drawn > 0.7, "11 pixels become 8"


def test_stills_for_laptops_have_no_texts_upon_each_other(browser, comparison, tmp_path):
    """As images of their own: a page cannot look into its stills."""
    for name in ("learning", "resources", "machine"):
        for title, part in files.draw(Subject(comparison), name).items():
            (tmp_path / "still.svg").write_text(files.roomy(part).svg)
            boxes = Opened(browser, tmp_path / "still.svg").page.eval_on_selector_all(
                "text",
                """all => all.filter(one => one.textContent.trim()).map(one => [one.textContent,
                (box => [box.left, box.top, box.right, box.bottom])(one.getBoundingClientRect())])""",
            )
            for number, (one, (left, top, right, bottom)) in enumerate(boxes):
                for other, (left2, top2, right2, bottom2) in boxes[number + 1 :]:
                    across, down = min(right, right2) - max(left, left2), min(bottom, bottom2) - max(top, top2)
                    assert not (across > 0 and down > 2), (name, title, one, other)


def luminance(colour):
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_colours_in_the_dark_are_seen_and_told_apart(browser, report_file):
    page = Opened(browser, report_file, scheme="dark").page
    seen = {}
    for colour in (*look.COLOURS, look.WARNING, look.GREY, "#FFFFFF"):
        page.locator(".swatch").first.evaluate("(one, colour) => { one.style.background = colour; }", colour)
        image = Image.open(io.BytesIO(page.locator(".swatch").first.screenshot())).convert("RGB")
        seen[colour] = image.getpixel((image.width // 2, image.height // 2))
    assert seen.pop("#FFFFFF") == PAPER
    assert contrast(seen[look.WARNING], PAPER) >= TEXT and contrast(seen[look.GREY], PAPER) >= TEXT
    assert {colour: one for colour, one in seen.items() if contrast(one, PAPER) < SHAPE} == {}
    red, green, blue = seen[look.WARNING]
    assert red > 2 * max(green, blue), "captions call it red"
    hues = [one for colour, one in seen.items() if colour in (*look.COLOURS, look.WARNING)]
    for number, one in enumerate(hues):
        for other in hues[number + 1 :]:
            assert sum((a - b) ** 2 for a, b in zip(one, other)) ** 0.5 > APART, (one, other)
