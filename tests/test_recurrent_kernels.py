"""Which kernels TensorFlow's recurrent layers take, as its settings report."""

import pytest

from framework_compare.adapters.tensorflow.recurrent import BLOCK, CUDNN, LOOPS, kernels


@pytest.mark.parametrize(
    "dtype, gpu, compiled, chosen",
    [
        ("float32", False, False, BLOCK),
        ("float32", True, False, CUDNN),  # fp32 and tf32
        ("float32", True, True, LOOPS),
        ("bfloat16", True, False, LOOPS),
        ("float16", True, False, LOOPS),
        ("bfloat16", False, False, LOOPS),
    ],
)
def test_kernels_by_device_and_type(dtype, gpu, compiled, chosen):
    assert kernels(dtype, gpu=gpu, compiled=compiled) == chosen
