"""Each precision has its own yardstick: an oracle so rounded passes, mistakes and narrower formats do not."""

import itertools
import sys

import bounds
import numpy as np
import pytest
from command_line import run
from network_mistakes import EXTRA_BIAS, SUMMED, UNSCALED_DROPOUT, change
from nightly import some_nightly

from framework_compare import compare
from framework_compare.graph import Field, GraphBuilder, Task
from framework_compare.parity import verify as ladder
from framework_compare.parity.network import rounding
from framework_compare.parity.network.ladder import remark
from framework_compare.parity.network.reference import make_reference
from framework_compare.protocol import TrainConfig
from framework_compare.results.parity import Level

# The reference rounded as its config says; COMPUTES puts another precision in its place.
CLASS = """
from .rounding import rounding_of

class Mutated(ReferenceTrainer):
    computes = {computes!r}
    declared = ReferenceTrainer.declared._replace(precisions={{"cpu": frozenset(("fp32", "tf32", "bf16", "fp16"))}})

    def unsupported(self):
        return "precision 'tf32': none here" if self.config.precision == "tf32" and {lacks_tf32} else None

    def load_weights(self, weights):
        rounding = rounding_of(self.computes or self.config.precision)
        self.oracle = Oracle(self.graph, weights, numpy.float32, rounding=rounding)
{body}
"""
PADDING = change("MaxPool2d", padding=0, kernel=2)
MOMENTUM = change("BatchNorm2d", momentum=0.9)
EPS_1, EPS_1E_3 = (change("BatchNorm2d", eps=eps) for eps in (1.0, 1e-3))
COARSER_WHERE_LARGE = """
    def forward(self, batch, *, training=False):
        rounding = rounding_of("%s" if batch.size > 64 else self.config.precision)
        oracle = Oracle(self.graph, self.oracle.weights, numpy.float32, rounding=rounding)
        return oracle.forward(batch.images, training=training, dropout=self.random)
"""
NO_GRADIENTS_WHERE_LARGE = """
    def gradients(self, batch):
        return {name: g * (batch.size <= 64) for name, g in super().gradients(batch).items()}
"""

COARSER_GRADIENTS_WHERE_LARGE = """
    def gradients(self, batch):
        if batch.size <= 64:
            return super().gradients(batch)
        exact = self.oracle
        self.oracle = Oracle(self.graph, exact.weights, numpy.float32, rounding=rounding_of("tf32"))
        try:
            return super().gradients(batch)
        finally:
            self.oracle = exact
"""


@pytest.fixture
def rounded(mutate, register_mutated, short_level_4):
    """Registers the framework `mutated`: the reference at any precision, with methods given; and the model `small`."""

    def make(body: str = "", *, computes: str = "", lacks_tf32: bool = False) -> None:
        register_mutated(CLASS.format(body=body, computes=computes, lacks_tf32=lacks_tf32))

    return make


@pytest.fixture
def climb(tmp_path):
    """The network levels of `mutated` at a precision."""

    def run(precision: str, batch_size: int = 16):
        ready = {"mutated": ladder.Where(python={"mutated": sys.executable}).environment("mutated", print)}
        config = TrainConfig(precision=precision, image_size=32, threads=1, batch_size=batch_size)
        return ladder.ParityChecker(tmp_path, ready).network("mutated", "small", config)

    return run


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_the_reference_rounded_to_a_precision_passes_it(rounded, climb, precision):
    rounded()
    found = climb(precision)
    assert (found.status, found.precision, found.remark) == ("passed", precision, "")
    assert found.settings["execution"] == "eager"
    assert max(level.ratio or 0 for level in found.levels) < 3


@pytest.mark.parametrize("claimed, computes", [("fp32", "tf32"), ("fp32", "bf16"), ("fp32", "fp16"), ("tf32", "bf16")])
def test_what_computes_in_fewer_bits_than_it_claims_fails_by_its_logits(rounded, climb, claimed, computes):
    rounded(computes=computes)
    found = climb(claimed)
    assert found.status == "failed"
    assert claimed != "fp32" or (found.worst.number, found.worst.ratio > 100) == (1, True)


@pytest.mark.parametrize("computes", some_nightly(["tf32", "bf16"], nightly=["bf16"]))  # which are fewer bits still
def test_fewer_bits_in_large_batches_alone_fail(rounded, climb, computes):
    rounded(COARSER_WHERE_LARGE % computes)
    assert climb("fp32", batch_size=8).status == "passed"
    found = climb("fp32", batch_size=128)
    assert (found.status, found.worst.number) == ("failed", 1)
    assert found.worst.where == "logits, BatchNorm in evaluation mode at a batch of 128"


def test_tf32_in_the_gradients_of_large_batches_alone_fails_and_a_batch_in_which_it_would_pass_is_named(rounded, climb):
    """The yardstick grows with the batch (docs/records/fairness-findings.md)."""
    rounded(COARSER_GRADIENTS_WHERE_LARGE)
    found = climb("fp32", batch_size=128)
    assert (found.status, found.worst.number) == ("failed", 2)
    found = climb("fp32", batch_size=1024)
    assert found.remark == "at a batch of 1024 level 2 may mistake gradients in tf32 for fp32"
    assert climb("fp32", batch_size=16).remark == ""


@pytest.mark.parametrize("size", [8, 48])
def test_a_groupnorm_over_so_many_places_that_tf32_in_gradients_would_pass_is_named(size):
    g = GraphBuilder("normed", num_classes=3, image_size=size)
    for name in ("first", "second"):
        g.conv(name, 8, 3, padding=1)
        g.op(f"{name}.norm", "GroupNorm", groups=1, channels=8, eps=1e-5)
        g.op(f"{name}.leaky", "LeakyReLU", slope=0.1)
    g.global_avgpool("pool")
    g.linear("fc", 3)
    asked = make_reference(g.build())
    named = "at a batch of 2 level 2 may mistake gradients in tf32 for fp32"
    assert remark("fp32", [Level(1, True, "")], asked, asked.full(2, 3)) == (named if size == 48 else "")


@pytest.mark.parametrize("precision", some_nightly(["tf32", "bf16"], nightly=["tf32"]))  # bf16 allows the most
def test_gradients_left_out_of_large_batches_fail_however_much_rounding_is_allowed(rounded, climb, precision):
    rounded(NO_GRADIENTS_WHERE_LARGE)
    assert climb(precision, batch_size=8).status == "passed"
    found = climb(precision, batch_size=128)
    assert (found.status, found.worst.number) == ("failed", 2)
    assert found.worst.where.endswith(" at a batch of 128")


@pytest.mark.parametrize("claimed", ["tf32", "bf16", "fp16"])
def test_more_bits_than_claimed_pass_with_a_remark(rounded, climb, claimed):
    rounded(computes="fp32")
    found = climb(claimed)
    assert found.status == "passed"
    assert "wider format" in found.remark


MUTATIONS = {
    **{"bias added to a convolution": (EXTRA_BIAS, 0), "padding off by one": (PADDING, 1)},
    **{"eps 1 for 1e-5": (EPS_1, 1), "loss summed for averaged": (SUMMED, 2)},
    **{"BatchNorm momentum 0.9 for 0.1": (MOMENTUM, 3), "dropout not scaled": (UNSCALED_DROPOUT, 5)},
}


# By day each mistake in one precision, and each precision with two mistakes.
PAIRS = list(itertools.product(MUTATIONS, ["tf32", "bf16", "fp16"]))
DAILY = list(zip(MUTATIONS, itertools.cycle(["tf32", "bf16", "fp16"])))


@pytest.mark.parametrize("pair", some_nightly(PAIRS, [pair for pair in PAIRS if pair not in DAILY]), ids="-".join)
def test_a_seeded_mistake_is_caught_at_its_level(rounded, climb, pair):
    mutation, precision = pair
    body, level = MUTATIONS[mutation]
    rounded(body)
    found = climb(precision)
    failed = [one.number for one in found.levels if not one.passed]
    assert failed and failed[0] == level, found.levels


def test_an_eps_of_1e_3_is_below_the_rounding_of_bf16(rounded, climb):
    rounded(EPS_1E_3)
    assert climb("bf16").status == "passed"
    assert climb("fp32").worst.number == 1


def test_a_yardstick_that_overflows_passes_nothing(rounded, climb, monkeypatch):
    monkeypatch.setattr(rounding, "LOSS_SCALE", 2.0**40)
    rounded()
    found = climb("fp16")
    assert [level.number for level in found.levels if not level.passed] == [2, 3]
    assert "overflows in fp16" in found.levels[2].where


def test_several_precisions_are_climbed_and_one_that_is_lacking_is_no_failure(rounded):
    rounded(lacks_tf32=True)
    options = ["--frameworks", "mutated", "--models", "small", "--image-size", "32", "--threads", "1"]
    options += ["--precision", "bf16,tf32", "--python", f"mutated={sys.executable}", "--style", "markdown"]
    done = run("verify", *options)
    rows = [line for line in done.stdout.splitlines() if "| small |" in line]
    assert "bf16" in rows[0] and "0-5" in rows[0]
    assert "tf32" in rows[1] and "unsupported" in rows[1]
    assert "yardstick of tf32" not in done.stdout + done.stderr


def test_a_study_requires_parity_of_its_precision(rounded, images, tmp_path):
    rounded(SUMMED)
    asked = {"dataset": images, "out": tmp_path / "study", "python": {"mutated": sys.executable}, "batch_size": 4}
    asked.update(epochs=1, image_size=32, threads=1, sampling_hz=0, precision="bf16", verify="require")
    row = compare(["mutated"], ["small"], **asked).frame.iloc[0]
    assert row["status"] == "failed" and "not 2" in row["parity"]


@pytest.mark.parametrize(
    "value, bits, expected",
    [
        *((1 + 2**-8, 7, 1), (1 + 3 * 2**-8, 7, 1 + 2**-6), (1 + 2**-8 + 2**-20, 7, 1 + 2**-7)),
        *((-(2 - 2**-20), 7, -2), (1 + 2**-11, 10, 1), (2.0**-130, 7, 2.0**-130), (np.inf, 7, np.inf)),
    ],
)
def test_numbers_are_rounded_to_nearest_and_ties_to_even(value, bits, expected):
    assert rounding.round_off(np.array([value], np.float32), bits)[0] == expected


def test_ten_bits_round_as_float16_does_in_its_range_below_which_scaled_gradients_are_kept():
    values = np.random.default_rng(0).uniform(-4, 4, 10_000).astype(np.float32)
    values = values[np.abs(values) > 2**-13]
    np.testing.assert_array_equal(rounding.round_off(values, 10), rounding.to_half(values))
    tiny = np.array([2.0**-26], np.float32)
    assert rounding.to_half(tiny)[0] == 0
    assert rounding.Rounding("fp16").gradient(tiny)[0] == tiny[0]


def test_answers_behind_recurrent_layers_may_be_as_imprecise_as_a_gpus_kernels():
    g = GraphBuilder("recurrent", Task((Field("prices", (4, 3)),), Field("price", (1,)), 1, "mse", (), "window"))
    g.lstm("lstm", 5)
    g.last_step("last")
    g.linear("fc", 1)
    asked, least = make_reference(g.build()), 8 * 2.0**-23
    assert set(asked.allowed[1].values()) == {least} and max(asked.yardstick[1].values()) < least
    assert min(asked.allowed[2].values()) == asked.allowed[3]["fc.weight"] == least
    # a loss moves by twice the difference of its logits: of squares, in relation to the distance from the target
    loss, logits = asked.exact.losses[1], asked.exact.step_logits[1]
    assert asked.allowed[3]["loss of step 2"] == pytest.approx(
        2 * least * np.sqrt((logits**2).mean() / loss), rel=bounds.rounding(9)
    )
    assert asked.allowed[3]["fc.weight along its way"] == least  # of five numbers chance takes out none
