"""Conduct of an adapter: what it copies, that training starts from nothing, seeds, threads, and what it leaves behind.

Level 0 of the ladder, in test_parity.py, checks that weights come back exactly as they were loaded.
"""

import numpy as np
import pytest

SAME = 1e-3  # relative, or of how far the steps moved an array: sums in another order may differ, a kept momentum more
# A second compute thread would want another whole core; handing steps to an engine thread takes less than a third.
ALLOWED_CORES = 1.5


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
        ready,
        "repeated",
        "the same steps after load_weights() once more",
        "the momentum must be zeroed, and running statistics loaded too",
    )


def test_build_again_replaces(ready):
    assert ready.conduct["other"] == {}, "or this has failed with what the adapter raised"
    found = ready.conduct["replaced"]["shapes"]
    wanted = [parameter.name for parameter in ready.material.replacing.parameters()]
    assert sorted(found) == sorted(wanted), (
        f"after build() of a second model weights() has {_first(list(found))}, expected those of the second:"
        f" {', '.join(wanted)}"
    )
    what = "the same steps after build() of another model and of this one again"
    _check_same_steps(ready, "rebuilt", what, "nothing of the first may remain")


def _check_same_steps(ready, name, what, why):
    first, again = (ready.conduct[each]["losses"] for each in ("first", name))
    array, apart = _furthest(ready, name)
    close = all(abs(a - b) <= SAME * abs(a) for a, b in zip(first, again))
    assert close and apart < SAME, (
        f"{what} have losses {_rounded(again)}, before {_rounded(first)}, and move {array} differently by {apart:.1e} of its"
        f" movement; expected the same within rounding: {why}"
    )


def _furthest(ready, name):
    """Return the array that ends furthest from where the first steps took it, and that in units of its movement."""
    once, twice = (np.load(ready.conduct.folder / f"{each}.npz") for each in ("first", name))
    start, shares = ready.material.smooth_weights, {}
    for key, array in once.items():
        fits = key in start and start[key].shape == array.shape  # if not, level 0 of the ladder says so
        moved = float(np.linalg.norm(array - start[key] if fits else array))
        shares[key] = float(np.linalg.norm(twice[key] - array)) / (moved or 1.0)
    return max(shares.items(), key=lambda item: item[1])


def _rounded(losses):
    return [float(f"{loss:.5g}") for loss in losses]


def _first(names):
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def test_the_same_seed_has_the_same_losses(ready):
    first, again = ready.conduct["losses"]["losses"], ready.again["losses"]["losses"]
    assert all(abs(a - b) <= SAME * abs(a) for a, b in zip(first, again)), (
        f"two workers with seed {ready.config.seed} and the same batches have losses {first} and {again}, expected the"
        " same within rounding: __init__() must seed the generators that dropout draws from"
    )


def test_the_second_worker_ends_well(ready):
    run = ready.again.run
    assert run.status == "ok", (
        f"a second worker with loader_workers=0 ended as {run.status} ({run.reason}), expected ok"
    )


def test_one_compute_thread(ready):
    """With threads=1, over steps on one batch in memory, while no loader is open, whose workers would count.

    A thread counts by the time it ran and the time it was ready to run, so that other load on the machine hides none.
    """
    if ready.config.device != "cpu":
        pytest.skip("config.threads limits compute threads of the CPU; run with --device cpu to test them")
    found = ready.conduct["threads"]
    wall = found["wall_ns"]
    cores = sum(cpu + waited for _, cpu, waited in found["threads"]) / wall
    busiest = ", ".join(f"{name} {(cpu + waited) / wall:.2f}" for name, cpu, waited in found["threads"][:4])
    assert cores < ALLOWED_CORES, (
        f"with config.threads=1 the worker's threads wanted {cores:.2f} cores during {found['steps']} steps"
        f" ({busiest}), expected at most one busy: limit every pool, by environment() if its library reads it when loaded"
    )


def test_release_ends_loader_processes(ready):
    found = ready.conduct["release"]
    if not found["loaders"]:
        pytest.skip("the native pipeline with 2 loader workers starts no process, so there is nothing to end")
    left = found["left of loaders"]
    assert not left, (
        f"{len(left)} of {len(found['loaders'])} loader processes still exist 5 s after release() ({left[0]}), expected"
        " none: release() must end them"
    )


def test_no_other_process_is_left(ready):
    left = ready.conduct["release"]["left"]
    assert not left, (
        f"{len(left)} processes that no loader started still exist 5 s after release() ({left[0]}), expected none"
    )
