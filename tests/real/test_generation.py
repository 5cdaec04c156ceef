"""Generation in the real frameworks: cached steps have the logits of the whole prefix in float64, and mistakes do not."""

import dataclasses
import itertools

import numpy as np
import pytest
from bounds import rounding
from nightly import some_nightly

from framework_compare import compare, registry
from framework_compare.parity.verify import verify

FRAMEWORKS = ["torch", "lightning", "jax", "paddle", "tensorflow"]
PAIRS = list(itertools.product(FRAMEWORKS, ["gpt_nano", "llama_nano"]))
BY_DAY = ("jax", "llama_nano")


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("pair", some_nightly(PAIRS, [pair for pair in PAIRS if pair != BY_DAY]), ids="-".join)
def test_cached_steps_are_those_of_the_whole_prefix(pair, monkeypatch):
    framework, model = pair
    if pair == BY_DAY:
        small = dataclasses.replace(registry.MODELS[model], size={"layers": 1, "width": 64})
        monkeypatch.setitem(registry.MODELS, model, small)
    (found,) = verify(framework, model, mode="generation", batch_size=2, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


CACHED = """
tokens = np.random.default_rng(3).integers(0, 256, (3, 128)).astype(np.int32)
labels = np.zeros((3, 128), np.int64)

def off(change=None):
    "How far generated logits are from those of one pass over prompt and tokens, relative."
    right = type(trainer)._prepare
    if change:
        def wrong(prompt):
            window, step = right(trainer, prompt)
            return window, lambda tokens, at: step(*change(tokens, at)) if at else step(tokens, at)
        trainer._prepare = wrong
    trainer._prepared = (None, 0)
    chosen, logits = trainer.read_generated(list(trainer.generate(trainer.to_device_batch(tokens[:, :100], labels))))
    whole = trainer.forward(trainer.to_device_batch(np.concatenate([tokens[:, :100], chosen], 1).astype(np.int32), labels))
    return float(np.linalg.norm(logits - whole[:, 99:127]) / np.linalg.norm(whole[:, 99:127]))

answer = [
    off(),
    off(lambda tokens, at: (tokens, at + 1)),  # a step further in the cache
    off(lambda tokens, at: (tokens, at - 1)),  # over the step before
    off(lambda tokens, at: (0 * tokens, at)),  # a token that is not that before
]
"""


@pytest.mark.nightly
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_step_at_another_place_is_seen(pair, trainer_script, images):
    framework, model = pair
    right, *wrong = trainer_script(framework, model, CACHED, images=images)
    # what torch finds beyond the filled part of its cache may be NaN
    seen = [not error < rounding(10_000, np.float32) for error in wrong]
    assert right < rounding(100, np.float32) and all(seen), (right, wrong)


GREEDY = """
tokens = np.random.default_rng(5).integers(0, 256, (4, 96)).astype(np.int32)
steps = list(trainer.generate(trainer.to_device_batch(tokens, np.zeros((4, 128), np.int64))))
answer = [array.tolist() for array in trainer.read_generated(steps)]
"""


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["gpt_nano", "llama_nano"])
def test_frameworks_generate_the_same_tokens(model, trainer_script, images):
    """Until a sequence's two largest logits are the same up to rounding; from there on its prefixes differ."""
    answers = [trainer_script(framework, model, GREEDY, images=images) for framework in FRAMEWORKS]
    (first, logits), *others = [tuple(map(np.array, answer)) for answer in answers]
    assert first.shape == (4, 32) and len(np.unique(first)) > 1
    for second, _ in others:
        for row, (ours, theirs) in enumerate(zip(first, second)):
            differ = np.flatnonzero(ours != theirs)
            if len(differ):
                next_best, best = np.sort(logits[row, differ[0]])[-2:]
                bound = rounding(100, np.float32) * np.abs(logits[row, differ[0]]).max()
                assert best - next_best < bound, (row, differ[0])


@pytest.mark.nightly
def test_a_study_of_generation_at_three_batch_sizes(tmp_path):
    asked = {"mode": "generation", "batch_size": [1, 8, 64], "limit": 64, "epochs": 1, "repeats": 1, "threads": 2}
    study = compare(FRAMEWORKS, "gpt_nano", out=tmp_path / "study", **asked)
    assert set(study.frame.status) == {"ok"}, study.frame.reason.tolist()
    assert (study.quality.tokens_per_s > 0).all()
    assert "batch 64" in str(study.table("generation", width=250))
