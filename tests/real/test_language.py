"""Language models in the real frameworks: each proved equal with its own updates, and trained through compare()."""

import dataclasses
import itertools
import subprocess

import numpy as np
import pytest
from nightly import some_nightly

from framework_compare import compare, registry
from framework_compare.environments import managed
from framework_compare.launch import staging
from framework_compare.parity.verify import verify

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
UPDATES = {"optimizer": "adamw", "beta2": 0.95, "clip_norm": 1.0, "ramp_updates": 10, "decay_updates": 100}
PAIRS = list(itertools.product(FRAMEWORKS, ["gpt_nano", "llama_nano"]))
BY_DAY = [("paddle", "llama_nano")]


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("pair", some_nightly(PAIRS, [pair for pair in PAIRS if pair not in BY_DAY]), ids="-".join)
def test_a_language_model_takes_the_oracles_updates(pair, monkeypatch):
    framework, model = pair
    if pair in BY_DAY:
        small = dataclasses.replace(registry.MODELS[model], size={"layers": 1, "width": 64})
        monkeypatch.setitem(registry.MODELS, model, small)
    (found,) = verify(framework, model, batch_size=2, threads=1, fresh=True, **UPDATES)
    assert found.proves(), (found.reason, found.levels)


# bf16 has no 1 / 130; on a GPU autocast leaves log_softmax in the precision of the logits, and on a CPU it does not.
HALF_LOGITS = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from framework_compare.adapters.torch.tasks import LOSSES

single, labels = torch.randn(2, 65, 256), torch.arange(130).reshape(2, 65)
for name in ("token_cross_entropy", "smoothed token_cross_entropy"):
    options = {"smoothing": 0.1} if name.startswith("smoothed") else {}
    half, gradients = single.bfloat16().requires_grad_(), []
    for logits in (half, half.detach().float().requires_grad_()):
        loss = LOSSES[name](torch, **options)(logits, labels)
        assert loss.dtype == torch.float32, loss.dtype
        loss.backward()
        gradients.append(logits.grad)
    assert torch.equal(gradients[0], gradients[1].bfloat16())
"""


def test_pytorchs_losses_are_computed_in_float32():
    command = [str(managed.ensure("torch").python), "-c", HALF_LOGITS, str(staging.stage(registry.framework("torch")))]
    subprocess.run(command, check=True, timeout=300)


MEAN, SMOOTHED = {"accumulation": 2, **UPDATES}, {"label_smoothing": 0.1}
KERAS = ("keras-tensorflow", "keras-jax", "keras-torch")
ASKED = [
    *((framework, "gpt_nano", MEAN) for framework in FRAMEWORKS),
    *((framework, model, SMOOTHED) for framework in (*FRAMEWORKS, *KERAS) for model in ("gpt_nano", "mnist_cnn")),
]


@pytest.mark.nightly
@pytest.mark.usefixtures("references")
@pytest.mark.parametrize("framework, model, settings", ASKED)
def test_updates_of_several_batches_and_smoothed_labels_are_those_of_the_oracle(framework, model, settings):
    (found,) = verify(framework, model, batch_size=2, threads=1, fresh=True, **settings)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_language_model_learns_more_than_frequencies(framework, tmp_path):
    study = compare(framework, "gpt_nano", epochs=1, threads=2, repeats=1, limit=1600, out=tmp_path / "study")
    assert study.frame.iloc[0].status == "ok", study.frame.iloc[0].reason
    row = study.quality.iloc[0]
    assert np.isfinite(row.validation_perplexity) and row.validation_perplexity < row.baseline_perplexity
    assert row.tokens_per_s > 0


REPEATED = """
from framework_compare.graph import Field, GraphBuilder, Task, initial_weights, weights_size

tokens, following = Field("tokens", (1024,), "int32", 8), Field("next", (1024,), "int64")
g = GraphBuilder("embedded", Task((tokens,), following, 8, "token_cross_entropy", ("perplexity",), "sequence"))
g.embedding("wte", 16)
g.linear("head", 8)
graph = g.build()
weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
trainer.build(graph)
trainer.load_weights(weights)
batch = trainer.to_device_batch(np.full((4, 1024), 3, np.int32), np.ones((4, 1024), np.int64))
found = np.asarray(trainer.gradients(batch)["wte.weight"])[3]
logits = weights["wte.weight"][3] @ weights["head.weight"].T + weights["head.bias"]
shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
right = (shares - np.eye(8)[1]) @ weights["head.weight"]
answer = float(np.linalg.norm(found - right) / np.linalg.norm(right))
"""
BF16 = 2.0**-8  # what one rounding may be off by


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_thousands_of_gradients_of_one_token_are_not_summed_in_bf16(framework, trainer_script, images):
    """Of 4,096 equal numbers a sum in bf16 stays at the 256th."""
    found = trainer_script(framework, "gpt_nano", REPEATED, images=images, build=False, precision="bf16")
    assert found < 4 * BF16
