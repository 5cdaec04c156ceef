"""The report as a file: what it holds, what it escapes, how large it is. Browsers are in test_report_browser.py."""

import html.parser
import math
import re
import sys
import types
import xml.etree.ElementTree
from urllib.parse import unquote

import pytest
from bounds import digits
from command_line import run
from drawn_study import FRAMEWORKS, MODELS, study

from framework_compare.api import compare, dry_run, ladder
from framework_compare.protocol import TrainConfig
from framework_compare.records import Run
from framework_compare.report import headlines, provenance
from framework_compare.report.figures import files, resources
from framework_compare.report.figures.subject import Subject
from framework_compare.report.page import report
from framework_compare.report.page.lights import lights, standing
from framework_compare.report.renderers import code
from framework_compare.report.study import rounded
from framework_compare.results import precision
from framework_compare.results.metrics import METRICS
from framework_compare.results.parity import FAILED, PROVED
from framework_compare.study import names, study_toml

DRAWN = digits(rounded.__defaults__[0])  # the digits of a specification's numbers
HOSTILE = "</script><img src=x onerror=alert(1)>"


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source, self.tags, self.text, self._silent = text, [], "", 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._silent -= tag in ("script", "style")

    def handle_data(self, data):
        self.text += "" if self._silent else data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(report_file):
    return Page(report_file.read_text())


def test_the_page_asks_for_nothing(page):
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
    assert "link" not in [tag for tag, _ in page.tags]
    policy = next(one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and len(page.source.encode()) < most_bytes(6)


def test_every_figure_with_data_is_an_image_with_a_text_and_every_view_has_its_own_sentence(page, comparison):
    sections = {one["id"] for one in page.all("section") if one.get("class") == "figure"}
    assert sections == {"F1", "F2", "F3", "F4", "F5", "F6", "F8", "F11", "F9", "F7"}
    for image in page.all("img"):
        assert image["src"].startswith("data:image/svg+xml,") and len(image["alt"]) > 40
        xml.etree.ElementTree.fromstring(unquote(image["src"].partition(",")[2]))  # a browser shows no other
    found = re.findall(r'<p class="finding">(.*?)</p>', page.source)
    views = re.findall(r'<div class="view" data-view=', page.source)
    assert len(found) == len(views) == len(set(found)) > 12
    assert any("throughput ranges from" in one for one in found) and any("epochs take from" in one for one in found)


def test_verdicts_failures_the_command_and_what_the_study_has_not_are_there(page, comparison):
    assert "Batch sizes: all cells have the same batch size." in page.text
    assert (
        "Speed-ups and libraries: no two cells differ only in device, precision or execution, no library ran beside its "
        "plain framework, and the study is not a ladder." in page.text
    )
    assert "AlexNet: PyTorch is" in page.text
    assert "no memory left" in page.text and "MemoryError" in page.text and "(in phase epochs)" in page.text
    assert report.command(comparison) == (
        "framework-compare run --frameworks torch,mxnet,jax --models alexnet,vgg16 --dataset fire-smoke-small "
        "--threads 1 --loader-workers 1 --repeats 3"
    )
    assert report.command(comparison) in page.text


def test_the_numbers_are_those_of_the_frame_with_one_column_of_memory(page, comparison):
    rows = [one["data-cell"] for one in page.all("tr") if "data-cell" in one]
    assert rows == [str(place) for place in comparison.frame.index]
    shown = [one for one in page.all("td") if "data-name" in one]
    per_row = len(shown) // len(rows)
    for place, cell in enumerate(shown):
        value = comparison.frame[cell["data-name"]].iloc[place // per_row]
        assert cell.get("data-value") == (None if METRICS[cell["data-name"]].show(value) == "-" else str(value))
    names = {one["data-name"] for one in page.all("td") if "data-name" in one}
    assert "pss_peak_bytes" in names and "peak_rss_bytes" not in names
    cells = Subject(comparison).cells.assign(device="cuda", gpu_process_memory_peak_bytes=2.0**30)
    shown = report._metrics(types.SimpleNamespace(cells=cells, worded=str))
    assert "gpu_process_memory_peak_bytes" in shown and not {"pss_peak_bytes", "peak_rss_bytes"} & set(shown)


def test_the_command_of_a_study_that_keeps_its_request_runs_that(tiny, images, tmp_path):
    asked = {"dataset": images, "image_size": 8, "epochs": 1, "limit": 6, "python": {tiny: sys.executable}}
    once = compare(tiny, "linear", out=tmp_path / "once", budget="2s", memory_limit="2GiB", **asked)
    lines = report.command(once).splitlines()
    assert lines[0] == "cat > study.toml <<'END'" and lines[-2:] == ["END", "framework-compare run --from study.toml"]
    (tmp_path / "study.toml").write_text("\n".join(lines[1:-2]), encoding="utf-8")
    plan = dry_run(**study_toml.read(tmp_path / "study.toml", {}))
    assert plan.budget_s == 2 and [one.cell.config.image_size for one in plan.cells] == [8]
    assert "limit = 6" in lines and 'memory_limit = "2GiB"' in lines


def test_a_ladder_s_report_has_its_gains(tiny, images, tmp_path, one_width):
    asked = {"dataset": images, "image_size": 8, "epochs": 1, "repeats": 3, "python": {tiny: sys.executable}}
    study = ladder(tiny, "linear", {"batch 4": {"batch_size": 4}}, out=tmp_path / "study", **asked)
    assert "rung of the ladder" in Page(study.report(tmp_path / "report.html").read_text()).text
    part = files.draw(Subject(study), "gains")["speed-up over the previous rung"]
    (row,) = (row for rows in part.spec["datasets"].values() for row in rows)
    gained = study.gains.set_index("rung").loc["batch 4"]
    low, high = (min(gained[f"gain_{end}"], 1.5 * gained["gain"]) for end in ("low", "high"))
    assert (row["ratio"], row["low"]) == pytest.approx((gained["gain"], low), rel=DRAWN)
    assert row["high"] == pytest.approx(high, rel=3 * DRAWN), "or an arrow"


def test_the_command_has_the_settings_that_differ_from_the_default(tmp_path):
    configs = TrainConfig(batch_size=8, image_size=96, loss="mse"), TrainConfig(image_size=96, loss="mse")
    command = report.command(study(tmp_path / "study", configs=configs))
    assert all(one in command for one in ("--loss-function mse ", "--batch-size 8,16 ", "--image-size 96 "))
    assert "--momentum" not in command


def test_the_lights_say_what_is_amiss(comparison, tmp_path):
    states = {one.title: (one.state, one.sentence) for one in lights(comparison.frame, comparison.epochs)}
    assert states["Cells"] == ("warn", "5 of 6 cells worked")
    assert states["Runs"][0] == "good"
    assert states["Quiet machine"] == ("warn", "2 of 45 epochs were disturbed")
    single = study(tmp_path / "single", repeats=1)
    assert {one.title: one.state for one in lights(single.frame, single.epochs)}["Runs"] == "bad"
    taken = comparison.frame.assign(epochs_disturbed=comparison.frame["epochs_measured"], interval_runs=float("nan"))
    runs = {one.title: one for one in lights(taken, comparison.epochs)}["Runs"]
    assert (runs.state, runs.sentence) == ("bad", "a cell has no valid run; a verdict needs 2")
    quiet = comparison.frame[comparison.frame["status"] == "ok"].assign(epochs_disturbed=0.0, parity="0-5")
    epochs = comparison.epochs.assign(disturbed=0.0, epoch_s=1.0)
    assert standing(lights(quiet, epochs))[0] == "good"
    void = lights(quiet.assign(rounds_void=[7, *[0] * (len(quiet) - 1)]), epochs)
    assert standing(void) == ("warn", "Verified; caveats: void rounds")
    assert "up to 7 rounds per cell do not count" in {one.title: one.sentence for one in void}["Quiet machine"]
    unsettled = lights(quiet.assign(runs_unsettled=[3, *[0] * (len(quiet) - 1)]), epochs)
    assert standing(unsettled) == ("warn", "Verified; caveats: unsettled runs")
    assert {one.title: one.sentence for one in unsettled}["Length"].startswith("3 runs did not settle")
    quiet = comparison.frame.assign(epochs_disturbed=0.0)
    epochs = comparison.epochs.assign(disturbed=0.0)
    epochs["epoch_s"] = epochs.groupby("cell")["epoch_s"].transform("median")
    found = {one.title: one for one in lights(quiet, epochs)}["Quiet machine"]
    assert (found.state, found.sentence) == ("good", "no epoch was disturbed by other programs")
    known = quiet.assign(epochs_disturbed=[float("nan"), *[0] * (len(quiet) - 1)])
    found = {one.title: one for one in lights(known, epochs)}["Quiet machine"]
    assert (found.state, found.doubt) == ("warn", "unknown disturbances") and found.sentence.startswith(
        "unknown for 1 cell;"
    )
    found = {one.title: one for one in lights(quiet.assign(runs_set_aside=[2, *[0] * (len(quiet) - 1)]), epochs)}
    assert found["Quiet machine"].sentence == "no epoch that counts was disturbed; 2 disturbed runs replaced"
    epochs.loc[epochs.index[0], "epoch_s"] *= 1.9
    found = {one.title: one for one in lights(quiet, epochs)}["Quiet machine"]
    assert found.state == "warn" and "but 1 of 45 epochs took more than 1.25 times" in found.sentence


def test_no_badge_is_green_where_parity_is_not_verified(comparison, page):
    quiet = comparison.frame[comparison.frame["status"] == "ok"].assign(epochs_disturbed=0.0)
    epochs = comparison.epochs.assign(disturbed=0.0, epoch_s=1.0)
    assert standing(lights(quiet, epochs)) == ("warn", "Not verified")
    verified = quiet.assign(parity=next(iter(PROVED)))
    assert standing(lights(verified, epochs)) == ("good", "Verified")
    (runs,) = (one for one in lights(verified, epochs) if one.title == "Runs")
    assert runs.sentence == "every cell has at least 3 valid runs"
    short = epochs.assign(steps=1)
    assert standing(lights(verified, short)) == ("warn", "Verified; caveats: short runs")
    assert standing(lights(verified.assign(parity_status=FAILED), epochs)) == ("bad", "Parity failed")
    text = page.source
    assert 'class="badge warn"' in text and 'class="verdicts warn"' in text and 'class="badge good"' not in text


def test_a_citation_has_machine_versions_data_intervals_and_the_main_settings_once(comparison, page, tmp_path):
    said = report.citation(comparison, comparison.verdicts(), "Not verified")
    for words in (
        *("A processor", "PyTorch 1.2.3", "fire-smoke-small (791 images)", "framework_compare 0.1.0", "3 runs per"),
    ):
        assert words in said
    one = next(one for one in comparison.verdicts() if (one.model, one.slower) == ("alexnet", "mxnet"))
    assert f"[{one.low:.2f}, {one.high:.2f}]" in said and said.endswith("Checks: not verified.")
    assert "Checks: not verified; caveats: failed cells, busy machine." in page.text
    assert "Settings: CPU, batch 16, 1 thread, 3 epochs, image size 224, 3 runs per cell." in said
    assert said.count("791 images") == 1
    configs = TrainConfig(batch_size=8), TrainConfig(batch_size=16)
    several = study(tmp_path / "study", models=("alexnet",), configs=configs)
    assert "3 runs per cell, batch 8 or batch 16." in report.citation(several, several.verdicts(), "Not verified")


def test_page_table_and_citation_say_that_data_were_generated(tmp_path):
    made = study(tmp_path / "study", models=("alexnet",), data={"facts": {"generated": True}})
    words = "791 generated images"
    assert f"fire-smoke-small ({words})" in dict(provenance.facts(made))["Data"]
    assert f"fire-smoke-small: {words}." in made.table("time").parts[0].caption
    assert report.citation(made, made.verdicts(), "Verified").count(words) == 1
    assert "generated" not in dict(provenance.facts(study(tmp_path / "real", models=("alexnet",))))["Data"]


def test_hostile_names_stay_text(tmp_path, one_width):
    failure = Run("failed", HOSTILE, log_tail=f"{HOSTILE}\x1b[31m", died_in=HOSTILE)
    folder = tmp_path / "a <b> & 'c'"
    made = study(folder, (HOSTILE, "__proto__"), ("x" * 10_000, "\u202eevil"), failing=[(HOSTILE, "\u202eevil")],
                 failure=failure, dataset=HOSTILE, repeats=2)  # fmt: skip
    text = made.report(tmp_path / "report.html").read_text()
    found = Page(text)
    assert all(one["src"].startswith("data:") for one in found.all("img"))
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert "\u202e" not in text and "\x1b" not in text
    assert HOSTILE in found.text


def test_a_study_without_any_success_is_reported(tmp_path):
    every = [(f, m) for f in ("torch", "mxnet") for m in ("alexnet", "vgg16")]
    made = study(tmp_path / "study", ("torch", "mxnet"), failing=every)
    found = Page(made.report(tmp_path / "report.html").read_text())
    assert "0 of 4 cells worked" in found.text and not found.all("img")


def most_bytes(cells):
    return 1_400_000 + 16_000 * cells


@pytest.mark.nightly
@pytest.mark.parametrize("sizes", [(8,), (1, 8, 16, 32, 64)], ids=["20", "100"])
def test_a_report_of_many_cells_stays_small(tmp_path, sizes):
    configs = tuple(TrainConfig(batch_size=size) for size in sizes)
    made = study(tmp_path / "study", FRAMEWORKS, MODELS, configs=configs, failing=())
    assert len(made.frame) == 20 * len(sizes)
    assert made.report(tmp_path / "report.html").stat().st_size < most_bytes(len(made.frame))


def test_a_notebook_shows_verdicts_table_and_figure(comparison):
    found = Page(comparison._repr_html_())
    assert found.all("table") and found.all("img")
    assert not found.all("script")
    assert re.search(r"PyTorch is \d\.\d+x \[", found.text)


def test_warnings_stand_once_with_their_cells(tmp_path):
    warning = "12 MiB were swapped in during the epochs"
    failure = Run("failed", "x", warnings=(warning,))
    made = study(tmp_path / "study", ("jax",), ("vgg16",), failing=[("jax", "vgg16")], failure=failure)
    page = Page(made.report(tmp_path / "report.html").read_text())
    assert page.text.count(warning) == 1 and f"JAX VGG-16: {warning}" in page.text
    assert warning in str(made.table()) and warning not in made.table(verdicts=False).to_text()


def test_the_answer_over_all_models_is_never_cut(tmp_path):
    many = study(tmp_path / "study", ("torch", "mxnet"), tuple(f"model_{n}" for n in range(10)), failing=(), repeats=2)
    lines = headlines.answers(list(many.frame.itertuples()), many.verdicts())
    assert lines[0].startswith("Geometric mean of 10 models: ")
    assert lines[-1] == "3 more: `Comparison.verdicts()` lists all." and lines[1].startswith("model_0: ")


def test_a_view_has_the_unit_of_the_data_in_its_name(page, tmp_path, one_width):
    rows = study(tmp_path / "study", ("torch", "jax"), ("diabetes_ann",), failing=(), dataset="diabetes", repeats=2)
    text = rows.report(tmp_path / "report.html").read_text()
    assert ">rows per second</label>" in text and "Epoch time, rows per second." in text
    assert "images per second" not in text and "throughput, rows/s</th>" in text and "images/s are" not in text
    assert ">images per second</label>" in page.source


def test_a_budget_that_no_cell_kept_is_one_sentence():
    class Cell:
        status, budget_s, precision_target, ratio_blocks = "ok", 600.0, 0.05, 3

        def __init__(self, number):
            self.framework, self.ratio_half_width = f"framework {number}", number / 10 or math.nan

        def __getattr__(self, name):
            return "same"

    (said,) = precision.sentences([Cell(number) for number in range(12)])
    assert said == (
        "No ratio of 12 cells is within ±5 % under the budget of 10 minutes; their intervals are ±10.0 % to"
        " ±110.0 %; 1 of them has no interval."
    )


def test_the_command_writes_the_latest_study_with_a_table_of_costs_and_its_commands_as_code(
    page, tmp_path, monkeypatch, one_width
):
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path))
    mine, out = tmp_path / "studies" / "mine", tmp_path / "report.html"
    assert "there is no study in" in run("show", check=2).stderr
    made = study(mine, ("torch", "mxnet"), ("alexnet",), failing=(), repeats=2)
    assert (
        names.find() == names.find("mine") == type(made).load("latest").folder == type(made).load("mine").folder == mine
    )
    monkeypatch.setattr(resources, "MAX_CURVES", 1)  # the caption names the command for the others
    run("report", "--out", out, "--per-hour", "3.5")
    text = out.read_text()
    assert text.startswith("<!doctype html>") and "Cost of 1 epoch" in Page(text).text
    assert "Cost of 1 epoch" not in page.text
    assert "<code>framework-compare figure resources --models NAME</code>" in text
    assert code("`<b>` and `") == "<code>&lt;b&gt;</code> and `"


def test_a_table_in_latex_takes_a_label_and_a_caption_on_the_command_line(comparison):
    asked = ["show", comparison.folder, "--label", "tab:x", "--caption", "Seconds.", "--no-notes"]
    text = run(*asked, "--style", "latex", "--table", "resources").stdout
    assert r"\label{tab:x}" in text and r"\caption{Seconds.}" in text and "smallskip" not in text
    assert "need one study and --style latex" in run(*asked, check=2).stderr
