"""A page in a real browser, offline, with what it said and what it asked for."""

import contextlib
import shutil
import time
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
NEEDED = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium-headless-shell")
NO_FIGURES = {"NaN", "nan", "undefined", "Infinity", "null"}  # what a chart shows of a value that is none


@contextlib.contextmanager
def launched():
    """A browser that reaches no other host."""
    sync = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: pip install -e '.[test]'")
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND"]
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield opened
        opened.close()


PLOT = ".plot:not(.view[hidden] .plot)"  # in no view, or in the view of a figure that is shown


class Opened:
    """A page with what it said on its console and what it asked for."""

    def __init__(self, browser, path: Path, *, width: int = 1280, scripts: bool = True, scheme: str = "light") -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, java_script_enabled=scripts, offline=True, color_scheme=scheme
        )
        self.page, self.messages, self.requests = context.new_page(), [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        started = time.perf_counter()
        self.page.goto(path.as_uri())
        self.seconds = time.perf_counter() - started

    def draw_all(self) -> None:
        """Scroll past every figure and wait until each is drawn."""
        for plot in self.page.query_selector_all(PLOT):
            plot.scroll_into_view_if_needed()
            self.page.wait_for_function("plot => plot.dataset.live === 'yes'", arg=plot, timeout=60_000)

    def count(self, selector: str) -> int:
        return len(self.page.query_selector_all(selector))

    def texts(self, selector: str) -> "list[str]":
        return self.page.eval_on_selector_all(selector, "all => all.map(one => one.textContent)")


def barriers(page) -> "list[tuple[str, list]]":
    """Return the barriers that axe finds on a page, and where; it has checked more than 20 rules."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: pip install -e '.[test]'"
    )
    found = axe.Axe().run(page).response
    assert len(found["passes"]) > 20 and found["testEngine"]["name"] == "axe-core"
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]]
