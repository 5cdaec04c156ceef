"""Libraries on top of a framework train the function that the graph is, in the loops of their guides."""

import pytest

from framework_compare.conformance import graphs
from framework_compare.parity.verify import verify

KERAS = ["keras-tensorflow", "keras-jax", "keras-torch"]
LIBRARIES = [*KERAS, "flax", "lightning"]
EXECUTIONS = ["default", "compiled", "eager"]
PARTS = ["branched", "plain", "attention"]


@pytest.fixture(autouse=True)
def networks():
    graphs.register()


@pytest.mark.nightly
@pytest.mark.parametrize("execution", ["default", "fit"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("framework", KERAS)
def test_keras_holds_all_levels(framework, part, execution):
    (found,) = verify(framework, f"conformance-{part}", execution=execution, image_size=32, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("framework, execution", [*(("flax", one) for one in EXECUTIONS), ("lightning", "default")])
@pytest.mark.parametrize("part", PARTS)
def test_flax_and_lightning_hold_all_levels(framework, execution, part):
    (found,) = verify(framework, f"conformance-{part}", execution=execution, image_size=32, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "nadam"])
@pytest.mark.parametrize("framework", LIBRARIES)
def test_libraries_have_the_optimizers_of_the_graph(framework, optimizer):
    (found,) = verify(framework, "diabetes_ann", optimizer=optimizer, threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["lstm_ibm", "gru_ibm", "tweet_span"])
@pytest.mark.parametrize("framework", LIBRARIES)
def test_libraries_have_recurrent_layers(framework, model):
    (found,) = verify(framework, model, optimizer="adam", threads=1, fresh=True)
    assert found.proves(), (found.reason, found.levels)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["gpt_nano", "llama_nano"])
def test_flax_has_language_models(model):
    (found,) = verify("flax", model, threads=2, fresh=True)
    assert found.proves(), (found.reason, found.levels)
