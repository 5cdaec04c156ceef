"""Counts of profilers as frames: time by operator, CUDA function and kernel class."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from framework_compare.results import repeats
from framework_compare.results.columns import RUN_KEYS, SETTINGS
from framework_compare.results.runs import read_runs, whole_table

if TYPE_CHECKING:
    import pandas as pd

    from framework_compare.store.study_file import Store

CELL_KEYS = ("framework", "model", "dataset", *SETTINGS)
FIGURES = ("kind", "name", "kernel_class", "calls", "self_s", "share")


def profile_frame(store: Store) -> pd.DataFrame:
    """One row per name that a run's profiler counted, largest first; share is of the run's time of that kind."""
    import pandas as pd

    frame = pd.DataFrame(whole_table(store, "profile", "run_id, kind, self_s DESC")).astype({"run_id": "int64"})
    whole = frame.groupby(["run_id", "kind"])["self_s"].transform("sum")
    frame["share"] = (frame["self_s"] / whole).where(whole > 0)
    kernel = frame["kind"] == "kernel"
    frame["kernel_class"] = frame["name"].map(classify).where(kernel, None)
    frame["name"] = frame["name"].where(frame["kind"] != "cuda-runtime", frame["name"].map(api_name))
    keys = pd.DataFrame(read_runs(store), columns=list(RUN_KEYS)).astype({"run_id": "int64"})
    return keys.merge(frame, on="run_id")[[*RUN_KEYS, *FIGURES]]


def with_profile(cells: pd.DataFrame, profile: pd.DataFrame) -> pd.DataFrame:
    """The cell frame with one row per name that profilers counted; runs of a cell are added up.

    A cell without any has one row, without a name, for each kind that was met on its device.
    """
    ok = repeats.counted(profile)
    keys = [*CELL_KEYS, "kind", "name", "kernel_class"]
    sums = ok.groupby(keys, sort=False, dropna=False)[["calls", "self_s"]].sum().reset_index()
    whole = sums.groupby([*CELL_KEYS, "kind"])["self_s"].transform("sum")
    sums["share"] = (sums["self_s"] / whole).where(whole > 0)
    kinds = sums[["device", "kind"]].drop_duplicates().sort_values("kind")
    return cells.merge(kinds, on="device").merge(sums, on=[*CELL_KEYS, "kind"], how="left")


# Names of cuDNN, cuBLAS (nvjet on Hopper), CUTLASS, ATen, TensorFlow, PaddlePaddle and MXNet, of XLA's fusions, which are
# called after kind and root, and of Inductor. The first pattern found in the lower-cased name decides. Generated names
# come first: "triton_poi_fused_convolution" adds a bias, and computes no convolution.
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
