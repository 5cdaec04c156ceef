"""Each optimiser against four steps worked out by hand, with an eps large enough to tell definitions apart."""

import dataclasses
import math

import numpy as np
import pytest
from bounds import rounding
from stored_study import ok, recorded

from framework_compare.errors import Unsupported, UsageError
from framework_compare.graph import OPTIMIZERS, Field, GraphBuilder, Optimizer, Schedule, Task
from framework_compare.parity import in_study
from framework_compare.parity.network import oracle
from framework_compare.parity.network.oracle import Oracle
from framework_compare.protocol import Declared, TrainConfig
from framework_compare.records import Cell
from framework_compare.report import json_document
from framework_compare.results.parity import NOT_EQUAL
from framework_compare.worker.refusal import refuse_undeclared

GRADIENTS = [0.5, -0.25, 0.125, 1.0]
RATE, EPS = 0.1, 1e-3
STEPS = 4 * len(GRADIENTS)  # roundings: what a step subtracts is a tenth of the weight, and so its error


def network():
    g = GraphBuilder("rows", Task((Field("row", (2,)),), Field("y", (1,)), 1, "mse", (), "row"))
    g.linear("fc", 1)
    return g.build()


def run(optimizer: Optimizer, gradients=GRADIENTS, dtype=np.float64) -> Oracle:
    """An oracle after a step along each gradient: as it is for the weight, three times it for the bias."""
    trained = Oracle(network(), {"fc.weight": np.ones((1, 2)), "fc.bias": np.ones(1)}, dtype)
    for gradient in gradients:
        arrays = {"fc.weight": np.full((1, 2), gradient, dtype), "fc.bias": np.full(1, 3 * gradient, dtype)}
        trained.apply(arrays, optimizer)
    return trained


def by_hand_sgd(g):
    w, v = 1.0, 0.0
    for gradient in g:
        v = 0.9 * v + gradient + 0.01 * w
        w -= RATE * v
    return w


def by_hand_adam(g, beta2=0.999, decay=0.0):
    """Every average written as its sum over the steps; beside a loss of a share of the weight, as AdamW has it."""
    w = 1.0
    for t in range(1, len(g) + 1):
        mean = sum(0.1 * 0.9 ** (t - k) * g[k - 1] for k in range(1, t + 1)) / (1 - 0.9**t)
        square = sum((1 - beta2) * beta2 ** (t - k) * g[k - 1] ** 2 for k in range(1, t + 1)) / (1 - beta2**t)
        w = (1 - RATE * decay) * w - RATE * mean / (math.sqrt(square) + EPS)
    return w


def by_hand_rmsprop(g):
    w = 1.0
    for t in range(1, len(g) + 1):
        square = sum(0.1 * 0.9 ** (t - k) * g[k - 1] ** 2 for k in range(1, t + 1))
        w -= RATE * g[t - 1] / math.sqrt(square + EPS)
    return w


def by_hand_nadam(g, psi=1.0):
    u = [0.9 * (1 - 0.5 * 0.96 ** (t * psi)) for t in range(len(g) + 2)]
    w = 1.0
    for t in range(1, len(g) + 1):
        mean = sum(0.1 * 0.9 ** (t - k) * g[k - 1] for k in range(1, t + 1))
        square = sum(0.001 * 0.999 ** (t - k) * g[k - 1] ** 2 for k in range(1, t + 1)) / (1 - 0.999**t)
        ahead = u[t + 1] * mean / (1 - math.prod(u[1 : t + 2])) + (1 - u[t]) * g[t - 1] / (1 - math.prod(u[1 : t + 1]))
        w -= RATE * ahead / (math.sqrt(square) + EPS)
    return w


ADAMW = Optimizer("adamw", RATE, {"eps": EPS, "beta2": 0.95, "weight_decay": 0.1})
HAND = {
    "sgd": (Optimizer("sgd", RATE, {"momentum": 0.9, "weight_decay": 0.01}), by_hand_sgd),
    "adam": (Optimizer("adam", RATE, {"eps": EPS}), by_hand_adam),
    "rmsprop": (Optimizer("rmsprop", RATE, {"eps": EPS}), by_hand_rmsprop),
    "nadam": (Optimizer("nadam", RATE, {"eps": EPS}), by_hand_nadam),
    "adamw": (ADAMW, lambda g: by_hand_adam(g, 0.95, 0.1)),
}
OF_BIASES = {"adamw": lambda g: by_hand_adam(g, 0.95)}  # which have one axis


SLOTS = {"sgd": {"momentum"}, "adam": {"m", "v"}, "rmsprop": {"v"}, "nadam": {"m", "v", "product"}, "adamw": {"m", "v"}}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_four_steps_are_those_worked_out_by_hand_with_the_states_of_the_definition(name):
    assert set(oracle.OPTIMIZERS) == set(OPTIMIZERS)
    optimizer, by_hand = HAND[name]
    trained, narrow = run(optimizer), run(optimizer, dtype=np.float32).weights
    weights = trained.weights
    assert trained.steps == 4
    assert {name: set(of_it) for name, of_it in trained.slots.items()} == dict.fromkeys(weights, SLOTS[name])
    assert {array.dtype for array in narrow.values()} == {np.dtype(np.float32)}
    np.testing.assert_allclose(narrow["fc.weight"], weights["fc.weight"], rtol=rounding(STEPS, np.float32))
    np.testing.assert_allclose(weights["fc.weight"], by_hand(GRADIENTS), rtol=rounding(STEPS))
    of_bias = OF_BIASES.get(name, by_hand)
    np.testing.assert_allclose(weights["fc.bias"], of_bias([3 * g for g in GRADIENTS]), rtol=rounding(STEPS))


def test_updates_are_clipped_by_their_common_norm_at_the_rate_of_their_number():
    plain = Optimizer("sgd", RATE)
    norm = math.sqrt(2 * 0.5**2 + 1.5**2)  # two weights of 0.5, and a bias of 1.5
    found = run(dataclasses.replace(plain, clip_norm=0.1), [0.5]).weights
    assert found["fc.weight"][0, 0] == pytest.approx(1 - RATE * 0.5 * 0.1 / norm, rel=rounding(STEPS))
    assert found["fc.bias"][0] == pytest.approx(1 - RATE * 1.5 * 0.1 / norm, rel=rounding(STEPS))
    below = run(dataclasses.replace(plain, clip_norm=norm + 1e-6), [0.5]).weights
    assert below["fc.bias"][0] == run(plain, [0.5]).weights["fc.bias"][0]
    schedule = Schedule(ramp=10, decay=100, final=0.1)
    assert [schedule.share(t) for t in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert schedule.share(55) == pytest.approx(0.55) and schedule.share(100) == schedule.share(10**6) == 0.1
    assert [schedule.table()[min(t, 100)] for t in range(300)] == [schedule.share(t) for t in range(300)]
    assert Schedule(ramp=3).share(10**6) == 1.0 and Schedule().is_constant
    optimizer = Optimizer("sgd", RATE, schedule=Schedule(ramp=2), accumulation=2)
    found = run(optimizer).weights["fc.weight"][0, 0]
    assert found == pytest.approx(1 - RATE / 2 * 0.125 - RATE * 0.5625, rel=rounding(STEPS))
    found = run(optimizer, GRADIENTS[:3]).weights["fc.weight"][0, 0]
    assert found == pytest.approx(1 - RATE / 2 * 0.125, rel=rounding(STEPS))


def test_psi_is_a_setting_of_nadam_and_the_first_adam_step_is_the_rate_but_for_eps():
    slow = Optimizer("nadam", RATE, {"eps": EPS, "psi": 0.004})
    found = run(slow).weights["fc.bias"][0]
    assert found == pytest.approx(by_hand_nadam([3 * g for g in GRADIENTS], psi=0.004), rel=rounding(STEPS))
    assert found != pytest.approx(by_hand_nadam([3 * g for g in GRADIENTS]), rel=1000 * rounding(STEPS, np.float32))
    trained = run(Optimizer("adam", 0.1), [0.5])
    np.testing.assert_allclose(trained.weights["fc.weight"], 1 - 0.1 * 0.5 / (0.5 + 1e-7), rtol=rounding(STEPS))


@pytest.mark.parametrize("name", HAND)
def test_train_step_takes_an_optimizer(name):
    optimizer = HAND[name][0]
    rng = np.random.default_rng(0)
    batch, target = rng.standard_normal((8, 2)), rng.standard_normal((8, 1))
    trained = Oracle(network(), {"fc.weight": np.ones((1, 2)), "fc.bias": np.ones(1)})
    by_parts = Oracle(network(), trained.weights)
    losses = [trained.train_step(batch, target, optimizer=optimizer)[0] for _ in range(40)]
    for _ in range(40):
        by_parts.apply(by_parts.gradients(batch, target)[2], optimizer)
    assert losses[-1] < 0.7 * losses[0]
    assert all(np.array_equal(trained.weights[key], by_parts.weights[key]) for key in trained.weights)


def test_defaults_are_stated_once_and_unknown_names_list_the_known():
    assert Optimizer("adam").settings == {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7}
    assert Optimizer("nadam", 1e-3, {"psi": 0.004}).settings["psi"] == 0.004
    assert Optimizer("rmsprop").learning_rate == 0.001
    for name in OPTIMIZERS:
        assert Optimizer.from_dict(Optimizer(name, 0.5).to_dict()) == Optimizer(name, 0.5)
    with pytest.raises(UsageError, match="optimizer is 'lion'; allowed: sgd, adam, rmsprop, nadam, adamw"):
        Optimizer("lion")
    with pytest.raises(UsageError, match="adam has no option 'momentum'; allowed: beta1, beta2, eps"):
        Optimizer("adam", 0.1, {"momentum": 0.9})


SECONDS = {("torch", "equal"): 1.0, ("torch", "native"): 0.2, ("jax", "equal"): 1.5, ("jax", "native"): 0.4}


def cell(framework: str, variant: str) -> Cell:
    return Cell(framework, "vgg16", "small", "cpu", TrainConfig(optimizer="adam", optimizer_variant=variant))


@pytest.fixture
def study(tmp_path):
    noise = np.random.default_rng(0)

    def run_of(one, _):
        seconds = SECONDS[one.framework, one.config.optimizer_variant] * noise.normal(1, 0.01)
        return ok(seconds, images=10, steps=1)

    return recorded(tmp_path, [cell(*key) for key in SECONDS], run_of, 4, settings={"verify": "off"})


def test_native_cells_and_their_verdicts_are_marked_even_where_no_parity_was_asked_for(study):
    marks = study.frame.set_index(["framework", "optimizer_variant"]).parity
    assert {key for key, mark in marks.items() if mark == NOT_EQUAL} == {("torch", "native"), ("jax", "native")}
    assert study.frame[study.frame.optimizer_variant == "equal"].parity.isna().all()
    found = {one.condition["optimizer_variant"]: one for one in study.verdicts()}
    assert len(study.verdicts()) == 2 and set(found) == {"equal", "native"}
    assert found["native"].sentence.startswith("vgg16 (native optimizers, not equal): torch is 2.")
    assert found["equal"].sentence.startswith("vgg16: torch is 1.")
    document = json_document.document(study)
    marks = {one["optimizer_variant"]: one["parity"] for one in document["cells"]}
    assert marks == {"equal": None, "native": NOT_EQUAL}
    native = [one for one in document["verdicts"] if one["condition"]["optimizer_variant"] == "native"]
    assert len(native) == 1 and "not equal" in native[0]["sentence"]


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex"])
def test_every_table_of_native_cells_says_so(study, style):
    from framework_compare.report import kinds, renderers

    for kind in ("time", "resources", "scaling", "startup", "precision"):
        for table in kinds.build(study.frame, kind, lambda: {}):
            text = " ".join(renderers.RENDERERS[style](table).split())
            assert ("variant native" in text) == (NOT_EQUAL in text), kind
            assert "variant native" in text or "variant equal" in text, kind


def test_where_parity_is_required_a_native_cell_is_not_run(tmp_path):
    (reason,) = in_study.record(tmp_path, [cell("torch", "native")], {}, "require").values()
    assert reason == f"parity is required: {NOT_EQUAL}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_adapter_that_does_not_declare_a_native_optimizer_is_not_asked_for_one(optimizer):
    class Plain:
        name = "plain"
        sets = frozenset(), frozenset({"cross_entropy"}), frozenset(OPTIMIZERS)
        declared = Declared(*sets, {"cpu": frozenset({"default"})}, {"cpu": frozenset({"fp32"})})

    refuse_undeclared(Plain, TrainConfig(optimizer=optimizer), [])
    with pytest.raises(Unsupported, match=f"plain declares no optimizer 'native {optimizer}'; declared: adam, "):
        refuse_undeclared(Plain, TrainConfig(optimizer=optimizer, optimizer_variant="native"), [])
