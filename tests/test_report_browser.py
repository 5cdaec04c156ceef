"""The report in a real browser: offline, with and without scripts, narrow and wide, on paper, with hostile names."""

from __future__ import annotations

import functools
import shutil
import time
from pathlib import Path

import pytest
from drawn_study import study

from framework_compare.comparison import Comparison
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report.page import report
from framework_compare.store.study_file import Store

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed; on Debian: apt-get install chromium-headless-shell"
)
HOSTILE = "</script><img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: pip install -e '.[test]'")
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND"]
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    return study(tmp_path_factory.mktemp("browser") / "study")


@pytest.fixture(scope="module")
def path(comparison):
    return comparison.report(comparison.folder.parent / "report.html")


class Opened:
    """A page with what it said on its console and what it asked for."""

    def __init__(self, browser, path: Path, *, width: int = 1280, scripts: bool = True) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, java_script_enabled=scripts, offline=True
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
        for plot in self.page.query_selector_all(".plot"):
            plot.scroll_into_view_if_needed()
            self.page.wait_for_function("plot => plot.dataset.live === 'yes'", arg=plot, timeout=60_000)

    def count(self, selector: str) -> int:
        return len(self.page.query_selector_all(selector))


@pytest.fixture(scope="module")
def drawn(browser, path):
    """The page with every figure drawn, by its width, for tests that leave it as it is."""

    @functools.lru_cache(maxsize=None)
    def of(width):
        opened = Opened(browser, path, width=width)
        opened.draw_all()
        return opened

    return of


def test_it_draws_every_figure_offline_without_an_error(drawn, path):
    opened = drawn(1280)
    assert opened.count(".plot svg") == opened.count(".plot") == opened.count("script[id^=spec-]") > 8
    assert [url for url in opened.requests if not url.startswith("data:")] == [path.as_uri()]
    assert opened.messages == []
    texts = opened.page.eval_on_selector_all(".plot svg text", "all => all.map(one => one.textContent)")
    assert len(texts) > 100
    assert not {"NaN", "undefined", "Infinity", "null"} & set(texts)


def test_the_marks_of_the_epoch_times_are_the_cells(drawn, comparison):
    shown = drawn(1280).page.eval_on_selector_all("#F2 svg text", "all => all.map(one => one.textContent)")
    ok = (comparison.frame["status"] == "ok").sum()
    assert sum(text.endswith("x") and text[0].isdigit() for text in shown) == ok
    assert shown.count("crashed") == len(comparison.frame) - ok


def test_the_numbers_of_the_table_are_those_of_the_frame(browser, path, comparison):
    opened = Opened(browser, path)
    rows = opened.page.eval_on_selector_all(
        "[data-cell]",
        "all => all.map(r => [r.dataset.cell, r.querySelector('[data-name=epoch_s_median]').textContent])",
    )
    for place, text in rows:
        value = comparison.frame["epoch_s_median"][int(place)]
        assert text == "-" if value != value else float(text) == pytest.approx(value, rel=0.005)


def test_sorting_orders_the_rows_by_their_stored_values(browser, path):
    opened = Opened(browser, path)
    heading = opened.page.locator("#cells thead button", has_text="images/s")
    for expected in ("ascending", "descending"):
        heading.click()
        values = opened.page.eval_on_selector_all(
            "[data-name=images_per_s][data-value]", "all => all.map(one => Number(one.dataset.value))"
        )
        assert values == sorted(values, reverse=expected == "descending")
        assert opened.page.locator(f"#cells th[aria-sort={expected}]").count() == 1


def test_without_scripts_all_figures_and_tables_are_there(browser, path):
    opened = Opened(browser, path, scripts=False)
    assert opened.count(".plot img") == opened.count(".plot") > 8
    assert opened.count("[data-cell]") == 6
    assert opened.page.locator(".plot img").first.bounding_box()["height"] > 50
    assert opened.messages == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(drawn, width):
    assert drawn(width).page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_no_figure_is_wider_than_the_page(browser, path, tmp_path):
    opened = Opened(browser, path)
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 718, "height": 1000})
    widths = opened.page.eval_on_selector_all(
        ".plot img, .plot svg", "all => all.map(o => o.getBoundingClientRect().right)"
    )
    assert max(widths) <= 718
    opened.page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000


def test_every_still_is_there_soon_after_the_page_so_that_it_prints(browser, path):
    opened = Opened(browser, path)
    missing = "all => all.filter(one => !(one.complete && one.naturalWidth)).length"
    until = time.monotonic() + 30
    while opened.page.eval_on_selector_all(".plot img", missing) and time.monotonic() < until:
        time.sleep(0.1)
    assert opened.page.eval_on_selector_all(".plot img", missing) == 0
    assert opened.count(".plot img") >= opened.count(".plot") / 2, (
        "figures that nobody has scrolled to are still stills"
    )


def test_the_policy_forbids_eval(browser, path):
    opened = Opened(browser, path)
    attempt = "try { new Function('return 1')(); window.outcome = 'ran'; } catch (e) { window.outcome = e.name; }"
    # Later, as a debugger's own evaluation is exempt from the policy.
    opened.page.add_script_tag(content=f"setTimeout(() => {{ {attempt} }}, 0)")
    opened.page.wait_for_function("window.outcome")
    assert opened.page.evaluate("window.outcome") == "EvalError"


def test_hostile_names_run_nothing(browser, tmp_path):
    failure = Run("failed", HOSTILE, log_tail=HOSTILE)
    made = study(tmp_path / "study", (HOSTILE, "__proto__"), ("constructor", "x" * 5_000), failure=failure,
                 failing=[("__proto__", "constructor")], dataset=HOSTILE, repeats=2)  # fmt: skip
    opened = Opened(browser, made.report(tmp_path / "report.html"))
    opened.draw_all()
    assert opened.page.evaluate("window.broken") is None
    assert opened.messages == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.nightly
@pytest.mark.alone
def test_a_report_of_a_hundred_cells_opens_within_a_second(browser, tmp_path):
    configs = tuple(TrainConfig(batch_size=size) for size in (1, 8, 16, 32, 64))
    frameworks, models = (
        ("torch", "tensorflow", "mxnet", "paddle", "jax"),
        ("alexnet", "mobilenet_v2", "resnet50", "vgg16"),
    )
    path = study(tmp_path / "study", frameworks, models, configs=configs, failing=()).report(tmp_path / "report.html")
    assert min(Opened(browser, path).seconds for _ in range(3)) < 1.0


@pytest.mark.nightly
def test_ten_thousand_cells_open_within_three_seconds(browser, tmp_path):
    cells = [Cell("torch", "alexnet", "small", "cpu", TrainConfig(seed=seed)) for seed in range(10_000)]
    with Store.create(tmp_path / "study", settings={}, machine={}, cells=cells, repeats=1) as store:
        for run_id, _, _ in store.plan():
            store.record(run_id, Run("failed", "no reason"))
    path = tmp_path / "report.html"
    path.write_text(report.render(Comparison.load(tmp_path / "study")))
    opened = Opened(browser, path)
    assert opened.seconds < 3.0
    assert opened.count("[data-cell]") == report.MAX_ROWS
    assert "9000 more cells" in opened.page.inner_text("#cells")


@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_no_barrier(drawn, width):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: pip install -e '.[test]'"
    )
    found = axe.Axe().run(drawn(width).page).response
    assert [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20 and found["testEngine"]["name"] == "axe-core"


def test_axe_sees_a_barrier(browser, path):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: pip install -e '.[test]'"
    )
    opened = Opened(browser, path)
    opened.page.evaluate("document.documentElement.removeAttribute('lang')")
    assert "html-has-lang" in [one["id"] for one in axe.Axe().run(opened.page).response["violations"]]
