"""Mistakes in a right op, loss or optimiser of the oracle, for tests that see whether the ladder notices."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, NamedTuple

import numpy as np

from framework_compare.parity.network import oracle
from framework_compare.parity.network.deviations import errors
from framework_compare.parity.network.ladder import TOLERANCE, ratios_of
from framework_compare.parity.network.reference import Reference, answer, moved


def ratios(asked: Reference, **how: Any) -> Dict[int, float]:
    """The largest ratio of each level, of a float32 oracle as it stands now."""
    batches = [(moved(inputs, 7), target) for inputs, target in asked.batches]
    said = answer(asked, batches, np.float32, **how)
    off = errors(said, asked.exact, asked.initial, asked.precision)
    return {level: max(ratios_of(off[level], asked.allowed[level], asked.precision).values()) for level in off}


class Mistake(NamedTuple):
    network: str
    level: int  # the first that fails
    name: str  # of an op, a loss, an optimiser, or an attribute of `target`
    put: Callable[..., Any]  # from the right function to the wrong one
    target: Any = None


def check_honest(asked: Reference, **how: Any) -> Dict[int, float]:
    """A run without a mistake holds at each level; its ratios."""
    found = ratios(asked, **how)
    assert max(found.values()) < TOLERANCE, found
    return found


def check_caught(asked: Reference, mistake: Mistake, monkeypatch: Any) -> None:
    """A mistake fails its level, and none below."""
    _, level, name, put, target = mistake
    if target is not None:
        monkeypatch.setattr(target, name, put(getattr(target, name)))
    else:
        (table,) = (one for one in (oracle.OPS, oracle.LOSSES, oracle.OPTIMIZERS) if name in one)
        monkeypatch.setitem(table, name, put(table[name]))
    found = ratios(asked)
    assert [number for number in sorted(found) if not found[number] <= TOLERANCE][:1] == [level], found


def renamed(name):
    """Another op of the same table."""
    return lambda right: lambda node, *rest: right(dataclasses.replace(node, op=name), *rest)


def attrs(**changed):
    return lambda right: lambda node, *rest: right(dataclasses.replace(node, attrs={**node.attrs, **changed}), *rest)


def inputs(change):
    return lambda right: lambda node, weights, x, mode: right(node, weights, change(x), mode)


def first(change):
    """The first input is another."""
    return inputs(lambda x: (change(x[0]), *x[1:]))


def weights(**changed):
    """Arrays by name are what a function makes of them all."""

    def wrong(right):
        def op(node, own, *rest):
            return right(node, {name: changed[name](own) if name in changed else own[name] for name in own}, *rest)

        return op

    return wrong


def output(change):
    """Another output, of (output, inputs, node), with the gradient of the right one."""

    def wrong(right):
        def op(node, own, x, mode):
            y, backward = right(node, own, x, mode)
            return change(y, x, node), backward

        return op

    return wrong


def gradient(place, change):
    """The gradient of an input, by its number, or of an array, by its name, is what is made of it and the inputs."""

    def wrong(right):
        def op(node, own, x, mode):
            y, backward = right(node, own, x, mode)

            def turned(dy):
                found, parameters = backward(dy)
                if isinstance(place, str):
                    return found, {**parameters, place: change(parameters[place], x)}
                return tuple(change(g, x) if i == place else g for i, g in enumerate(found)), parameters

            return y, turned

        return op

    return wrong


def scaled(place, factor):
    return gradient(place, lambda g, x: g * np.float32(factor))


def settings(change):
    """An optimiser that steps by other settings, of (settings, number of the step)."""
    return lambda right: (
        lambda w, g, slots, number, given: right(w, g, slots, number, {**given, **change(given, number)})
    )


def eps_hat(given, number):
    """eps beside the root before its correction, as in Keras and in MXNet."""
    return {"eps": given["eps"] / np.sqrt(1 - given["beta2"] ** number)}
