"""The class of a GPU kernel by its name: one ordered table for all frameworks, so that their shares compare.

Names are those of cuDNN, cuBLAS (nvjet on Hopper), CUTLASS, ATen, TensorFlow, PaddlePaddle and MXNet kernels, of
XLA's fusions, which are called after their kind and root, and of Inductor's, which list what they fuse.
"""

from __future__ import annotations

import functools
import re

# The first pattern found in the lower-cased name decides. Generated names come first: "triton_poi_fused_convolution"
# adds a bias, and computes no convolution.
CLASSES = (
    ("memory copy", r"memcpy"),
    ("memory set", r"memset"),
    ("matrix product", r"triton_(tem|mm|bmm)\w*mm|triton_gemm|gemm_fusion"),
    ("convolution", r"triton_(tem\w*conv|conv)"),
    ("batch normalisation", r"triton_\w*batch_norm"),
    ("pooling", r"triton_\w*pool"),
    ("random", r"triton_\w*(dropout|bernoulli|rand)"),
    ("reduction", r"triton_(red|per|softmax)|triton_\w*(softmax|loss)"),
    ("elementwise", r"triton_"),
    (
        "layout change",
        r"nchw_?(to|2)_?nhwc|nhwc_?(to|2)_?nchw|nhwcaddpadding|swapdimension|intensor3|transpose|permute",
    ),
    (
        "optimizer",
        r"multi_?tensor_?apply|fused_?(sgd|adam)|(?<![a-z])sgd|momentum(dense|functor|kernel|sgd)|applymomentum",
    ),
    ("batch normalisation", r"batch_?norm|(?<![a-z])bn_?(fw|bw)|cudnn::bn|bn_(fw|bw)"),
    ("pooling", r"pool|reduce[-_]?window|select[-_]and[-_]scatter"),
    ("random", r"dropout|philox|curand|bernoulli|distribution_|random|rng|threefry"),
    (
        "convolution",
        r"conv(?!ert)|implicit|fprop|dgrad|wgrad|winograd|s?cudnn_\d|_cudnn|fft2d|flip_filter|im2col|col2im|depthwise",
    ),
    ("matrix product", r"gemm|gemv|gemk|cublas|nvjet|cutlass|matmul|split_?k|(?<![a-z])dot"),
    ("reduction", r"reduc|softmax|nll|cross_?entropy|loss|argmax|cub::"),
    (
        "elementwise",
        r"elementwise|element_wise|vectorized|unrolled|pointwise|fusion|loop_|wrapped_|broadcast|eigenmetakernel|bias"
        r"|functor|scalar|tensor_?kernel|relu|fill|cast|convert|copy|catarray|concat|mxnet_generic_kernel",
    ),
)
OTHER = "other"
NAMES = (*dict.fromkeys(name for name, _ in CLASSES), OTHER)
_COMPILED = [(name, re.compile(pattern)) for name, pattern in CLASSES]


@functools.lru_cache(maxsize=None)
def classify(kernel: str) -> str:
    """The class of a kernel by its name, demangled or not; "other" if no pattern matches."""
    name = kernel.lower()
    return next((name_of_class for name_of_class, pattern in _COMPILED if pattern.search(name)), OTHER)


def api_name(function: str) -> str:
    """A function of the CUDA API without the version that some profilers append: cudaLaunchKernel_v7000."""
    return re.sub(r"(_v\d+|_pt(ds|sz))+$", "", function)
