"""Generation: which models, the graph of a part of a window, what it is judged by, and its table."""

import dataclasses
import functools
import re
import sys

import numpy as np
import pytest
from bounds import rounding
from parity_fixtures import TRAINER
from sequences import TAGS, TEXT

from framework_compare import compare
from framework_compare.errors import UsageError
from framework_compare.graph import Graph, initial_weights, weight_views, weights_size
from framework_compare.graph.generation import at_positions, refusal
from framework_compare.graph.lowering import lowered
from framework_compare.models import bilstm_tagger, language
from framework_compare.parity.network import deviations
from framework_compare.parity.network.ladder import TOLERANCE, LevelFailed, generation_error
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.questions import Questions
from framework_compare.parity.network.reference import Reference, make_reference
from framework_compare.plan import planning
from framework_compare.results import roofline

WINDOW = TEXT.inputs[0].shape[0]
NEW = 4


def gpt() -> Graph:
    return language.gpt(TEXT, layers=2, heads=2, width=16)


def llama() -> Graph:
    return language.llama(TEXT, layers=2, heads=4, kv_heads=2, width=32)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_part_of_a_window_has_the_logits_that_the_whole_has_there(steps):
    graph = gpt()
    weights = initial_weights(graph, 0, np.empty(weights_size(graph), np.float32))
    tokens = np.random.default_rng(0).integers(0, TEXT.outputs, (2, WINDOW)).astype(np.int32)
    whole, part = Oracle(graph, weights).forward(tokens), at_positions(graph, steps)
    found = Oracle(part, weights).forward((tokens[:, :steps], np.tile(np.arange(steps, dtype=np.int32), (2, 1))))
    assert found.shape == (2, 1, TEXT.outputs)
    assert np.abs(found[:, 0] - whole[:, steps - 1]).max() < rounding(100) * np.abs(whole).max()
    assert {p.name: p.shape for p in part.parameters()} == {p.name: p.shape for p in graph.parameters()}


def test_rotary_positions_are_rows_of_one_table():
    has = frozenset({"Linear", "RMSNorm", "Embedding", "Attention", "SiLU", "Mul", "Add", "Gather", "Constant"})
    nodes = lowered(at_positions(llama(), 1), has).nodes
    tables = [node.attrs["value"].shape for node in nodes if node.op == "Constant"]
    assert tables == [(1, WINDOW, 8), (1, WINDOW, 8)]
    assert sum(node.op == "Gather" for node in nodes) == 2 * 2 * 2


def test_what_cannot_generate_says_why_before_anything_starts(images):
    for graph, new_tokens, words in (
        (gpt(), WINDOW, "has a window of 9 tokens and new_tokens is 9; allowed: 1 to 8"),
        (gpt(), 8, ""),
        (llama(), 1, ""),
        (bilstm_tagger.build(TAGS, width=8, hidden=8), 1, "predicts no next token of a sequence; use a language model"),
        (
            bilstm_tagger.build(dataclasses.replace(TEXT), width=8, hidden=8),
            1,
            "has layers that do not run token by token here: LSTM, Reverse",
        ),
    ):
        assert refusal(graph, new_tokens).startswith(words) and bool(words) == bool(refusal(graph, new_tokens))
    for model, settings, words in (
        ("alexnet", {"mode": "generation"}, "mode is 'generation'; alexnet predicts no next token"),
        ("gpt_nano", {"mode": "generation", "new_tokens": 128}, "gpt_nano has a window of 128 tokens"),
        ("gpt_nano", {"new_tokens": 3}, "new_tokens is 3; only mode 'generation' uses it: leave it out"),
    ):
        with pytest.raises(UsageError, match=re.escape(words)):
            planning.plan("torch", model, "cpu", images if model == "alexnet" else None, settings)


@functools.lru_cache(maxsize=None)
def asked(name: str) -> Reference:
    return make_reference({"gpt": gpt, "llama": llama}[name](), Questions())


def generated(reference, see=lambda whole, step: whole, answer=lambda logits: logits, choose=lambda tokens: tokens):
    """Tokens and float32 logits of an oracle that recomputes all; `see` is what it sees in place of the tokens so far."""
    oracle = Oracle(reference.graph, weight_views(reference.graph, reference.flat), np.float32)
    tokens, found = reference.batches[0][0][:, :-NEW], []
    for step in range(NEW):
        window = np.pad(see(tokens, step), [(0, 0), (0, NEW - step)])[:, :WINDOW]
        found.append(answer(oracle.forward(window)[:, tokens.shape[1] - 1]))
        tokens = np.concatenate([tokens, choose(found[-1].argmax(-1))[:, None].astype(tokens.dtype)], axis=1)
    return tokens[:, -NEW:], np.stack(found, 1)


def ratio(reference, **mistake):
    error = generation_error(reference, *generated(reference, **mistake))
    return error / reference.yardstick[1][deviations.EVALUATION]


def later(change):
    return lambda whole, step: change(whole) if step else whole


MISTAKES = {
    "a cache without the first token": {"see": later(lambda x: np.concatenate([x[:, 1:2], x[:, 1:]], 1))},
    "a token that does not get into the cache": {"see": later(lambda x: np.concatenate([x[:, :-1], x[:, -2:-1]], 1))},
    "caches of other sequences": {"see": later(lambda x: np.concatenate([x[::-1, :-1], x[:, -1:]], 1))},
    "logits of other sequences": {"answer": lambda logits: logits[::-1]},
    "logits of another scale": {"answer": lambda logits: logits * np.float32(1.001)},
}


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_a_mistake_in_generation_is_caught_and_an_honest_float32_run_within_the_yardstick(name):
    assert ratio(asked(name)) < TOLERANCE
    for mistake, changes in MISTAKES.items():
        assert ratio(asked(name), **changes) > TOLERANCE, mistake
    with pytest.raises(LevelFailed, match="a token does not have the largest of its logits"):
        ratio(asked(name), choose=lambda tokens: (tokens + 1) % TEXT.outputs)


RECOMPUTES = (
    TRAINER
    + """
    def generate(self, batch):
        tokens, window = batch.images, self.graph.input_shape[0]
        while tokens.shape[1] < window:
            padded = numpy.pad(tokens, [(0, 0), (0, window - tokens.shape[1])])
            logits = self.oracle.forward(padded)[:, tokens.shape[1] - 1]
            found = logits.argmax(-1)[:, None].astype(tokens.dtype)
            tokens = numpy.concatenate([tokens, found], axis=1)
            yield found, logits

    def read_generated(self, steps):
        tokens, logits = zip(*steps)
        return numpy.concatenate(tokens, axis=1), numpy.stack(logits, axis=1)

    def synchronize(self):
        pass

Mutated.declared = Mutated.declared._replace(generation=frozenset({"default"}))
"""
)
PLAIN = {"optimizer": "sgd", "clip_norm": 0.0, "ramp_updates": 0, "decay_updates": 0, "weight_decay": 0.0}


@pytest.mark.parametrize("source", [RECOMPUTES, TRAINER], ids=["generates", "does not"])
def test_a_study_has_the_time_to_the_first_token_and_tokens_per_second(source, register_mutated, tmp_path):
    register_mutated(source)
    how = {"out": tmp_path / "study", "threads": 1, "python": {"mutated": sys.executable}, "sampling_hz": 0}
    asked = {"mode": "generation", "new_tokens": 2, "batch_size": [1, 2], "limit": 2, "epochs": 1, "repeats": 1}
    study = compare("mutated", "gpt_nano", warmup_steps=0, **how, **asked, **PLAIN)
    if source == TRAINER:
        assert set(study.frame.status) == {"unsupported"}
        assert study.frame.reason[0].startswith("reference declares no mode 'generation' in execution")
        return
    assert list(study.frame.status) == ["ok", "ok"], study.frame.reason.tolist()
    quality = study.quality
    assert quality.tokens_per_s.to_numpy() == pytest.approx(2 * study.frame.images_per_s.to_numpy())
    assert (study.frame.step_s_median > 0).all() and study.epochs.loss.isna().all()
    text = str(study.table("generation", width=200))
    assert "batch 1" in text and "tokens/s" in text and "first" in text
    assert str(study.table("inference")).strip() == "No cell in this study ran in inference mode."
    frame = roofline.roofline_frame(study.frame, study.settings, lambda cell: None)
    assert frame.flop_per_image.isna().all()
