"""Language models in the real frameworks: each proved equal with its own updates, and trained through compare()."""

import itertools

import numpy as np
import pytest
from nightly import some_nightly

from framework_compare import compare
from framework_compare.parity.verify import verify

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
UPDATES = {"optimizer": "adamw", "beta2": 0.95, "clip_norm": 1.0, "ramp_updates": 10, "decay_updates": 100}
PAIRS = list(itertools.product(FRAMEWORKS, ["gpt_nano", "llama_nano"]))
BY_DAY = [("paddle", "llama_nano")]


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("pair", some_nightly(PAIRS, [pair for pair in PAIRS if pair not in BY_DAY]), ids="-".join)
def test_a_language_model_takes_the_oracles_updates(pair):
    framework, model = pair
    (found,) = verify(framework, model, batch_size=2, threads=1, fresh=True, **UPDATES)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_update_of_several_batches_is_that_of_their_mean(framework):
    (found,) = verify(framework, "gpt_nano", batch_size=2, threads=1, fresh=True, accumulation=2, **UPDATES)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_language_model_learns_more_than_frequencies(framework, tmp_path):
    study = compare(framework, "gpt_nano", epochs=1, threads=2, repeats=1, limit=1600, out=tmp_path / "study")
    assert study.frame.iloc[0].status == "ok", study.frame.iloc[0].reason
    row = study.quality.iloc[0]
    assert np.isfinite(row.validation_perplexity) and row.validation_perplexity < row.baseline_perplexity
    assert row.tokens_per_s > 0
