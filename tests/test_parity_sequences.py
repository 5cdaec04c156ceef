"""The ladder climbs networks of sequences in a worker: an honest framework passes, a mistake is named."""

import sys

import pytest

from framework_compare import registry
from framework_compare.parity import verify as ladder
from framework_compare.results.parity import Level

CLASS = """

class Mutated(ReferenceTrainer):
{body}
"""
NOTHING = "    name = 'mutated'\n"
OP = """
    name = 'mutated'

from .oracle import Mode
right = dict(OPS)
{change}
"""


@pytest.fixture
def climb(register_mutated, monkeypatch):
    for name in ("forecast", "tagger"):
        monkeypatch.setitem(registry.MODELS, name, registry.Model(f"sequences:{name}"))
    # the pipelines and the small image model are tested elsewhere
    monkeypatch.setattr(ladder.pipelines, "judge", lambda run_tasks, config: Level(4, True))
    monkeypatch.setattr(ladder.training_check, "judge", lambda run_tasks, config: [Level(3, True)])

    def run(model, body=NOTHING):
        register_mutated(CLASS.format(body=body))
        where = ladder.Where(python={"mutated": sys.executable})
        (found,) = ladder.verify(["mutated"], [model], image_size=32, threads=1, where=where)
        return found

    return run


@pytest.mark.parametrize("model", ["forecast", "tagger"])
def test_the_reference_in_float32_passes(climb, model):
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
def test_a_mistake_is_named(climb, model, change, level, place):
    found = climb(model, OP.format(change=change))
    failed = [one for one in found.levels if not one.passed]
    assert failed and failed[0].number == level, found.levels
    assert place in found.diverges
