"""The adapters of this package pass the conformance suite, run as their authors would."""

import pytest
from nightly import some_nightly

from framework_compare.paths import CACHE_VARIABLE, cache_dir

CACHE = cache_dir()  # that holds the environments; pytester changes the home folder
# Left out: settings that start a worker each, an optimising compiler among them; all but one network's ladder.
FAST = "not setting and (not test_level or plain)"


OURS = ["mxnet", "torch", "singa", "keras-tensorflow", "keras-jax", "keras-torch", "flax", "lightning"]
LADDERS = "test_level and not test_level_4"
# Of x * scale + (offset - mean * scale), as Keras has it on JAX, the gradient by the scale is rounded 16 times as much.
ROUNDED = {"keras-jax": " and not (branched and (level2 or level3))"}


@pytest.fixture
def conform(pytester, monkeypatch):
    """Runs tests of the suite on one framework; how many passed."""

    def run(framework, tests):
        monkeypatch.setenv(CACHE_VARIABLE, str(CACHE))
        given = ("-p", "no:cacheprovider", "--pyargs", "framework_compare.conformance", "--frameworks", framework)
        found = pytester.runpytest_subprocess(*given, "-k", tests, timeout=900).parseoutcomes()
        assert not {"failed", "error", "errors"} & set(found)
        return found["passed"]

    return run


@pytest.mark.parametrize("framework", some_nightly(OURS, nightly=OURS))
def test_an_adapter_of_ours_conforms(conform, framework):
    assert conform(framework, FAST) > 35


@pytest.mark.nightly
@pytest.mark.parametrize("framework", [*OURS, "tensorflow", "paddle", "jax"])
def test_an_adapter_of_ours_computes_every_network_of_the_suite(conform, framework):
    assert conform(framework, LADDERS + ROUNDED.get(framework, "")) >= 15
