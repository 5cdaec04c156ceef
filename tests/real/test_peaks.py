"""PyTorch's own measurement of a machine's peaks, in its real environment."""

import json
import subprocess

import pytest
from nightly import some_nightly

from framework_compare import adapters
from framework_compare.environments import managed


@pytest.mark.parametrize("precision", some_nightly(["fp32", "bf16"], nightly=["bf16"]))
def test_pytorch_measures_products_and_copies(precision):
    there = managed.ensure("torch")
    program = f"{adapters.__path__[0]}/torch/peaks.py"
    done = subprocess.run(
        [there.python, "-I", program, "torch", "cpu", precision, "1"], capture_output=True, text=True, timeout=120
    )
    found = json.loads(done.stdout)
    assert found["flop_per_s"] > 1e8 and found["bytes_per_s"] > 1e8, done.stderr
