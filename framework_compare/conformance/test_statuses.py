"""What a framework cannot do becomes a row with a reason: a cell as `compare` runs it, in a worker of its own."""

import pytest

OTHERS = [
    ("execution", "eager"),
    ("execution", "graph"),
    ("execution", "compiled"),
    ("precision", "tf32"),
    ("precision", "bf16"),
    ("precision", "fp16"),
    ("tuning", "none"),
]


def test_a_cell_trains(ready):
    run = ready.row("cell", pipeline="native")
    assert run.status == "ok", (
        f"a cell of one epoch over 11 images ended as {run.status} in phase {run.died_in} ({run.reason}), expected ok"
    )


def test_a_device_that_is_not_there_is_unsupported(ready):
    run = ready.row("device", device="cuda:99", pipeline="memory")
    assert run.status == "unsupported", (
        f"a cell on device 'cuda:99' ended as {run.status} ({run.reason or 'no reason'}), expected unsupported:"
        " unsupported() must return a sentence that says why it cannot run there"
    )
    _check_reason(run, "device 'cuda:99'")


@pytest.mark.parametrize("name, value", OTHERS, ids=[f"{name}={value}" for name, value in OTHERS])
def test_a_setting_trains_or_is_unsupported(ready, name, value):
    run = ready.row(f"{name}-{value}", pipeline="memory", **{name: value})
    assert run.status in ("ok", "unsupported"), (
        f"a cell with {name}={value!r} ended as {run.status} in phase {run.died_in} ({run.reason}), expected that it"
        " trains, or that unsupported() returns a sentence that says why it cannot"
    )
    if run.status == "unsupported":
        _check_reason(run, f"{name}={value!r}")


def test_a_network_that_cannot_be_built_is_a_row(ready):
    layer, attribute = ready.material.broken
    run = ready.row("network", pipeline="memory", graph=ready.material.broken_graph())
    assert run.status == "failed", (
        f"a model whose layer {layer!r} lacks its {attribute!r} ended as {run.status} ({run.reason}), expected failed:"
        " build() must raise"
    )
    assert attribute in run.reason or layer in run.reason, (
        f"a model whose layer {layer!r} lacks its {attribute!r} failed with the reason {run.reason!r}, expected one that"
        " names either; release() must work after a build() that raised, or its own error takes the reason's place"
    )


def test_an_image_that_cannot_be_read_is_a_row(ready):
    run = ready.row("image", pipeline="native", listed=str(ready.material.unreadable_images()))
    assert run.status == "failed", (
        f"an epoch of the native pipeline with a file in it that is not an image ended as {run.status}"
        f" ({run.reason or 'no reason'}), expected failed: the loader's error must reach epoch()"
    )
    assert run.reason.strip(), "a loader that cannot read an image failed without a reason, expected its framework's"


def _check_reason(run, what):
    assert len(run.reason.split()) > 1, (
        f"{what} is unsupported with the reason {run.reason!r}, expected a sentence that says why not"
    )
