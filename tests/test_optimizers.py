"""Each optimiser against four steps worked out by hand, with an eps large enough to tell definitions apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from framework_compare.errors import UsageError
from framework_compare.graph import OPTIMIZERS, Field, GraphBuilder, Optimizer, Task
from framework_compare.parity.network import oracle
from framework_compare.parity.network.oracle import Oracle

GRADIENTS = [0.5, -0.25, 0.125, 1.0]
RATE, EPS = 0.1, 1e-3


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


def by_hand_adam(g):
    """Every average written as its sum over the steps."""
    w = 1.0
    for t in range(1, len(g) + 1):
        mean = sum(0.1 * 0.9 ** (t - k) * g[k - 1] for k in range(1, t + 1)) / (1 - 0.9**t)
        square = sum(0.001 * 0.999 ** (t - k) * g[k - 1] ** 2 for k in range(1, t + 1)) / (1 - 0.999**t)
        w -= RATE * mean / (math.sqrt(square) + EPS)
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


HAND = {
    "sgd": (Optimizer("sgd", RATE, {"momentum": 0.9, "weight_decay": 0.01}), by_hand_sgd),
    "adam": (Optimizer("adam", RATE, {"eps": EPS}), by_hand_adam),
    "rmsprop": (Optimizer("rmsprop", RATE, {"eps": EPS}), by_hand_rmsprop),
    "nadam": (Optimizer("nadam", RATE, {"eps": EPS}), by_hand_nadam),
}


def test_every_optimizer_has_an_arithmetic_and_a_hand_worked_example():
    assert set(oracle.OPTIMIZERS) == set(OPTIMIZERS) == set(HAND)


@pytest.mark.parametrize("name", HAND)
def test_four_steps_are_those_worked_out_by_hand(name):
    optimizer, by_hand = HAND[name]
    weights = run(optimizer).weights
    np.testing.assert_allclose(weights["fc.weight"], by_hand(GRADIENTS), rtol=1e-13)
    np.testing.assert_allclose(weights["fc.bias"], by_hand([3 * g for g in GRADIENTS]), rtol=1e-13)


def test_psi_is_a_setting_of_nadam():
    slow = Optimizer("nadam", RATE, {"eps": EPS, "psi": 0.004})
    found = run(slow).weights["fc.bias"][0]
    assert found == pytest.approx(by_hand_nadam([3 * g for g in GRADIENTS], psi=0.004), rel=1e-13)
    assert abs(found - by_hand_nadam([3 * g for g in GRADIENTS])) > 1e-3


def test_the_first_adam_step_is_the_rate_but_for_eps():
    trained = run(Optimizer("adam", 0.1), [0.5])
    np.testing.assert_allclose(trained.weights["fc.weight"], 1 - 0.1 * 0.5 / (0.5 + 1e-7), rtol=1e-14)


@pytest.mark.parametrize(
    "name, slots",
    [("sgd", {"momentum"}), ("adam", {"m", "v"}), ("rmsprop", {"v"}), ("nadam", {"m", "v", "product"})],
)
def test_states_are_those_of_the_definition(name, slots):
    trained = run(HAND[name][0])
    assert trained.steps == 4
    assert {name: set(of_it) for name, of_it in trained.slots.items()} == dict.fromkeys(trained.weights, slots)


@pytest.mark.parametrize("name", HAND)
def test_float32_stays_float32(name):
    trained = run(HAND[name][0], dtype=np.float32)
    assert {array.dtype for array in trained.weights.values()} == {np.dtype(np.float32)}
    np.testing.assert_allclose(trained.weights["fc.weight"], run(HAND[name][0]).weights["fc.weight"], rtol=1e-6)


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


def test_defaults_are_stated_once():
    assert Optimizer("adam").settings == {"beta1": 0.9, "beta2": 0.999, "eps": 1e-7}
    assert Optimizer("nadam", 1e-3, {"psi": 0.004}).settings["psi"] == 0.004
    assert Optimizer("rmsprop").learning_rate == 0.001
    for name in OPTIMIZERS:
        assert Optimizer.from_dict(Optimizer(name, 0.5).to_dict()) == Optimizer(name, 0.5)


def test_an_unknown_optimizer_or_option_lists_the_known():
    with pytest.raises(UsageError, match="optimizer is 'lion'; allowed: sgd, adam, rmsprop, nadam"):
        Optimizer("lion")
    with pytest.raises(UsageError, match="adam has no option 'momentum'; allowed: beta1, beta2, eps"):
        Optimizer("adam", 0.1, {"momentum": 0.9})
