"""Stability sweeps: which batch sizes are tried, what the tables say, going on with one."""

import io

import pytest
from command_line import run
from image_files import copies
from stored_study import selected

from framework_compare import largest_batch
from framework_compare.errors import StudyError, UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.report import resource_tables
from framework_compare.stability_sweep import Stability
from framework_compare.store.study_file import Store
from framework_compare.study.progress import PlainWatcher
from framework_compare.study.strategies import next_size

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


@pytest.mark.parametrize("first", [1, 3])
def test_doubling_finds_the_edge_to_the_smallest_size(first):
    for limit in range(0, 70, 3):
        sizes = tried(limit, [first, 64], "doubling")
        worked, failed = [s for s in sizes if s <= limit], [s for s in sizes if s > limit]
        assert not (worked and failed) or min(failed) - max(worked) <= first, limit


@pytest.fixture(scope="session")
def many(images, tmp_path_factory):
    """65 images in the same classes."""
    return copies(images, tmp_path_factory.mktemp("many") / "many", 5)


@pytest.fixture
def sweep(faulty, many, own_cache, tmp_path):
    def run(*models, **given):
        settings = {**QUICK, "dataset": many, "out": tmp_path / "sweep", "batch_sizes": [10, 20, 30, 40], **given}
        return largest_batch(faulty, list(models), **settings)

    return run


def test_a_sweep_says_what_works_up_to_where_and_how_the_next_one_ends(sweep):
    result = sweep("fine", "at-most-25")
    fine, limited = result.frame.to_dict("records")
    assert (fine["model"], fine["largest_ok"], fine["probes"]) == ("fine", 40, 4)
    assert fine["next_failed"] != fine["next_failed"], "none failed"
    assert (limited["largest_ok"], limited["next_failed"]) == (20, 30)
    assert limited["next_failed_status"] == "out-of-memory"
    assert "batch 30 is more than 25" in limited["next_failed_reason"]
    assert limited["largest_ok_peak_rss_bytes"] > 1e6


def test_a_sweep_is_a_table_in_every_style_gone_on_with_loaded_and_shown_by_its_folder(sweep):
    stream = io.StringIO()
    first = sweep("at-most-25", watcher=PlainWatcher(stream))
    heads = [line.partition(":")[0] for line in stream.getvalue().splitlines() if line.startswith("faulty")]
    assert heads == [f"faulty-at-most-25-cpu, batch {size}" for size in (10, 20, 30)]
    texts = {style: first.table(style) for style in ("terminal", "markdown", "latex", "csv")}
    assert all("out-of-memory" in text and "20" in text for text in texts.values())
    assert "works up to" in texts["terminal"] and "batch 30 is more than 25" in texts["terminal"]
    folder = first.folder
    runs = "SELECT run_id, started_at, wall_s FROM run"
    before = selected(folder, runs)
    again = sweep("at-most-25")
    assert selected(folder, runs) == before
    assert Stability.load(folder).frame.equals(again.frame)
    assert "works up to" in run("show", folder).stdout
    assert "images/s" in run("show", folder, "--table", "resources").stdout
    # another sweep in the folder is refused with the difference
    for change, said in (
        (dict(batch_sizes=[10, 20]), "batch_sizes: 10, 20, 30 and 40 in the study, 10 and 20 now"),
        (dict(search="doubling"), "search: steps in the study, doubling now"),
        (dict(epochs=2), "epochs: 1 in the study, 2 now"),
        (dict(pipeline="shared"), "pipeline: native in the study, shared now"),
        (dict(memory_limit="1GiB"), "memory_limit: none in the study, 1073741824 now"),
        (dict(limit=50), "images of many: 65 in the study, 50 now"),
    ):
        with pytest.raises(StudyError, match=f"cannot be resumed: {said}; name another folder"):
            sweep("at-most-25", **change)


def test_a_sweep_in_the_folder_of_another_study_is_refused(sweep, tmp_path):
    Store.create(tmp_path / "sweep", settings={}, machine={}, cells=[], repeats=1).close()
    with pytest.raises(StudyError, match="neither a sweep of batch sizes nor under a budget; name another folder"):
        sweep("fine")
    with pytest.raises(StudyError, match="sweep of batch sizes"):
        Stability.load(tmp_path / "sweep")


def test_cells_that_differ_in_any_setting_are_rows_of_their_own(sweep, images, many):
    result = sweep("fine", batch_sizes=[4, 8], dataset=[images, many], pipeline=["native", "shared"])
    assert list(result.frame.largest_ok) == [8] * 4 and list(result.frame.probes) == [2] * 4
    for name, frame in {"largest": result.frame, "memory": result.probes}.items():
        table = getattr(resource_tables, f"{name}_table")(frame, result.varying)
        assert table.headings == ("framework", "model", "dataset", "pipeline")
        assert len({row.names for row in table.rows}) == len(table.rows) == 4


def test_a_sweep_on_two_devices_shows_them_apart(tmp_path):
    cells = [Cell("torch", "alexnet", "small", device, TrainConfig(device=device)) for device in ("cpu", "cuda")]
    growth = {"name": "growth", "batch_sizes": [1], "search": "steps", "first_cells": []}
    Store.create(tmp_path / "study", settings={"strategy": growth}, machine={}, cells=cells, repeats=1).close()
    sweep = Stability.load(tmp_path / "study")
    table = resource_tables.memory_table(sweep.probes, sweep.varying)
    assert [row.names for row in table.rows] == [("PyTorch", "AlexNet", "cpu"), ("PyTorch", "AlexNet", "cuda")]


def test_beside_a_memory_limit_the_table_says_what_each_figure_counts(sweep):
    assert "limit of 1.397 GiB counts shared pages once (PSS)" in sweep("fine", memory_limit="1500MB").table()
    assert "counts a page" not in sweep("fine", out=None).table()


def test_a_style_that_is_none_is_refused_before_the_sweep(faulty, many, own_cache, tmp_path):
    request = ["--frameworks", faulty, "--models", "fine", "--dataset", many, "--out", tmp_path / "s"]
    assert "unknown style 'foo'; allowed: " in run("largest-batch", *request, "--style", "foo", check=2).stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        *(({"batch_sizes": sizes}, "allowed: whole numbers") for sizes in ([], [0, 1], [20, 10], [10, 10], ["10"])),
        *(({"batch_sizes": sizes}, "allowed: a list of whole numbers, such as") for sizes in (5, "5", None)),
        ({"batch_sizes": [4, 8, 16, 64], "limit": 16}, "batch size 64 is larger than many, which has 16 samples; name"),
        ({"search": "random"}, "unknown search 'random'; allowed: steps, doubling"),
        ({"batch_size": 7}, "batch_size is 7; a sweep varies it: name batch_sizes"),
    ],
    ids=str,
)
def test_what_makes_no_sweep_is_refused_before_anything_runs(sweep, asked, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        sweep("fine", **asked)
    assert not (tmp_path / "sweep").exists()
