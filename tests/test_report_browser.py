"""The report in a real browser: offline, with and without scripts, narrow and wide, on paper, with hostile names."""

import functools
import time

import pandas
import pytest
from bounds import digits
from browser_page import NEEDED, NO_FIGURES, PLOT, Opened, barriers
from drawn_study import study

from framework_compare.protocol import TrainConfig
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.renderers import DIGITS

pytestmark = NEEDED
SCREENS = (360, 768, 1280)  # pixels: a phone, a tablet, a laptop
COPY = "document.addEventListener('copy', event => { window.copied = event.target.value; }, { once: true })"
A4 = 1000  # pixels of height that a page has within its margins


@pytest.fixture(scope="module")
def drawn(browser, report_file):
    """The page with every figure drawn, by its width, for tests that leave it as it is."""

    @functools.lru_cache(maxsize=None)
    def of(width):
        opened = Opened(browser, report_file, width=width)
        opened.draw_all()
        return opened

    return of


def test_it_draws_every_figure_offline_without_an_error(drawn, report_file, comparison):
    opened = drawn(1280)
    assert opened.count(".plot svg") == opened.count(PLOT) > 8
    assert opened.count("script[id^=spec-]") == opened.count(".plot") > opened.count(PLOT)
    assert [url for url in opened.requests if not url.startswith("data:")] == [report_file.as_uri()]
    assert opened.messages == []
    texts = opened.texts(".plot svg text")
    assert len(texts) > 100
    assert not NO_FIGURES & set(texts)
    shown = opened.texts("#F2 svg text")
    ok = (comparison.frame["status"] == "ok").sum()
    assert sum(text.endswith("x") and text[0].isdigit() for text in shown) == ok
    assert shown.count("crashed") == len(comparison.frame) - ok
    room = drawn(1280).page.eval_on_selector("#cells .scroll", "one => [one.scrollWidth, one.clientWidth]")
    assert room[0] <= room[1]


def test_tables_are_sorted_by_their_stored_values_by_mouse_and_by_keyboard(browser, report_file):
    opened = Opened(browser, report_file)
    heading = opened.page.locator("#cells thead button", has_text="images/s")
    for expected in ("ascending", "descending"):
        heading.click()
        values = opened.page.eval_on_selector_all(
            "[data-name=images_per_s][data-value]", "all => all.map(one => Number(one.dataset.value))"
        )
        assert values == sorted(values, reverse=expected == "descending")
        assert opened.page.locator(f"#cells th[aria-sort={expected}]").count() == 1
    opened = Opened(browser, report_file)
    heading = opened.page.locator("#tables thead button", has_text="ratio").first
    heading.focus()
    for expected in ("ascending", "descending"):
        heading.press("Enter")
        assert opened.page.locator(f"#tables th[aria-sort={expected}]").count() == 1
        ratios = opened.page.locator("#tables table").first.locator("tbody td:nth-child(3)").all_text_contents()
        numbers = [float(text) for text in ratios]
        assert len(numbers) == 3 and numbers == sorted(numbers, reverse=expected == "descending")


def test_without_scripts_all_figures_and_tables_are_there(browser, report_file):
    opened = Opened(browser, report_file, scripts=False)
    assert opened.count(".plot img") == opened.count(PLOT) > 8
    assert not opened.page.locator("fieldset").first.is_visible(), "what needs scripts is not offered"
    assert opened.count("[data-cell]") == 6
    assert opened.page.locator(".plot img").first.bounding_box()["height"] > 50
    assert opened.messages == []


def test_on_paper_no_figure_is_wider_than_the_page(browser, report_file, tmp_path):
    opened = Opened(browser, report_file)
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 718, "height": 1000})
    widths = opened.page.eval_on_selector_all(
        ".plot img, .plot svg", "all => all.map(o => o.getBoundingClientRect().right)"
    )
    assert max(widths) <= 718
    # Chromium cuts what may not break only where it is higher than the page.
    plots = opened.page.eval_on_selector_all(
        ".view:not([hidden]) figure",
        "all => all.map(one => [one.getBoundingClientRect().height, getComputedStyle(one).breakInside])",
    )
    assert len(plots) > 8 and max(height for height, _ in plots) < A4 and {broken for _, broken in plots} == {"avoid"}
    opened.page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000


def test_every_still_is_there_soon_after_the_page_whose_policy_forbids_eval(browser, report_file):
    opened = Opened(browser, report_file)
    missing = "all => all.filter(one => !(one.complete && one.naturalWidth)).length"
    until = time.monotonic() + 30
    while opened.page.eval_on_selector_all(".plot img", missing) and time.monotonic() < until:
        time.sleep(0.1)
    assert opened.page.eval_on_selector_all(".plot img", missing) == 0
    assert opened.count(".plot img") >= opened.count(PLOT) / 2, "figures that nobody has scrolled to are still stills"
    opened = Opened(browser, report_file)
    attempt = "try { new Function('return 1')(); window.outcome = 'ran'; } catch (e) { window.outcome = e.name; }"
    # Later, as a debugger's own evaluation is exempt from the policy.
    opened.page.add_script_tag(content=f"setTimeout(() => {{ {attempt} }}, 0)")
    opened.page.wait_for_function("window.outcome")
    assert opened.page.evaluate("window.outcome") == "EvalError"


def wait_until_drawn(opened):
    drawn = f"() => [...document.querySelectorAll('{PLOT}')].every(plot => plot.dataset.live !== '')"
    opened.page.wait_for_function(drawn, timeout=60_000)


def test_a_choice_before_a_figure_is_seen_holds_for_it(browser, report_file):
    opened = Opened(browser, report_file)
    opened.page.locator(".choices input[value=MXNet]").uncheck()
    everywhere = "() => [...document.querySelectorAll('.plot')].every(one => one.dataset.live === 'yes')"
    opened.page.wait_for_function(everywhere, timeout=60_000)
    for figure in ("#F2", "#F4", "#F6"):  # legends keep every name
        texts = opened.texts(f"{figure} svg text")
        assert "PyTorch" in texts and "MXNet" not in texts, figure
    assert opened.messages == []


def test_a_framework_that_is_unchecked_leaves_the_figures(browser, report_file):
    def texts(selector):
        return opened.texts(f"{selector} svg text")

    opened = Opened(browser, report_file)
    opened.draw_all()
    name = opened.page.get_attribute("#F2 svg[role=img]", "aria-label")
    assert "MXNet" in texts("#F2") and "MXNet" in texts("#F6")
    opened.page.locator(".choices input[value=MXNet]").focus()
    opened.page.keyboard.press("Space")
    wait_until_drawn(opened)
    for figure in ("#F2", "#F6"):
        assert "MXNet" not in texts(figure) and "PyTorch" in texts(figure)
    assert opened.page.get_attribute("#F2 svg[role=img]", "aria-label") == name
    opened.page.locator(".choices input[value=JAX]").uncheck()
    assert opened.page.locator(".choices input[value=PyTorch]").is_disabled(), "a figure of nothing says nothing"
    opened.page.locator(".choices input[value=MXNet]").check()
    wait_until_drawn(opened)
    assert "MXNet" in texts("#F2") and opened.messages == []


def test_another_view_of_a_figure_takes_its_place(browser, report_file):
    figure, usual, other = "#F2", "seconds per epoch", "images per second"
    opened = Opened(browser, report_file)
    page = opened.page
    page.wait_for_function(f"() => document.querySelector('{figure} .views').hidden === false")
    page.locator(f"{figure} .views input").nth(1).check()
    page.locator(f"{figure} .views input").nth(1).press("ArrowLeft")  # by keyboard, too
    page.locator(f"{figure} .views input").first.press("ArrowRight")
    page.wait_for_function(f"() => document.querySelector('{figure} {PLOT}').dataset.live === 'yes'")
    assert page.locator(f"{figure} .view >> visible=true").count() == 1
    texts = page.locator(f"{figure} {PLOT}").first.text_content()
    assert other in texts and usual not in texts
    assert opened.messages == []


def test_a_table_and_the_citation_are_copied_as_they_are_shown(browser, report_file, comparison):
    opened = Opened(browser, report_file)
    opened.page.evaluate(COPY)
    opened.page.get_by_role("button", name="Copy as Markdown").first.click()
    lines = opened.page.evaluate("window.copied").splitlines()
    shown = comparison.table("time", style="markdown")
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) > 4 and all(line in shown for line in rows)
    opened = Opened(browser, report_file)
    opened.page.evaluate(COPY)
    opened.page.get_by_role("button", name="Copy as citation").click()
    assert opened.page.evaluate("window.copied") == opened.page.inner_text("#cite pre")


def test_the_csv_that_is_downloaded_has_the_frames_figures(browser, report_file, comparison, tmp_path):
    opened = Opened(browser, report_file)
    with opened.page.expect_download() as download:
        opened.page.get_by_role("link", name="Download all columns as CSV").click()
    download.value.save_as(tmp_path / "cells.csv")
    read = pandas.read_csv(tmp_path / "cells.csv")
    assert list(read["framework"]) == list(comparison.frame["framework"])
    assert read["epoch_s_median"].to_numpy() == pytest.approx(
        comparison.frame["epoch_s_median"].to_numpy(), rel=digits(DIGITS), nan_ok=True
    )


def test_each_entry_of_the_contents_leads_to_its_part(browser, report_file):
    opened = Opened(browser, report_file)
    places = opened.page.eval_on_selector_all("nav a", "all => all.map(one => one.getAttribute('href'))")
    assert "#question-4" in places and len(set(places)) == len(places)
    for place in places:
        assert opened.count(place) == 1, place
    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    page = context.new_page()
    page.goto(f"{report_file.as_uri()}#F4")
    page.wait_for_function("() => document.querySelector('#F4 .plot').dataset.live === 'yes'")
    top = page.locator("#F4 h3").bounding_box()["y"]
    assert -1 <= top < 800, "the figures above were drawn meanwhile"


@pytest.mark.parametrize("width", SCREENS)
def test_every_mark_of_a_figure_is_in_the_window_which_never_scrolls_sideways(drawn, width):
    page = drawn(width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.eval_on_selector_all(
        f"{PLOT} svg",
        """all => all.map(svg => { const box = svg.getBoundingClientRect();
            return [box.left, box.right, box.width / svg.viewBox.baseVal.width]; })""",
    )
    assert len(wide) > 8
    assert min(left for left, _, _ in wide) >= 0 and max(right for _, right, _ in wide) <= width
    assert min(scale for _, _, scale in wide) > 0.9, "text stays legible"
    held = page.eval_on_selector_all(
        f"{PLOT} svg",
        """all => all.map(svg => { const box = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('.mark-symbol path, .mark-rect path, .mark-text text')].filter(one => {
                const own = one.getBoundingClientRect();
                return own.width > 0 && (own.left < box.left - 2 || own.right > box.right + 2);
            }).length; })""",
    )
    assert sum(held) == 0
    # A panel has a mark, or the status of a cell that failed; only JAX's VGG-16 failed.
    panels = page.eval_on_selector_all(
        "#F2 .plot svg, #F3 .plot svg, #F4 .view:not([hidden]) .plot svg, #F5 .plot svg",
        """all => all.flatMap(svg => [...svg.querySelectorAll('g[class*="cell"] > g')])
        .map(one => one.querySelectorAll('.mark-symbol path, .mark-line path, .mark-text text').length)""",
    )
    assert len(panels) > 8 and min(panels) > 0


def test_a_figure_takes_the_layout_that_fits_a_window_that_changes(browser, report_file):
    opened = Opened(browser, report_file)
    opened.draw_all()
    before = opened.page.locator("#F2 svg[role=img]").bounding_box()["width"]
    opened.page.set_viewport_size({"width": 360, "height": 800})
    opened.page.wait_for_function("() => document.querySelector('#F2 .plot').dataset.width !== '980'")
    opened.draw_all()
    assert opened.page.locator("#F2 svg[role=img]").bounding_box()["width"] < 340 < before
    assert opened.messages == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_as_dark_as_the_system_until_it_is_told_otherwise(browser, report_file, scheme):
    opened = Opened(browser, report_file, scheme=scheme)

    def ground():
        return opened.page.evaluate("getComputedStyle(document.body).backgroundColor")

    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(26, 26, 26)"}
    (other,) = paper.keys() - {scheme}
    assert ground() == paper[scheme]
    opened.page.get_by_role("button", name=other.capitalize()).press("Enter")
    assert ground() == paper[other]
    assert (
        Opened(browser, report_file, scheme=scheme, scripts=False)
        .page.evaluate("getComputedStyle(document.querySelector('.plot img')).filter")
        .startswith("url(" if scheme == "dark" else "none")
    )


@pytest.mark.parametrize("width", SCREENS)
def test_labels_do_not_lie_upon_each_other_and_no_mark_of_the_epoch_times_touches_its_own(drawn, width):
    page = drawn(width).page
    figures = page.eval_on_selector_all("section.figure", "all => all.map(one => '#' + one.id)")
    assert len(figures) == len(FIGURES) - 2, "all but those of several settings, which follow"
    assert {figure: found for figure in figures if (found := overlapping(page, figure))} == {}
    gaps = page.eval_on_selector_all(
        "#F2 .view:not([hidden]) .plot svg",
        """all => all.flatMap(svg => {
            const boxes = (query) => [...svg.querySelectorAll(query)].map(one => [one.textContent, one.getBoundingClientRect()]);
            const marks = boxes('.mark-symbol path').map(([, box]) => box);
            return boxes('text').filter(([text]) => /^[0-9.]+x$/.test(text)).flatMap(([, label]) => marks
                .filter(mark => mark.top < label.bottom && label.top < mark.bottom && mark.left + mark.width / 2 < label.left)
                .map(mark => label.left - mark.right));
        })""",
    )
    assert len(gaps) > 5 and min(gaps) > 2


def test_labels_of_several_settings_do_not_lie_upon_each_other(browser, tmp_path):
    configs = tuple(TrainConfig(batch_size=b, execution=e) for b in (8, 16) for e in ("eager", "graph"))
    made = study(tmp_path / "study", ("torch", "jax"), ("alexnet",), configs=configs, repeats=2)
    report_file = made.report(tmp_path / "report.html")
    for width in (SCREENS[0], SCREENS[-1]):
        opened = Opened(browser, report_file, width=width)
        opened.draw_all()
        for figure in ("#F1", "#F3", "#F10", "#F12"):  # in the first, headings have several lines
            assert opened.count(f"{figure} svg") and overlapping(opened.page, figure) == [], (figure, width)


def overlapping(page, figure):
    """Pairs of texts of a figure that lie upon each other."""
    boxes = page.eval_on_selector_all(
        f"{figure} {PLOT} svg text",
        """all => all.filter(one => !['', '▲'].includes(one.textContent.trim()) && getComputedStyle(one).opacity !== '0')
        .map(one => {
            const box = one.getBoundingClientRect();
            return [one.textContent, box.left, box.top, box.right, box.bottom];
        })""",
    )
    return [
        (one[0], other[0])
        for number, one in enumerate(boxes)
        for other in boxes[number + 1 :]
        if min(one[3], other[3]) - max(one[1], other[1]) > 2 and min(one[4], other[4]) - max(one[2], other[2]) > 3
    ]


def test_the_tab_key_goes_through_the_page_in_its_order_and_axe_sees_a_barrier(browser, report_file):
    opened = Opened(browser, report_file)
    reached = []
    for _ in range(6):
        opened.page.keyboard.press("Tab")
        reached.append(opened.page.evaluate("document.activeElement.textContent.trim()"))
    links = opened.page.eval_on_selector_all("nav a", "all => all.map(one => one.textContent.trim())")
    assert reached == ["Skip to the content", "Dark", *links[:4]]
    opened = Opened(browser, report_file)
    opened.page.evaluate("document.documentElement.removeAttribute('lang')")
    assert "html-has-lang" in dict(barriers(opened.page))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SCREENS)
def test_axe_finds_no_barrier(drawn, width, scheme):
    page = drawn(width).page
    page.emulate_media(color_scheme=scheme)
    found = barriers(page)
    page.emulate_media(color_scheme="light")
    assert found == []
