"""The documentation as a site: built without a warning, with the notebook executed and a search that finds pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from browser_page import CHROMIUM, Opened

pytest.importorskip("myst_nb", reason="the docs extra is not installed: pip install -e '.[docs]'")
pytestmark = pytest.mark.nightly
DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-2000:]
    return folder


def test_the_notebook_shows_what_its_cells_give(site):
    page = (site / "compare.html").read_text(encoding="utf-8")
    assert "faster than" in page and page.count("<svg") > 1 and "pss_peak_bytes</th>" in page


@pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed; on Debian: apt-get install chromium-headless-shell"
)
@pytest.mark.parametrize(
    "word, page", [("interleaved", "Glossary"), ("duel", "Verdicts"), ("Lerat", "Published studies")]
)
def test_the_search_finds_a_page(browser, site, word, page):
    opened = Opened(browser, site / "index.html")
    opened.page.fill("input[name=q]", word)
    opened.page.press("input[name=q]", "Enter")
    opened.page.wait_for_selector("#search-results ul.search li a")
    opened.page.wait_for_selector("#search-results >> text=Search finished")
    assert page in opened.page.eval_on_selector_all("ul.search li a", "all => all.map(one => one.textContent)")
