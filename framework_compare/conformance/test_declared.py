"""What an adapter implements is an attribute of its class, and what is not in it is refused before anything is trained."""

import pytest

from framework_compare.conformance.material import STRANGE
from framework_compare.protocol import EXECUTIONS, PRECISIONS
from framework_compare.registry import device_kind

SETTINGS = ("loss", "optimizer", "execution", "precision")


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
