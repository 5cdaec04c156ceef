"""Which kernels TensorFlow's recurrent layers take, as its settings report."""

from framework_compare.adapters.tensorflow.recurrent import BLOCK, CUDNN, LOOPS, kernels


def test_kernels_by_device_and_type():
    assert kernels("float32", gpu=False, compiled=False) == BLOCK
    assert kernels("float32", gpu=True, compiled=False) == CUDNN, "in fp32 and tf32"
    for dtype, gpu, compiled in (("float32", True, True), ("bfloat16", True, False), ("float16", True, False)):
        assert kernels(dtype, gpu=gpu, compiled=compiled) == LOOPS
    assert kernels("bfloat16", gpu=False, compiled=False) == LOOPS
