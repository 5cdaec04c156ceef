"""The adapters of this package pass the conformance suite, run as their authors would."""

import pytest
from nightly import some_nightly

from framework_compare.paths import CACHE_VARIABLE, cache_dir

CACHE = cache_dir()  # that holds the environments; pytester changes the home folder
# Left out: settings that start a worker each, an optimising compiler among them; all but one network's ladder.
FAST = "not setting and (not test_level or plain)"


OURS = ["mxnet", "torch", "singa", "keras-tensorflow", "keras-jax", "keras-torch", "flax", "lightning"]


@pytest.mark.parametrize("framework", some_nightly(OURS, nightly=OURS))
def test_an_adapter_of_ours_conforms(pytester, monkeypatch, framework):
    monkeypatch.setenv(CACHE_VARIABLE, str(CACHE))
    given = ("-p", "no:cacheprovider", "--pyargs", "framework_compare.conformance", "--frameworks", framework)
    found = pytester.runpytest_subprocess(*given, "-k", FAST, timeout=900).parseoutcomes()
    assert found["passed"] > 35 and not {"failed", "error", "errors"} & set(found)
