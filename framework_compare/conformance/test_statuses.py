"""Settings that an adapter declares; all others become a row with a reason, in cells as `compare` runs them."""

import pytest

from framework_compare.conformance.material import STRANGE
from framework_compare.protocol import EXECUTIONS, PRECISIONS
from framework_compare.registry import device_kind

SETTINGS = ("loss", "optimizer", "execution", "precision")
OTHERS = [
    ("execution", "eager"),
    ("execution", "graph"),
    ("execution", "compiled"),
    ("precision", "tf32"),
    ("precision", "bf16"),
    ("precision", "fp16"),
    ("tuning", "none"),
]


def test_declares_what_it_implements(adapter):
    assert adapter.environment, "or the fixture has failed with the reason"
    found = _said_by(adapter)
    assert not found["fault"], f"`declared` {found['fault']}"


def test_declares_the_least(adapter):
    """The other networks of the suite are made of the ops that are declared."""
    assert adapter.environment, "or the fixture has failed with the reason"
    if _said_by(adapter)["fault"]:
        pytest.skip("test_declares_what_it_implements says what is wrong")
    assert not adapter.lack, (
        f"`declared` has no {adapter.lack}; expected at least a Linear layer on the pixels of an image, cross entropy and SGD:"
        " every test of training needs them"
    )


@pytest.mark.parametrize("field, known", [("executions", EXECUTIONS), ("precisions", PRECISIONS)])
def test_declares_names_that_cells_can_ask_for(ready, field, known):
    declared = ready.its_class["declared"][field]
    kind = device_kind(ready.config.device)
    assert kind in declared, f"`declared` has no {field} for {kind!r}, on which the adapter is tested"
    unknown = sorted({name for names in declared.values() for name in names} - set(known))
    assert not unknown, f"`declared` has {field} {unknown}, which no cell can ask for; allowed: {', '.join(known)}"


@pytest.mark.parametrize("name", SETTINGS)
def test_an_undeclared_setting_is_unsupported(ready, name):
    _check_refused(ready.row(f"undeclared-{name}", pipeline="memory", **{name: STRANGE}), name)


def test_an_undeclared_op_is_unsupported(ready):
    _check_refused(ready.row("undeclared-op", pipeline="memory", graph=ready.material.strange_graph()), "op")


def _said_by(adapter):
    found = adapter.its_class.said.get("declared")
    if found is None:
        pytest.skip("the adapter's file cannot be imported; test_has_every_method says why")
    return found


def _check_refused(run, noun):
    assert run.status == "unsupported" and f"declares no {noun} {STRANGE!r}" in run.reason, (
        f"a cell with {noun} {STRANGE!r} ended as {run.status} ({run.reason or 'no reason'}), expected unsupported with"
        f" the reason that it is not declared: `declared` may hold only what the adapter implements"
    )


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
