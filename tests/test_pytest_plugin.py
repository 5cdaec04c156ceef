"""The pytest plug-in, in a user's own suite."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from framework_compare import registry
from framework_compare.comparison import Comparison
from framework_compare.environments import locks

PLUGINS = Path(__file__).parent / "plugins"
SUITE = f"""
import sys
sys.path.insert(0, {str(PLUGINS)!r})
from warm_workers import all_warm
from framework_compare import registry, sweep
from framework_compare.registry import Framework

registry.register_framework(Framework("tiny", {str(PLUGINS / "tiny.py")!r} + ":TinyTrainer", "", "numpy", ((3, 8), (3, 99))))
registry.register_model("linear", "linear:build")
"""
TEST = """
@sweep(["tiny", "torch"], ["linear", "alexnet"], device="cpu")
def test_trains(cell, run_cell):
    row = run_cell(cell, dataset={images!r}, batch_size=4, epochs=1, image_size=32)
    assert row.status == "ok" and row.framework == cell.framework
"""


def collected(pytester, *options):
    result = pytester.runpytest_subprocess("--collect-only", "-q", *options)
    return [line.partition("[")[2].rstrip("]") for line in result.outlines if "[" in line]


def test_a_sweep_is_three_lines_with_readable_ids_whose_parts_options_choose(pytester, images):
    pin = locks.pinned(registry.framework("jax"))  # a competitor that has two names is one test
    two = f"\n@sweep(['jax', 'jax@{pin}', 'torch'], ['alexnet'])\ndef test_it(cell): pass\n"
    pytester.makepyfile(SUITE + TEST.format(images=str(images)) + two)
    both = [f"jax@{pin}-alexnet-cpu", "torch-alexnet-cpu"]
    pairs = ["tiny-linear-cpu", "tiny-alexnet-cpu", "torch-linear-cpu", "torch-alexnet-cpu"]
    assert collected(pytester) == pairs + both
    options = ("--fc-frameworks", "torch", "--fc-models", "alexnet", "--fc-device", "cuda:1")
    assert collected(pytester, *options) == ["torch-alexnet-cuda:1"] * 2


def test_versions_compete_by_their_names(pytester, images, own_cache):
    both = f'["tiny", "tiny={sys.executable}"]'
    pytester.makepyfile(SUITE + TEST.format(images=str(images)).replace('["tiny", "torch"]', both))
    ids = collected(pytester)
    assert ids[:2] == ["tiny-linear-cpu", "tiny-alexnet-cpu"] and ids[2].startswith("tiny@") and len(ids) == 4
    result = pytester.runpytest_subprocess("--fc-models", "linear", "--fc-out", "study")
    result.assert_outcomes(passed=2)
    assert Comparison.load(pytester.path / "study").frame.framework.tolist() == ["tiny", ids[2].partition("-")[0]]


def test_an_unknown_name_and_a_folder_that_is_not_its_own_are_usage_errors(pytester):
    pytester.makepyfile(SUITE + TEST.format(images="x"))
    result = pytester.runpytest_subprocess("--fc-frameworks", "caffe")
    said = result.stdout.str() + result.stderr.str()
    assert "unknown framework 'caffe'; allowed: torch" in said and "pytest_plugin.py:" not in said
    (pytester.mkdir("study") / "file").write_text("x")
    said = pytester.runpytest_subprocess("--fc-out", "study").stderr.str()
    assert "--fc-out is 'study', which is not empty; allowed: a new or an empty folder" in said


TWICE = """
@sweep(["tiny"], ["linear"])
@pytest.mark.parametrize("size", [2, 4])
def test_trains(cell, run_cell, size):
    row = run_cell(cell, dataset={images!r}, batch_size=size, epochs=1, image_size=32, threads=1)
    assert (row.status, row.batch_size) == ("ok", size)

@sweep(["tiny"], ["linear"])
def test_once_more(cell, run_cell):
    settings = dict(dataset={images!r}, batch_size=4, epochs=1, image_size=32, threads=1)
    rows = [run_cell(cell, **settings) for _ in range(2)]
    assert [row.status for row in rows] == ["ok", "ok"] and rows[0].epoch_s != rows[1].epoch_s
"""


def test_the_cells_of_a_session_make_one_study_whose_table_is_shown(pytester, images, own_cache):
    narrowed = "from framework_compare.report.page import report\nreport.WIDTHS = report.WIDTHS[:1]\n"
    pytester.makepyfile(SUITE + "import pytest\n" + narrowed + TWICE.format(images=str(images)))
    result = pytester.runpytest_subprocess("--fc-out", "study", "--fc-report", "report.html", "--fc-json", "b.json")
    result.assert_outcomes(passed=3)
    benchmarks = json.loads((pytester.path / "b.json").read_text())["benchmarks"]
    assert [one["params"]["batch_size"] for one in benchmarks] == [2, 4] and "json: b.json" in result.stdout.str()
    assert "tiny" in (pytester.path / "report.html").read_text() and "report: " in result.stdout.str()
    frame = Comparison.load(pytester.path / "study").frame
    assert frame.batch_size.tolist() == [2, 4] and (frame.status == "ok").all()
    shown = result.stdout.str().partition("framework-compare")[2]
    assert shown.count("Epoch time") == 2 and "study: study" in shown


def test_a_session_without_cells_shows_nothing(pytester):
    pytester.makepyfile("def test_nothing(): pass")
    text = pytester.runpytest_subprocess().stdout.str()
    assert "1 passed" in text and "= framework-compare =" not in text


def test_processes_of_xdist_have_a_study_each(pytester, images, own_cache):
    pytester.makepyfile(SUITE + TEST.format(images=str(images)))
    chosen = ("--fc-frameworks", "tiny", "--fc-models", "linear")
    result = pytester.runpytest_subprocess("-n", "1", "--fc-out", "study", *chosen)
    result.assert_outcomes(passed=1)
    assert "study: study-gw0" in result.stdout.str() and len(Comparison.load(pytester.path / "study-gw0").frame) == 1


@pytest.mark.parametrize("lacking", ["", "import sys; sys.modules['pytest'] = None; "])
def test_all_names_are_imported_with_and_without_pytest(lacking):
    program = f"{lacking}from framework_compare import *; print(compare.__name__, 'sweep' in globals())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["compare", str(not lacking)]
