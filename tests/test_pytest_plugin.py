"""The pytest plug-in, in a user's own suite."""

from pathlib import Path

PLUGINS = Path(__file__).parent / "plugins"
SUITE = f"""
import sys
sys.path.insert(0, {str(PLUGINS)!r})
from framework_compare import registry, sweep
from framework_compare.registry import Framework

registry.register_framework(Framework("tiny", {str(PLUGINS / "tiny.py")!r} + ":TinyTrainer", "", "numpy", ((3, 8), (3, 99))))
registry.register_model("linear", "linear:build")
"""
TEST = """
@sweep(["tiny", "torch"], ["linear", "alexnet"], device="cpu")
def test_trains(cell, run_cell):
    row = run_cell(cell, dataset={pictures!r}, batch_size=4, epochs=1, image_size=32)
    assert row.status == "ok" and row.framework == cell.framework
"""


def collected(pytester, *options):
    result = pytester.runpytest_subprocess("--collect-only", "-q", *options)
    return [line.partition("[")[2].rstrip("]") for line in result.outlines if "[" in line]


def test_a_sweep_is_three_lines_with_readable_ids(pytester, pictures):
    pytester.makepyfile(SUITE + TEST.format(pictures=str(pictures)))
    assert collected(pytester) == ["tiny-linear-cpu", "tiny-alexnet-cpu", "torch-linear-cpu", "torch-alexnet-cpu"]


def test_options_choose_frameworks_models_and_device(pytester, pictures):
    pytester.makepyfile(SUITE + TEST.format(pictures=str(pictures)))
    options = ("--fc-frameworks", "torch", "--fc-models", "alexnet", "--fc-device", "cuda:1")
    assert collected(pytester, *options) == ["torch-alexnet-cuda:1"]


def test_a_cell_runs_and_its_row_comes_back(pytester, pictures, own_cache):
    pytester.makepyfile(SUITE + TEST.format(pictures=str(pictures)))
    result = pytester.runpytest_subprocess("--fc-frameworks", "tiny", "--fc-models", "linear")
    result.assert_outcomes(passed=1)


def test_an_unknown_name_is_a_usage_error(pytester):
    pytester.makepyfile(SUITE + TEST.format(pictures="x"))
    result = pytester.runpytest_subprocess("--fc-frameworks", "caffe")
    assert "unknown framework 'caffe'; allowed: torch" in result.stdout.str() + result.stderr.str()
