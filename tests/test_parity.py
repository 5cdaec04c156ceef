"""The ladder holds for a framework that is the reference in float32, and catches each seeded mistake at its level."""

import contextlib
import re

import numpy
import pytest
from bounds import digits
from network_mistakes import BIASED, BOUNDED, DECAYED, MUTATIONS, NESTEROV, NO_LOADER, RENAMED_OP, SUMMED
from nightly import some_nightly
from parity_fixtures import climb, climbs

from framework_compare import registry
from framework_compare.graph import Node
from framework_compare.parity.network import surgery
from framework_compare.parity.network.ladder import KEPT, TOLERANCE, Judge, LevelFailed, check_dropout, check_off
from framework_compare.parity.network.rounding import unit


def test_the_reference_in_float32_passes_every_level(mutate):
    mutate()
    found = climb()
    assert (found.status, found.highest, found.diverges) == ("passed", 5, "")
    assert [level.number for level in found.levels] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("mutation", [name for name, (_, level, _) in MUTATIONS.items() if level != 4])
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_seeded_mistake_is_caught_at_its_level(mutate, mutation):
    check_caught(mutate, *MUTATIONS[mutation])


OF_PIPELINES = [name for name, (_, level, _) in MUTATIONS.items() if level == 4]


# More of them are in test_pipeline_judges.py, without a climb.
@pytest.mark.parametrize("mutation", some_nightly(OF_PIPELINES, OF_PIPELINES[1:]))
def test_a_seeded_mistake_of_a_pipeline_is_caught(mutate, training_held, mutation):
    check_caught(mutate, *MUTATIONS[mutation])


def check_caught(mutate, body, level, words):
    mutate(body)
    found = climb()
    failed = [one for one in found.levels if not one.passed]
    assert found.status == "failed" and failed, "a hole in the ladder"
    assert failed[0].number == level, failed
    assert words in failed[0].where + found.diverges
    assert level != 3 or (failed[0].ratio or 0) > TOLERANCE, "no number of the network's own steps is off"


WRONG_ROW = """
    def load_weights(self, weights):
        self.given = {{name: array.copy() for name, array in weights.items()}}
        changed = {{name: array.copy() for name, array in weights.items()}}
        if "{name}" in changed:
            changed["{name}"][{row}] *= numpy.float32(1.5)
        super().load_weights(changed)

    def weights(self):
        return self.given
"""


@pytest.mark.parametrize(
    "body, first",
    [
        (RENAMED_OP, "first layer that differs: relu2 (ReLU6), at ("),
        (WRONG_ROW.format(name="conv3.weight", row=5), "first layer that differs: conv3 (Conv2d), at ("),
        (WRONG_ROW.format(name="fc.weight", row=1), "first layer that differs: fc (Linear), at ("),
        (SUMMED, "backward from the loss, the first gradient that differs: fc.bias (Linear) at ("),
        (NESTEROV, "after the steps, the first that differs: conv1.weight (Conv2d) at ("),
    ],
    ids=["in the middle", "one channel", "the last layer", "backward", "in steps"],
)
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_where_it_goes_another_way_is_said_with_both_values(mutate, body, first):
    mutate(body)
    found = climb()
    assert first in found.diverges and ", expected " in found.diverges, found.diverges


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_difference_that_no_single_value_shows_is_seen_in_a_sum_of_all(mutate, monkeypatch):
    monkeypatch.setattr(surgery, "FEWEST", 2)
    monkeypatch.setattr(surgery, "PEEK_VALUES", 1)
    mutate(WRONG_ROW.format(name="conv2.weight", row=5))
    found = climb()
    assert "conv2 (Conv2d), in a signed sum" in found.diverges and ", expected " in found.diverges, found.diverges


def test_a_native_pipeline_that_is_not_installed_is_neither_held_nor_failed(mutate):
    mutate(NO_LOADER)
    found = climb()
    assert (found.status, found.column()) == ("passed", "0-3, 5, not asked: 4")
    assert found.levels[4].where == "its loader is not installed"


@pytest.mark.parametrize("body, setting", [(BIASED, "'running_variance': 'biased'"), (BOUNDED, "'loss_bound': 0.25")])
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_deviation_that_is_declared_is_held_to_that(mutate, body, setting):
    declared = f"\n    def settings(self):\n        return {{{setting}}}\n"
    mutate(body + declared)
    found, words = climb(), (" (biased running variance)", "below the largest)")
    assert found.status == "passed" and found.levels[3].where.endswith(words)
    mutate(declared)
    assert climb().highest == 2


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_an_adapter_that_raises_fails_those_levels_only_that_ask_for_it(mutate):
    mutate("\n    def gradients(self, batch):\n        raise RuntimeError('no gradients')\n")
    found = climb()
    failed = [level for level in found.levels if not level.passed]
    assert [level.number for level in failed] == [2, 5]
    assert all("no gradients" in level.where for level in failed)


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_each_device_has_environments_of_its_own_and_what_a_framework_does_not_support_is_said(mutate):
    mutate()
    unsupported = climb(execution="graph")
    assert unsupported.status == unsupported.column() == "unsupported"
    assert "declares no execution 'graph'" in unsupported.reason
    assert [one.status for one in climbs(device=["cuda", "cpu"])] == ["unsupported", "passed"]


NO_DROPOUT_IN_STEPS = """
    def gradients(self, batch):
        return self.oracle.gradients(batch.images, batch.labels)[2]
"""
ONE_MASK = """
    def forward(self, batch, *, training=False):
        logits = super().forward(batch, training=training)
        if training and self.graph.nodes[-1].op == "Dropout":
            plain = self.oracle.forward(batch.images, training=True)
            logits = plain * (self.random.random(plain.shape[1:]) < 0.5) * numpy.float32(2)
        return logits
"""
STALE_IMAGES = """
    def train_step(self, batch):
        self.first = getattr(self, "first", batch.images)
        return super().train_step(batch._replace(images=self.first))
    def load_weights(self, weights):
        self.__dict__.pop("first", None)
        super().load_weights(weights)
"""
MOMENTUM_KEPT = """
    def load_weights(self, weights):
        kept = getattr(self.oracle, "slots", {})
        super().load_weights(weights)
        self.oracle.slots = {name: slots for name, slots in kept.items() if name in self.oracle.weights}
"""
BY_CONFIG = """
    def gradients(self, batch):
        factor = numpy.float32(batch.size / self.config.batch_size)
        return {name: array * factor for name, array in super().gradients(batch).items()}
"""


@pytest.mark.parametrize(
    "body, level, words",
    [
        (NO_DROPOUT_IN_STEPS, 5, "off in training steps"),
        (ONE_MASK, 5, "all images of a batch"),
        (STALE_IMAGES, 3, ""),
        (MOMENTUM_KEPT, 3, "momentum from earlier steps"),
        (BY_CONFIG, 2, ""),
    ],
    ids=["dropout off in steps", "one mask a batch", "first images kept", "momentum kept", "loss by config.batch_size"],
)
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_mistake_that_only_training_shows_is_caught(mutate, body, level, words):
    mutate(body)
    found = climb()
    failed = [one for one in found.levels if not one.passed]
    assert [one.number for one in failed][:1] == [level] and words in failed[0].where, found.column()


def test_a_mistake_that_only_other_settings_show_fails_level_3(mutate, pipeline_held):
    mutate(DECAYED)
    found = climb()
    assert (found.status, found.highest) == ("failed", 2) and "as a cell trains" in found.worst.where
    assert climb().status == "failed"


@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_an_answer_of_another_form_fails_its_level(mutate):
    mutate(
        "\n    def forward(self, batch, *, training=False):\n"
        "        logits = super().forward(batch, training=training)\n"
        "        return logits[:, 1:] if self.graph.nodes[-1].op == 'Dropout' else logits\n"
    )
    found = climb()
    assert found.status == "failed" and not found.levels[-1].passed and "cannot be judged" in found.levels[-1].where


NEIGHBOURS_MIXED = """
    def forward(self, batch, *, training=False):
        logits = super().forward(batch, training=training)
        return numpy.roll(logits, 1, axis=0) if batch.size > 4 and {when} else logits
"""
LAST_LEFT_OUT = """
    def gradients(self, batch):
        if batch.size > 4:
            batch = self.to_device_batch(batch.images[:-1], batch.labels[:-1])
        return super().gradients(batch)
"""


@pytest.mark.parametrize(
    "body, level, where, batch_size",
    [
        (NEIGHBOURS_MIXED.format(when="not training"), 1, "logits, BatchNorm in evaluation mode", 16),  # copies alike
        (NEIGHBOURS_MIXED.format(when="training"), 1, "logits, BatchNorm in training mode", 7),  # one copy more
        (LAST_LEFT_OUT, 2, "fc.bias", 7),
    ],
    ids=["evaluation", "training", "gradients"],
)
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_a_mistake_that_only_the_cells_own_batch_shows_is_caught(mutate, body, level, where, batch_size):
    mutate(body)
    assert climb(batch_size=4).status == "passed"
    found = climb(batch_size=batch_size)
    assert (found.status, found.highest) == ("failed", level - 1)
    assert found.worst.where == f"{where} at a batch of {batch_size}"
    assert "that differs: " in found.diverges, found.diverges


@pytest.mark.parametrize("batch_size", [1, 2, 7, 37])
@pytest.mark.usefixtures("training_held", "pipeline_held")
def test_the_reference_passes_at_batches_of_all_sizes(mutate, batch_size):
    mutate()
    found = climb(batch_size=batch_size)
    assert found.status == "passed", [one for one in found.levels if not one.passed]


def dropped(values, p=0.5, scale=2.0, passes=16):
    """Passes of `values`, a float32 product of (8, 512) images, with a mask each."""
    kept = numpy.random.default_rng(1).random((passes, *values.shape)) >= p
    return numpy.where(kept, numpy.float32(scale) * values, numpy.float32(0))


@pytest.fixture
def summed_twice():
    """ReLU of the same sums, forwards and in blocks of eight: as two algorithms round them."""
    rng = numpy.random.default_rng(0)
    x, w = rng.standard_normal((8, 4096), numpy.float32), rng.standard_normal((4096, 512), numpy.float32)
    blocks = sum(x[:, i::8] @ w[i::8] for i in range(8))
    return [numpy.maximum(sums, 0) for sums in (x @ w, blocks)]


def test_dropout_is_judged_beneath_the_rounding_of_two_algorithms(summed_twice):
    one, other = summed_twice
    both = (one > 0) & (other > 0)
    assert abs(other[both] / one[both] - 1).max() > KEPT + unit("fp32")  # a small value, by its relative error
    check_dropout("dropout", 0.5, dropped(other), one, "fp32")
    for put in (numpy.nan, numpy.inf):  # no number of dropout's
        passes = dropped(one)
        passes[tuple(numpy.argwhere(passes > 0)[0])] = put
        with pytest.raises(LevelFailed, match="kept values are scaled by"):
            check_dropout("dropout", 0.5, passes, one, "fp32")


@pytest.mark.parametrize("scale", [1.0, 2.001, 1.999])
def test_a_scale_of_dropout_that_is_a_little_off_is_seen_all_the_same(summed_twice, scale):
    one, other = summed_twice
    with pytest.raises(LevelFailed, match="kept values are scaled by .*, expected 2$") as caught:
        check_dropout("dropout", 0.5, dropped(other, scale=scale), one, "fp32")
    told = float(re.search("scaled by ([0-9.]+)", str(caught.value))[1])
    most = one > numpy.median(one[one > 0]) / 2  # what is smaller is not judged by its own size
    assert told == pytest.approx(scale, rel=float(abs(other[most] / one[most] - 1).max()) + digits(6))


def depth(scale=1.25, p=0.2, passes=32, seed=3):
    """Passes of a batch of two in which whole samples are dropped."""
    kept = numpy.random.default_rng(seed).random((passes, 2, 1, 1, 1)) >= p
    return kept * scale * DEPTH_INPUT


DEPTH_INPUT = numpy.random.default_rng(2).standard_normal((2, 3, 4, 4)).astype(numpy.float32)


@pytest.mark.parametrize(
    "passes, message",
    [
        (depth(scale=1.0), "kept values are scaled by 1, expected 1.25"),
        (depth(p=0.8), "of 64 samples dropped, expected 0.2"),
        (depth() * (numpy.arange(4) > 0), "a part of a sample is dropped"),
        (depth()[:, :1].repeat(2, axis=1) * (DEPTH_INPUT / DEPTH_INPUT[:1]), "all images of a batch are dropped"),
        (1.25 * DEPTH_INPUT[None].repeat(32, axis=0), "each pass drops the same"),
    ],
    ids=["not scaled", "kept instead", "by values", "all together", "never"],
)
def test_samples_dropped_by_chance_pass_and_other_ways_to_drop_them_fail(passes, message):
    check_dropout("depth", 0.2, depth(), DEPTH_INPUT, "fp32", of_samples=True)
    with pytest.raises(LevelFailed, match=message):
        check_dropout("depth", 0.2, passes, DEPTH_INPUT, "fp32", of_samples=True)


@pytest.mark.parametrize("moved", [1e-4, numpy.nan])
def test_dropout_that_is_on_in_evaluation_is_seen(summed_twice, moved):
    one, other = summed_twice
    assert not numpy.array_equal(one, other)
    check_off(other, one)  # what two orders of sums explain
    with_it = one.copy()
    with_it.flat[0] += moved * numpy.abs(with_it).max()
    with pytest.raises(LevelFailed, match="dropout is on in evaluation mode"):
        check_off(with_it, one)


@pytest.mark.parametrize("moved, is_off", [(0.0, True), (0.002, True), (0.004, False), (0.02, False)])
def test_dropout_in_steps_may_move_gradients_by_less_than_one_draw(moved, is_off):
    judge, node = Judge.__new__(Judge), Node("drop", "Dropout", ("input",), {"p": 0.1})
    judge._said = lambda name: {}
    judge._array = lambda name: {"weight": numpy.array([1 + moved * name.endswith("with")])}
    judge._dropout_moves = lambda: iter([0.07, 0.05, 0.04, 0.03])
    with pytest.raises(LevelFailed, match="off in training steps") if is_off else contextlib.nullcontext():
        judge._in_steps([node])


OP_CHANGED = """
    name = 'mutated'

from .oracle import Mode
right = dict(OPS)
{change}
"""


@pytest.fixture
def sequences(monkeypatch, training_held, pipeline_held):
    """Registers networks of sequences; the pipelines and the small image model are tested elsewhere."""
    for name in ("forecast", "tagger"):
        monkeypatch.setitem(registry.MODELS, name, registry.Model(f"sequences:{name}"))


@pytest.mark.parametrize("model", ["forecast", "tagger"])
def test_the_reference_in_float32_passes_on_sequences(mutate, sequences, model):
    mutate()
    found = climb(model)
    assert (found.status, found.diverges) == ("passed", ""), found.levels


@pytest.mark.parametrize(
    "model, change, level, place",
    [
        ("forecast", "OPS['Last'] = lambda n, w, x, m: right['Last'](n, w, (x[0][:, ::-1],), m)", 1, "last (Last)"),
        ("tagger", "OPS['Concat'] = lambda n, w, x, m: right['Concat'](n, w, x[::-1], m)", 1, "both (Concat)"),
        ("tagger", "OPS['Dropout'] = lambda n, w, x, m: right['Dropout'](n, w, x, Mode(False))", 5, ""),
    ],
    ids=["first step for the last", "concat the other way round", "no dropout"],
)
def test_a_mistake_on_sequences_is_named(mutate, sequences, model, change, level, place):
    mutate(OP_CHANGED.format(change=change))
    found = climb(model)
    failed = [one for one in found.levels if not one.passed]
    assert failed and failed[0].number == level, found.levels
    assert place in found.diverges
