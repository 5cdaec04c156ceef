"""The quickstart: it names a winner, and ends with the answer, the report and the next command."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from framework_compare import registry
from framework_compare.cli import root
from framework_compare.results.intervals import MIN_RUNS


@pytest.fixture
def quickstart(images, own_cache, monkeypatch):
    """Runs the quickstart with the test model on small images; its lines on standard output, and its exit code."""
    small = {
        "models": ["linear"],
        "dataset": str(images),
        "image_size": 32,
        "threads": 1,
        "loader_workers": 1,
        "limit": None,
    }
    monkeypatch.setattr(root, "QUICK", {**root.QUICK, **small, "batch_size": 1, "epochs": 4, "verify": "off"})

    def run(*frameworks):
        done = CliRunner().invoke(root.app, ["quickstart", "--frameworks", ",".join(frameworks)])
        return done.stdout.splitlines(), done.exit_code

    return run


def test_it_can_name_a_winner_of_its_frameworks():
    assert root.QUICK["repeats"] > MIN_RUNS
    assert all(name in registry.FRAMEWORKS for name in root.QUICK_FRAMEWORKS.split(","))


def test_it_ends_with_the_answer_the_report_and_the_next_command(quickstart, paced, own_cache):
    lines, code = quickstart(paced("quick", pace_s=0.004), paced("slow", pace_s=0.012))
    answer, modes, report, following, said = lines[-5:]
    assert (
        answer.startswith("Answer: linear: quick (eager) is ") and "faster than slow (eager) (not verified)" in answer
    )
    assert " also have a compiled mode" in modes and said.startswith("This was a smoke test")
    page = next((own_cache / "studies").glob("*/report.html"))
    assert report == f"Report: {page}" and "quick" in page.read_text()
    assert following == f"Next:   {root.NEXT}" and code == 0


def test_it_says_so_where_nothing_worked(quickstart, tiny, monkeypatch):
    adapter = registry.FRAMEWORKS[tiny].trainer
    entry = registry.Framework("absent", adapter, "", "no_such_module", ((3, 8), (3, 99)))
    monkeypatch.setitem(registry.FRAMEWORKS, "absent", entry)
    lines, code = quickstart("absent")
    assert lines[-4] == "Answer: none; fewer than two frameworks finished: see `doctor`" and code == 1
