"""The site of an archive in a real browser: offline, at three widths, with and without scripts, searched, without barriers."""

import pytest
from browser_page import NEEDED, NO_FIGURES, Opened, barriers
from nightly import some_nightly
from published_study import archive

from framework_compare.archive import site

pytestmark = NEEDED
LOOKS = some_nightly(
    [(width, scheme) for width in (360, 768, 1280) for scheme in ("light", "dark")],
    nightly=[(360, "dark"), (768, "light"), (768, "dark"), (1280, "light")],
)
PAGES = ("index", "coverage", "models/alexnet", "frameworks/torch", "months/2026-11")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        site.build(archive(place / "archive", place, patch), place / "site")
    return place / "site"


def every_page(folder):
    kinds = (sorted((folder / kind).glob("*.html"))[0] for kind in ("machines", "versions", "submissions"))
    return [*(folder / f"{name}.html" for name in PAGES), *kinds]


@pytest.mark.parametrize("look", LOOKS)
def test_pages_draw_offline_without_an_error_fit_the_window_and_have_no_barrier(browser, folder, look):
    (width, scheme), drawn, looked_at = look, 0, []
    for path in every_page(folder):
        opened = Opened(browser, path, width=width, scheme=scheme)
        opened.draw_all()
        assert opened.messages == [], path
        asked = [url for url in opened.requests if not url.startswith("data:")]
        assert asked and all(url.startswith(folder.as_uri()) for url in asked), path
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert not NO_FIGURES & set(opened.texts(".plot svg text"))
        assert opened.count(".plot svg") == opened.count(".plot"), path
        drawn += opened.count(".plot svg")
        looked_at.append(opened.page)
    assert drawn >= 4
    for page in looked_at:
        assert barriers(page) == [], page.url


def test_a_mark_of_a_chart_leads_to_its_submission(browser, folder):
    opened = Opened(browser, folder / "models" / "alexnet.html")
    opened.draw_all()
    opened.page.locator("#condition-1 .plot svg .mark-symbol path").first.click()
    opened.page.wait_for_url("**/submissions/torch-*.html")
    assert opened.messages == []


def test_a_search_finds_submissions_and_has_a_permalink(browser, folder):
    opened = Opened(browser, folder / "index.html")
    opened.page.fill("#words", "vgg16 small")
    opened.page.wait_for_selector(".search li a")
    assert opened.count(".search li") == 1
    link = opened.page.url
    assert link.endswith("#q=vgg16%20small")
    again = Opened(browser, folder / "index.html")
    again.page.goto(link)
    again.page.reload()
    again.page.wait_for_selector(".search li a")
    again.page.click(".search li a")
    assert "/submissions/" in again.page.url and again.page.inner_text("h1").startswith("torch-jax-vgg16-")
    assert opened.messages == [] and again.messages == []


def test_pages_are_whole_without_scripts(browser, folder):
    opened = Opened(browser, folder / "models" / "alexnet.html", scripts=False)
    assert "replicated on 2 machines" in opened.page.inner_text("main")
    start = Opened(browser, folder / "index.html", scripts=False)
    assert not start.page.is_visible("#words") and start.count("#latest tbody tr") == 6
