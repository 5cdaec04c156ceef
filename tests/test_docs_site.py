"""The documentation as a site: built without a warning, with the notebook executed and a search that finds pages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from browser_page import NEEDED, Opened, barriers

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


def test_pages_show_titles_options_and_what_a_notebook_gives(site):
    page = (site / "compare.html").read_text(encoding="utf-8")
    assert "faster than" in page and page.count("<svg") > 1 and "pss_peak_bytes</th>" in page
    page = (site / "generated" / "cli.html").read_text(encoding="utf-8")
    assert min(map(page.count, ("--help-all", "--clip-norm", "--internals"))) > 3
    assert "one verified verdict, and the report." in page, "typer cuts what a command does"
    page = (site / "results.html").read_text(encoding="utf-8")
    assert "columns.md</a>" not in page and ">Columns</span></a>" in page


def test_no_link_leads_nowhere(tmp_path):
    """Links to other sites need the internet: where no site answers, only those within the docs are judged."""
    options = "-D nb_execution_mode=off -D linkcheck_timeout=10 -D linkcheck_retries=1".split()
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "linkcheck", *options, str(DOCS), str(tmp_path)]
    subprocess.run(command, capture_output=True)
    found = [json.loads(line) for line in (tmp_path / "output.json").read_text().splitlines()]
    broken = [(one["filename"], one["uri"], one["info"]) for one in found if one["status"] in ("broken", "timeout")]
    elsewhere = {one["uri"] for one in found if one["uri"].startswith("http")}
    assert [link for link in broken if link[1] not in elsewhere] == []
    assert len(elsewhere) > 5
    if {uri for _, uri, _ in broken} >= elsewhere:
        pytest.skip("no other site answered: links to them can be checked with internet access only (nox -s links)")
    assert broken == []


@NEEDED
@pytest.mark.parametrize(
    "word, page", [("interleaved", "Glossary"), ("duel", "Verdicts"), ("Lerat", "Published studies")]
)
def test_the_search_finds_a_page(browser, site, word, page):
    opened = Opened(browser, site / "index.html")
    opened.page.fill("input[name=q]", word)
    opened.page.press("input[name=q]", "Enter")
    opened.page.wait_for_selector("#search-results ul.search li a")
    opened.page.wait_for_selector("#search-results >> text=Search finished")
    assert page in opened.texts("ul.search li a")


@NEEDED
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("page", ["tutorial", "columns", "api", "gallery", "compare", "generated/cli"])
def test_axe_finds_no_barrier(browser, site, page, width, scheme):
    opened = Opened(browser, site / f"{page}.html", width=width, scheme=scheme)
    assert barriers(opened.page) == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
