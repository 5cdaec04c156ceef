"""The ladder's comparison catches each seeded mistake in the layers and the updates of language models, at its level.

The framework is the oracle in float32, run in this process with one thing of it replaced.
"""

import dataclasses
import functools
from typing import Callable, Dict

import numpy as np
import pytest
from op_mistakes import (
    Mistake,
    attrs,
    check_caught,
    check_honest,
    eps_hat,
    first,
    gradient,
    inputs,
    output,
    scaled,
    settings,
)
from sequences import TEXT

from framework_compare.graph import Graph, Schedule
from framework_compare.models import language
from framework_compare.parity.network.oracle import Oracle, network
from framework_compare.parity.network.questions import Questions
from framework_compare.parity.network.reference import Reference, make_reference
from framework_compare.parity.network.rounding import rounding_of

NETWORKS: Dict[str, Callable[[], Graph]] = {
    "gpt": lambda: language.gpt(TEXT, layers=2, heads=2, width=16),
    "llama": lambda: language.llama(TEXT, layers=2, heads=4, kv_heads=2, width=32),
    "smoothed gpt": lambda: language.gpt(dataclasses.replace(TEXT, smoothing=0.1), layers=1, heads=2, width=16),
}
ASKED = Questions(optimizer="adamw", beta2=0.95, clips=True, schedules=True, accumulation=2)


@functools.lru_cache(maxsize=None)
def reference(name: str, precision: str = "fp32") -> Reference:
    return make_reference(NETWORKS[name](), ASKED, precision)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_honest_run_passes(name, precision):
    how = {"plain_sums": True} if precision == "fp32" else {"rounding": rounding_of(precision, 1)}
    check_honest(reference(name, precision), **how)


def interleaved(right):
    """Pairs (2i, 2i + 1) turn, as in the first paper, where the definition turns (i, i + width / 2)."""

    def op(node, own, x, mode):
        heads, (value,) = node.attrs["heads"], x
        width = value.shape[-1] // heads
        order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
        places = (np.arange(heads)[:, None] * width + order).ravel()
        y, backward = right(node, own, (value[..., places],), mode)
        back = np.argsort(places)
        return y[..., back], lambda dy: ((backward(dy[..., places])[0][0][..., back],), {})

    return op


def dealt(x):
    """Query heads 0 and 2 read key head 0, and not heads 0 and 1."""
    cut = x.reshape(*x.shape[:-1], 4, -1)
    return cut[..., [0, 2, 1, 3], :].reshape(x.shape)


def centred(x):
    return x - x.mean(axis=-1, keepdims=True)


def decays_all(right):
    def step(weight, gradient, slots, number, given):
        if weight.ndim < 2:
            weight -= given["rate"] * given["weight_decay"] * weight
        right(weight, gradient, slots, number, given)

    return step


def coupled(right):
    """L2 regularisation, which goes through the moments."""

    def step(weight, gradient, slots, number, given):
        if weight.ndim > 1:
            gradient = gradient + gradient.dtype.type(given["weight_decay"]) * weight
        right(weight, gradient, slots, number, {**given, "weight_decay": 0.0})

    return step


def decay_without_rate(right):
    return lambda w, g, slots, number, given: right(
        w, g, slots, number, {**given, "weight_decay": given["weight_decay"] / (2 * given["rate"])}
    )


def planned(**changed):
    """Updates by another plan, of the one that is asked for."""

    def put(right):
        def apply(self, gradients, optimizer):
            change = {name: make(optimizer) for name, make in changed.items()}
            right(self, gradients, dataclasses.replace(optimizer, **change))

        return apply

    return put


def one_by_one(right):
    """Each array clipped by its own norm."""
    return lambda gradients, most: {name: right({name: g}, most)[name] for name, g in gradients.items()}


def in_two_steps(right):
    """Batches add up where their mean is asked for: the gradient of each is twice what it should be."""

    def apply(self, gradients, optimizer):
        right(self, {name: 2 * g for name, g in gradients.items()}, optimizer)

    return apply


def share(change):
    return lambda right: lambda self, update: change(right, self, update)


def from_zero(right, self, update):
    return update / self.ramp if update < self.ramp else right(self, update)


def cosine_from_start(right, self, update):
    done = min(1.0, update / self.decay)
    fallen = self.final + (1 - self.final) * (1 + np.cos(np.pi * done)) / 2
    return right(self, update) if update < self.ramp else fallen


def in_a_line(right, self, update):
    if update < self.ramp:
        return right(self, update)
    return 1 - (1 - self.final) * (update - self.ramp) / (self.decay - self.ramp)


def labels(change):
    return lambda right: lambda logits, target: right(logits, change(target))


def smoothing(change):
    return lambda right: lambda logits, target, smoothing: right(logits, target, change(smoothing))


def ignored_too(right):
    """Tokens that do not count have the even part of a smoothed loss."""

    def loss(logits, target, smoothing):
        value, gradient = right(logits, target, smoothing)
        shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        even = smoothing * (shares - 1 / TEXT.outputs) / (target != -1).sum()
        return value, np.where((target == -1)[..., None], even, gradient).astype(logits.dtype)

    return loss


def rolled(x):
    return (x[0], *(np.roll(one, -1, axis=1) for one in x[1:]))


MISTAKES = {
    "Attention without its mask": Mistake("gpt", 1, "Attention", attrs(causal=False)),
    "Attention that sees one step ahead": Mistake("llama", 1, "Attention", inputs(rolled)),
    "Attention without its scale": Mistake("llama", 1, "Attention", attrs(scale=1.0)),
    "groups of queries dealt out in turn": Mistake("llama", 1, "Attention", inputs(lambda x: (dealt(x[0]), *x[1:]))),
    "keys with the gradient of one query of their group": Mistake("llama", 2, "Attention", scaled(1, 0.5)),
    "interleaved rotary positions": Mistake("llama", 1, "Rotary", interleaved),
    "rotary positions the other way round": Mistake("llama", 2, "Rotary", gradient(0, lambda g, x: g[..., ::-1])),
    "rotary positions of another base": Mistake("llama", 1, "Rotary", attrs(theta=500.0)),
    "RMSNorm without eps": Mistake("llama", 1, "RMSNorm", attrs(eps=0.0)),
    "RMSNorm that takes off the mean": Mistake("llama", 1, "RMSNorm", first(centred)),
    "a head that is not tied": Mistake("gpt", 2, "Unembedding", scaled("weight", 0)),
    "logits that are scaled": Mistake("gpt", 1, "Unembedding", output(lambda y, *_: y * np.float32(0.99))),
    "targets a step further": Mistake("gpt", 2, "token_cross_entropy", labels(lambda y: np.roll(y, -1, axis=1))),
    "labels that are not smoothed": Mistake(
        "smoothed gpt", 2, "smoothed token_cross_entropy", smoothing(lambda share: 0.0)
    ),
    "labels smoothed over the other classes alone": Mistake(
        *("smoothed gpt", 2, "smoothed token_cross_entropy"),
        smoothing(lambda share: share * TEXT.outputs / (TEXT.outputs - 1)),
    ),
    "a smoothed loss of tokens that do not count": Mistake(
        "smoothed gpt", 2, "smoothed token_cross_entropy", ignored_too
    ),
    "decay of gains and biases": Mistake("gpt", 3, "adamw", decays_all),
    "decay that is part of the gradient": Mistake("gpt", 3, "adamw", coupled),
    "decay without the rate": Mistake("llama", 3, "adamw", decay_without_rate),
    "eps-hat in AdamW": Mistake("llama", 3, "adamw", settings(eps_hat)),
    "beta2 .999 for .95": Mistake("llama", 3, "adamw", settings(lambda *_: {"beta2": 0.999})),
    "gradients clipped after the update": Mistake("gpt", 3, "apply", planned(clip_norm=lambda o: 0.0), Oracle),
    "each array clipped separately": Mistake("gpt", 3, "clipped", one_by_one, network),
    "batches that add up": Mistake("llama", 3, "apply", in_two_steps, Oracle),
    "an update for each batch": Mistake("llama", 3, "apply", planned(accumulation=lambda o: 1), Oracle),
    "a first update of rate 0": Mistake("gpt", 3, "share", share(from_zero), Schedule),
    "a cosine from the first update": Mistake("gpt", 3, "share", share(cosine_from_start), Schedule),
    "a rate that falls in a line": Mistake("gpt", 3, "share", share(in_a_line), Schedule),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_at_its_level(mistake, monkeypatch):
    check_caught(reference(MISTAKES[mistake].network), MISTAKES[mistake], monkeypatch)
