"""The ladder climbs networks of sequences in a worker: an honest framework passes, a mistake is named."""

import pytest
from parity_fixtures import climb

from framework_compare import registry

# The pipelines and the small image model are tested elsewhere.
pytestmark = pytest.mark.usefixtures("training_held", "pipeline_held")
OP = """
    name = 'mutated'

from .oracle import Mode
right = dict(OPS)
{change}
"""


@pytest.fixture(autouse=True)
def models(monkeypatch):
    for name in ("forecast", "tagger"):
        monkeypatch.setitem(registry.MODELS, name, registry.Model(f"sequences:{name}"))


@pytest.mark.parametrize("model", ["forecast", "tagger"])
def test_the_reference_in_float32_passes(mutate, model):
    mutate()
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
def test_a_mistake_is_named(mutate, model, change, level, place):
    mutate(OP.format(change=change))
    found = climb(model)
    failed = [one for one in found.levels if not one.passed]
    assert failed and failed[0].number == level, found.levels
    assert place in found.diverges
