"""The merging of GPU records: the last row of a cell is shown, and none is lost (benchmarks/gpu_tables.py)."""

import pandas as pd
import pytest


@pytest.fixture(scope="module")
def gpu_tables(benchmark):
    return benchmark("gpu_tables")


def row(gpu_tables, speed, recorded=None, record=None, **cell):
    cell = {**dict.fromkeys(gpu_tables.KEY, "x"), "batch_size": 1, "part": "memory", **cell}
    return {**cell, "images_per_s": speed, "recorded": recorded, "record": record}


def test_the_last_study_of_a_cell_counts_whatever_the_order_of_the_folders(gpu_tables):
    days = [f"2026-11-2{day}T10:00:00+00:00" for day in range(3)]
    rows = [row(gpu_tables, speed, day, day[:10]) for speed, day in ((3.0, days[2]), (1.0, days[0]), (2.0, days[1]))]
    rows.append(row(gpu_tables, 0.5))  # of a time when no day was kept
    shown, others = gpu_tables.newest(pd.DataFrame(rows))
    assert shown.images_per_s.tolist() == [3.0]
    assert others.images_per_s.tolist() == [0.5, 1.0, 2.0]
    again = gpu_tables.newest(pd.concat([others, shown, pd.DataFrame(rows[:2])]))
    assert [frame.images_per_s.tolist() for frame in again] == [[3.0], [0.5, 1.0, 2.0]]


def test_cells_are_compared_with_the_record_before_and_not_with_one_of_their_own(gpu_tables):
    rows = [
        row(gpu_tables, 1.0, "2026-11-20T10:00:00+00:00", "first"),
        row(gpu_tables, 2.0, "2026-11-21T10:00:00+00:00", "second"),
        row(gpu_tables, 3.0, "2026-11-22T00:10:00+00:00", "third"),
        row(gpu_tables, 6.0, "2026-11-22T00:20:00+00:00", "third"),
        row(gpu_tables, 7.0, "2026-11-22T00:20:00+00:00", "third", model="new"),
    ]
    shown, others = gpu_tables.newest(pd.DataFrame(rows))
    table = [line for line in gpu_tables.repeats(shown, others) if line.startswith("| memory")]
    assert table == ["| memory | x | x | 1 | 1 | 3.00 | 3.00 to 3.00 |"]


def test_cells_of_former_records_are_marked(gpu_tables):
    days = {name: f"2026-11-2{day}T10:00:00+00:00" for day, name in enumerate(["first", "second", "third", "fourth"])}
    days = {"": "", "fourth": days.pop("fourth"), **days}
    rows = [row(gpu_tables, 1.0, day, name, model=name) for name, day in days.items()]
    marks = gpu_tables.record_marks(pd.DataFrame(rows))
    assert marks == {"fourth": "", "third": "¹", "second": "³", "first": "⁴", "": "⁴"}


def test_a_verdict_of_a_ladder_that_asked_no_less_holds_and_its_failure_is_marked(gpu_tables):
    before, after = next(iter(gpu_tables.STRICTER.items()))
    verdict = {"holds": "0-3, 5", "ratio": 1.23, "ladder": before, "status": "passed"}
    assert (
        gpu_tables.climbed(verdict, after) == gpu_tables.climbed({**verdict, "ladder": after}, after) == "0-3, 5 (1.2)"
    )
    assert gpu_tables.climbed({**verdict, "status": "failed"}, after) == "0-3, 5 (1.2)¹"
    assert (
        gpu_tables.climbed(verdict, "newest")
        == gpu_tables.climbed({**verdict, "ladder": "x"}, after)
        == "0-3, 5 (1.2)¹"
    )
