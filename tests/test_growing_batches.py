"""Batches that grow within an epoch: spaCy's rule, the same batches for all, and what tables make of them."""

import sys

import numpy as np
import pytest

from framework_compare import compare, largest_batch
from framework_compare.batches.arrays import ArrayPipeline, read_split
from framework_compare.batches.order import distinct, epoch_sizes
from framework_compare.errors import UsageError
from framework_compare.plan.reproductions import REPRODUCTIONS
from framework_compare.results.columns import batch_sizes

GROWTH = {"batch_size": 16, "batch_growth": 1.25, "batch_size_limit": 60}
SIZES = [16, 20, 25, 31, 39, 48, 60, 60, 60, 60, 60, 60, 60, 15]  # whole samples of 16 * 1.25 ** n, of 614 rows
PYTHON = {"mutated": sys.executable}
TRAINER = """
from .oracle import LOSSES

class Mutated(ReferenceTrainer):
    declared = ReferenceTrainer.declared._replace(losses=frozenset(LOSSES))

    def train_step(self, batch):
        print("step of", batch.size, flush=True)
        return super().train_step(batch)
"""


def compounding(first, limit, factor, samples):
    """spaCy's generator cut by its `minibatch`, written once more, by the power in place of the running product."""
    left, sizes = samples, []
    while left:
        sizes.append(min(left, int(min(first * factor ** len(sizes), limit))))
        left -= sizes[-1]
    return sizes


def test_sizes_of_an_epoch_are_those_of_the_document():
    """4 to 500 by 1.001 on the 8,375 positive tweets: the last full batch has 12."""
    sizes = epoch_sizes(8375, 4, 1.001, 500)
    assert sizes == compounding(4, 500, 1.001, 8375)
    assert (len(sizes), max(sizes), sum(sizes), sizes.index(5)) == (1176, 12, 8375, 224)
    part = REPRODUCTIONS["abidate2025"].parts["tweets"]
    growing = dict(part.rungs)["growing batches"]
    sizes = epoch_sizes(part.quick["limit"], part.settings["batch_size"], growing["batch_growth"], 500)
    assert max(sizes) > part.settings["batch_size"]
    for samples, first, growth, limit, wanted in (
        (10, 4, 1, 500, [4, 4, 2]),
        (3, 4, 1.5, 500, [3]),
        (0, 4, 1.5, 500, []),
        (614, 16, 1.25, 60, SIZES),
        (9, 2, 1e308, 3, [2, 3, 3, 1]),
        (9, 4, 1, 2, [4, 4, 1]),  # without growth a limit is none
    ):
        assert epoch_sizes(samples, first, growth, limit) == wanted
        assert distinct(wanted) == sorted(set(wanted))[::-1]


@pytest.fixture
def run(register_mutated, tmp_path):
    """Trains the reference on the rows of diabetes; the study."""
    register_mutated(TRAINER)
    asked = {"epochs": 2, "repeats": 1, "threads": 1, "sampling_hz": 0, "optimizer": "sgd", "warmup_steps": 1}

    def train(**settings):
        return compare("mutated", "diabetes_ann", out=tmp_path / "s", python=PYTHON, **{**asked, **GROWTH, **settings})

    return train


def steps_of(study):
    """The sizes of all steps of the one run, first step and warm-up included."""
    lines = (study.folder / study.frame.log_path[0]).read_text().splitlines()
    return [int(line.split()[-1]) for line in lines if line.startswith("step of ")]


@pytest.mark.parametrize("pipeline", ["shared", "memory"])
def test_a_run_takes_every_size_first_and_then_the_same_batches_each_epoch(run, pipeline):
    study = run(pipeline=pipeline)
    first = distinct(SIZES)
    assert steps_of(study) == [*first, first[0], *SIZES, *SIZES]
    assert list(study.epochs.images) == [614, 614] and list(study.epochs.steps) == [len(SIZES)] * 2
    assert len(study.steps) == 2 * len(SIZES)


def test_sizes_are_counted_and_every_sample_is_in_one_batch_of_each_epoch(run):
    study = run(epochs=1)
    events = (study.folder / study.frame.log_path[0]).with_name("events.jsonl").read_text()
    assert "8 sizes, 15 to 60; compiled steps are compiled once per size" in events
    split = read_split(study.folder / "images" / "diabetes.npz", "train")
    even = ArrayPipeline(split, batch_size=16, seed=3)
    grown = ArrayPipeline(split, batch_size=16, seed=3, growth=1.25, limit=60)
    for number in (1, 2):
        batches = list(grown.epoch(number))
        assert [len(target) for _, target in batches] == SIZES
        same = np.concatenate([inputs for inputs, _ in even.epoch(number)])
        assert np.array_equal(np.concatenate([inputs for inputs, _ in batches]), same)


def test_tables_know_the_sizes(run):
    study = run(epochs=3, batch_size=[16, 32])
    row = next(study.frame.itertuples())
    assert (row.batch_size, row.batch_growth, row.batch_size_limit) == (16, 1.25, 60)
    assert row.images == 614 and list(batch_sizes(row)) == SIZES
    text = " ".join(str(study.table()).split())
    assert "batch growth 1.25, batch size limit 60" in text and "614 generated rows" in text
    scaling = str(study.table("scaling"))
    assert "16 to 60" in scaling and "32 to 60" in scaling
    assert row.runs_unsettled != row.runs_unsettled  # steps grow by design: nobody looks where they settle


def test_what_cannot_grow_is_refused_before_anything_starts(run, tmp_path):
    for settings, words in (
        ({"batch_growth": 0.5}, "batch_growth is 0.5; allowed: a finite number of at least 1"),
        ({"batch_size_limit": 0}, "batch_size_limit is 0; allowed: a whole number of at least 1"),
        ({"batch_size": 64}, "batch_growth is 1.25 with batch_size 64; allowed up to batch_size_limit, 60"),
        ({"mode": "inference"}, "batch_growth is 1.25; allowed in mode 'inference': 1"),
        ({"device": "cpu:0,1"}, "batch_growth is 1.25 on device 'cpu:0,1'; allowed on several devices: 1"),
        ({"budget": "1min", "repeats": None}, "batch_growth is 1.25 under a budget"),
        ({"rungs": {"answers": {"mode": "inference"}}}, "unknown setting of rung 'answers' 'mode'"),
    ):
        with pytest.raises(UsageError, match=words):
            run(**settings)
        assert not (tmp_path / "s").exists()


def test_images_of_folders_come_in_batches_of_one_size(tiny, images, tmp_path):
    with pytest.raises(UsageError, match="batch_growth is 1.5; allowed for linear, whose images are read"):
        compare(tiny, "linear", dataset=images, out=tmp_path / "s", batch_growth=1.5)
    with pytest.raises(UsageError, match="batch_growth is 1.5; allowed: 1, since all batches of a sweep have one size"):
        largest_batch(tiny, "linear", dataset=images, out=tmp_path / "s", batch_growth=1.5)
    assert not (tmp_path / "s").exists()


def test_growing_batches_are_a_rung(run):
    study = run(batch_growth=1.0, rungs={"growing": {"batch_growth": 1.25}}, repeats=1)
    assert list(study.gains.rung) == ["base", "growing"] and list(study.gains.batch_growth) == [1.0, 1.25]
