"""The images of the docs: their scripts find the figures of the records, and the gallery's page is what its script writes."""

import json
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PUBLISHED = runpy.run_path(str(DOCS / "published.py"))["IMAGES"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_image_of_a_published_study_has_the_figures_of_the_record(name):
    text = json.dumps(PUBLISHED[name]().to_dict())
    assert text.count('"by": "here"') >= 10 and "NaN" not in text
    assert ('"by": "published"' in text) == (name in ("lerat2021", "abidate2025"))
    assert (DOCS / "reproductions" / f"{name}.svg").is_file()


def test_the_image_of_a_study_of_images_has_each_published_ratio_beside_ours():
    (rows,) = PUBLISHED["lerat2021"]().to_dict()["datasets"].values()
    values = {
        (row["framework"], row["by"]): round(row["value"], 2)
        for row in rows
        if row["model"] == "VGG-16, small data set"
    }
    assert len(values) == 8 and values["PaddlePaddle", "published"] == 11.54 and values["PaddlePaddle", "here"] == 2.59


@pytest.mark.nightly
def test_the_page_of_the_gallery_is_what_its_script_writes():
    page = runpy.run_path(str(DOCS / "gallery.py"))["gallery"](draw=False)
    assert (DOCS / "gallery.md").read_text() == page, "run `python docs/gallery.py`"
