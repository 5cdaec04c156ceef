"""Stability sweeps: which batch sizes are tried, what the tables say, going on with one."""

from __future__ import annotations

import pytest

from framework_compare import stability
from framework_compare.errors import StudyError, UsageError
from framework_compare.stability_sweep import Stability, next_size
from framework_compare.store import Store

QUICK = dict(threads=1, loader_workers=1, image_size=32)


def tried(limit: int, sizes: "list[int]", search: str) -> "list[int]":
    outcomes: "dict[int, bool]" = {}
    while (size := next_size(outcomes, sizes, search)) is not None:
        assert size not in outcomes, "a size is tried once"
        outcomes[size] = size <= limit
    return list(outcomes)


@pytest.mark.parametrize(
    ("limit", "sizes", "search", "expected"),
    [
        (35, [10, 20, 30, 40, 50], "steps", [10, 20, 30, 40]),
        (99, [10, 20, 30], "steps", [10, 20, 30]),
        (5, [10, 20], "steps", [10]),
        (45, [8, 1024], "doubling", [8, 16, 32, 64, 48, 40]),
        (99, [8, 64], "doubling", [8, 16, 32, 64]),
        (99, [10, 50], "doubling", [10, 20, 40, 50]),
        (1, [2, 64], "doubling", [2]),
        (77, [1, 4096], "doubling", [1, 2, 4, 8, 16, 32, 64, 128, 96, 80, 72, 76, 78, 77]),
        (9, [7], "doubling", [7]),
    ],
)
def test_sizes_are_tried_until_enough_is_known(limit, sizes, search, expected):
    assert tried(limit, sizes, search) == expected


@pytest.mark.parametrize("limit", range(0, 70, 3))
@pytest.mark.parametrize("first", [1, 3])
def test_doubling_finds_the_edge_to_the_smallest_size(limit, first):
    sizes = tried(limit, [first, 64], "doubling")
    worked, failed = [s for s in sizes if s <= limit], [s for s in sizes if s > limit]
    if worked and failed:
        assert min(failed) - max(worked) <= first


@pytest.fixture
def sweep(faulty, pictures, own_cache, tmp_path):
    def run(*models, **given):
        settings = {**QUICK, "dataset": pictures, "out": tmp_path / "sweep", "batch_sizes": [10, 20, 30, 40], **given}
        return stability(faulty, list(models), **settings)

    return run


def test_a_sweep_says_what_works_up_to_where_and_how_the_next_one_ends(sweep):
    result = sweep("fine", "at-most-25")
    fine, limited = result.frame.to_dict("records")
    assert (fine["model"], fine["largest_ok"], fine["probes"]) == ("fine", 40, 4)
    assert fine["next_failed"] != fine["next_failed"], "none failed"
    assert (limited["largest_ok"], limited["next_failed"]) == (20, 30)
    assert limited["next_failed_status"] == "out-of-memory" and "batch 30 is more than 25" in limited["next_failed_reason"]
    assert limited["largest_ok_peak_rss_bytes"] > 1e6


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex", "csv"])
def test_a_sweep_is_a_table_in_every_style(sweep, style):
    text = sweep("at-most-25").table(style)
    assert "out-of-memory" in text and "20" in text
    if style == "terminal":
        assert "works up to" in text and "batch 30 is more than 25" in text


def test_a_sweep_is_gone_on_with_and_loaded(sweep):
    folder = sweep("at-most-25").folder
    with Store.open(folder, readonly=False) as store:
        before = store.select("SELECT run_id, started_at, wall_s FROM run")[1]
    again = sweep("at-most-25")
    with Store.open(folder) as store:
        assert store.select("SELECT run_id, started_at, wall_s FROM run")[1] == before
    assert Stability.load(folder).frame.equals(again.frame)


def test_another_sweep_in_the_folder_is_refused(sweep):
    sweep("at-most-25")
    with pytest.raises(StudyError, match="stability is .*10, 20, 30, 40.* in the study, .*10, 20.* now"):
        sweep("at-most-25", batch_sizes=[10, 20])


@pytest.mark.parametrize("sizes", [[], [0, 1], [20, 10], [10, 10], ["10"]], ids=str)
def test_sizes_that_make_no_sweep_are_refused(sweep, sizes, tmp_path):
    with pytest.raises(UsageError, match="batch_sizes is .*; allowed: whole numbers"):
        sweep("fine", batch_sizes=sizes)
    assert not (tmp_path / "sweep").exists()


def test_an_unknown_search_lists_the_known(sweep):
    with pytest.raises(UsageError, match="unknown search 'random'; allowed: steps, doubling"):
        sweep("fine", search="random")


def test_a_study_that_is_no_sweep_is_no_stability(tmp_path):
    Store.create(tmp_path / "study", settings={}, machine={}, cells=[], repeats=1).close()
    with pytest.raises(StudyError, match="no stability sweep"):
        Stability.load(tmp_path / "study")
