"""Arrays that cross the protocol are copies; loading weights and building again start training from nothing.

That weights come back exactly as they were loaded is level 0 of the ladder, in test_parity.py.
"""

SAME = 1e-3  # of how far the steps moved an array: sums in another order may differ, a momentum kept moves it elsewhere


def test_load_weights_copies(ready):
    changed = ready.conduct["copies"]["given"]
    assert not changed, (
        f"a training step changed {_first(changed)} of the arrays that load_weights() was given, expected them copied"
    )


def test_weights_are_copies(ready):
    changed = ready.conduct["copies"]["taken"]
    assert not changed, (
        f"a training step changed {_first(changed)} of the arrays that weights() had returned, expected copies"
    )


def test_load_weights_zeroes_the_momentum(ready):
    _check_same_steps(
        ready.conduct["repeat"],
        "the same steps after load_weights() once more",
        "the momentum must be zeroed, and running statistics loaded too",
    )


def test_build_again_replaces(ready):
    found = ready.conduct["rebuild"]
    wanted = [parameter.name for parameter in ready.material.replacing.parameters()]
    assert sorted(found["shapes"]) == sorted(wanted), (
        f"after build() of a second model weights() has {_first(list(found['shapes']))}, expected those of the second:"
        f" {', '.join(wanted)}"
    )
    _check_same_steps(
        found, "the same steps after build() of another model and of this one again", "nothing of the first may remain"
    )


def _check_same_steps(found, what, why):
    (first, again), (name, apart) = found["losses"], found["apart"]
    close = all(abs(a - b) <= SAME * abs(a) for a, b in zip(first, again))
    assert close and apart < SAME, (
        f"{what} have losses {_rounded(again)}, before {_rounded(first)}, and move {name} differently by {apart:.1e} of its"
        f" movement; expected the same within rounding: {why}"
    )


def _rounded(losses):
    return [float(f"{loss:.5g}") for loss in losses]


def _first(names):
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
