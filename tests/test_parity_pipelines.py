"""Level 4 passes an honest pipeline whatever its seed, and says of each seeded mistake what it is."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from nightly import some_nightly
from pipeline_mistakes import CLASS, MISTAKES, NIGHTLY

from framework_compare import registry
from framework_compare.environments.managed import Environment
from framework_compare.parity import cache
from framework_compare.parity.pipeline import pipelines
from framework_compare.parity.verify import ParityChecker
from framework_compare.protocol import TrainConfig
from framework_compare.results import verdicts
from framework_compare.results.parity import PASSED, PROVED, Level, Parity


@pytest.fixture
def judge(ask_mutated):
    """Level 4 of the float32 reference with the methods given, in a worker of its own."""

    def run(body: str = "", only=(), **settings):
        return pipelines.judge(*ask_mutated(CLASS.format(body=body), **settings), only)

    return run


@pytest.mark.nightly  # of the default seed test_parity.py climbs all levels by day
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_an_honest_pipeline_passes_whatever_its_seed(judge, seed):
    level = judge(seed=seed)
    assert level.passed, level.where


@pytest.mark.parametrize("mistake", some_nightly(MISTAKES, NIGHTLY))
def test_a_mistake_of_augmentation_is_named(judge, mistake):
    body, words, *part = MISTAKES[mistake]
    level = judge(body, only=part or ["as trained"])
    assert not level.passed, f"{mistake} is a hole in level 4"
    assert words in level.where


LEFT_TO_RIGHT_ONLY = {
    "by the trainer": """
    def unsupported(self):
        return "flip 'vertical': mirrors left to right only" if self.config.flip == "vertical" else super().unsupported()
""",
    "by its pipeline": """
    def open_pipeline(self, images):
        from framework_compare.errors import Unsupported
        if self.config.flip == "vertical":
            raise Unsupported("flip 'vertical': mirrors left to right only")
        return super().open_pipeline(images)
""",
}


@pytest.mark.parametrize("said", LEFT_TO_RIGHT_ONLY)
def test_settings_that_a_framework_does_not_support_are_left_out_and_named(judge, said):
    level = judge(LEFT_TO_RIGHT_ONLY[said], only=["upside down", "not flipped"])
    assert level.passed and "not asked: upside down (flip 'vertical'" in level.where, level


def test_a_loader_may_use_its_memory_again(judge):
    body = """
    def epoch(self, pipeline, number):
        held = {}
        for images, labels in pipeline.epoch(number):
            array = held.setdefault(images.shape, numpy.empty_like(images))
            array[:] = images
            yield self.adopt(array, labels)
"""
    level = judge(body, only=["still"])
    assert level.passed, level.where


def test_a_worker_that_is_killed_in_a_pipeline_has_not_answered(judge):
    level = judge("\n    def epoch(self, pipeline, number):\n        import os\n        os.kill(os.getpid(), 9)\n")
    assert not level.passed and not level.answered


def test_the_pipeline_that_is_judged_has_the_loader_workers_of_the_config(judge):
    level = judge(
        "    def open_pipeline(self, images):\n        raise RuntimeError(f'{self.config.loader_workers} workers')\n",
        loader_workers=3,
    )
    assert "3 workers" in level.where


def test_a_verdict_on_one_number_of_loader_workers_is_none_on_another():
    entry, config = registry.framework("torch"), TrainConfig(loader_workers=2)
    keys = {
        cache.pipeline_key(entry, "1.0", dataclasses.replace(config, loader_workers=workers)) for workers in (0, 1, 2)
    }
    assert len(keys) == 3
    assert cache.pipeline_key(entry, "1.0", dataclasses.replace(config, batch_size=7)) in keys


@pytest.fixture
def known(tmp_path, own_cache, monkeypatch):
    """A climb that knows of levels 0 to 3 and 5 that they hold, and of the native pipeline that it does not."""
    held = Parity("torch", "1.0", "alexnet", "default", PASSED, levels=tuple(Level(n, True) for n in (0, 1, 2, 3, 5)))
    monkeypatch.setattr(cache, "load_network", lambda key: held)
    monkeypatch.setattr(cache, "pipeline_key", lambda *asked: "pipeline")
    wrong = Level(4, False, "blue, green, red")
    monkeypatch.setattr(cache, "load_levels", lambda key: [wrong] if key == "pipeline" else [])
    monkeypatch.setattr(pipelines, "judge", lambda run_tasks, config: Level(4, False, "blue, green, red"))
    return ParityChecker(tmp_path, {"torch": Environment("torch", Path(sys.executable), "1.0", False, "3.11", {})})


@pytest.mark.parametrize("ask", ["parity", "cached"])
@pytest.mark.parametrize("pipeline, shown", [("native", "0-3, not 4: blue"), ("shared", "0-3, 5")])
def test_a_native_pipeline_that_is_wrong_is_no_matter_of_a_cell_without_it(known, ask, pipeline, shown):
    verdict = getattr(known, ask)("torch", "alexnet", TrainConfig(pipeline=pipeline))
    assert verdict.column().startswith(shown)
    assert verdict.column() in PROVED or pipeline == "native"


@pytest.mark.parametrize("changed", [{"pipeline": "shared"}, {"loader_workers": 2}], ids=["pipeline", "loader workers"])
def test_a_study_keeps_verdicts_on_other_pipelines_apart(changed):
    row = {**TrainConfig().to_dict(), "framework": "torch", "model": "alexnet"}
    assert verdicts.key(row) != verdicts.key({**row, **changed})
