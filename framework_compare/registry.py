"""Every name a user may give, as literal tables; looked up on demand, so nothing is imported before it is needed."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
from typing import Any, Callable, Dict, Mapping, Tuple

from framework_compare.errors import UnknownNameError


@dataclasses.dataclass(frozen=True)
class Framework:
    """Where a framework's adapter is, and what its environment needs."""

    name: str
    trainer: str  # "module:Class" or "path/to/file.py:Class", imported in the worker only
    requirements: str  # file beside the adapter; "" for the parent's own interpreter
    imports: str  # module whose import proves that the framework is there
    python: Tuple[Tuple[int, int], Tuple[int, int]]  # first and last interpreter version its pinned wheels run on
    cuda_requirements: str = ""  # file beside the adapter for NVIDIA GPUs; "" where no build for them is pinned
    # From how many loader workers on each one of the native pipeline makes whole batches; 0 where they read pictures.
    whole_batches_from: int = 0

    def requirements_on(self, device: str) -> str:
        """The requirements file for a device ("cpu", "cuda", "cuda:1"); "" where there is none."""
        return self.cuda_requirements if device_kind(device) == "cuda" and self.requirements else self.requirements


def device_kind(device: str) -> str:
    """ "cuda" of "cuda:1": devices of one kind share an environment."""
    return device.partition(":")[0]


_A = "framework_compare.adapters."
_PYTHONS = ((3, 11), (3, 13))
FRAMEWORKS: Dict[str, Framework] = {
    "torch": Framework("torch", _A + "torch:TorchTrainer", "torch.txt", "torch", _PYTHONS, "torch-cuda.txt", 1),
    "tensorflow": Framework(
        "tensorflow",
        _A + "tensorflow:TensorFlowTrainer",
        "tensorflow.txt",
        "tensorflow",
        _PYTHONS,
        "tensorflow-cuda.txt",
    ),
    "mxnet": Framework(
        "mxnet", _A + "mxnet:MXNetTrainer", "mxnet.txt", "mxnet", ((3, 11), (3, 11)), "mxnet-cuda.txt", 1
    ),
    "paddle": Framework(
        "paddle", _A + "paddle:PaddleTrainer", "paddle.txt", "paddle", _PYTHONS, "paddle-cuda.txt", 1
    ),
    "jax": Framework("jax", _A + "jax:JaxTrainer", "jax.txt", "jax", _PYTHONS, "jax-cuda.txt", 3),
}

_M = "framework_compare.models."
MODELS: Dict[str, str] = {
    "alexnet": _M + "alexnet:build",
    "mobilenet_v2": _M + "mobilenet_v2:build",
    "resnet50": _M + "resnet50:build",
    "resnet50_v1_5": _M + "resnet50:build_v1_5",
    "vgg16": _M + "vgg16:build",
}

_D = "framework_compare.datasets."
DATASETS: Dict[str, str] = {
    "fire-smoke-small": _D + "fire_smoke:small",
    "fire-smoke-big": _D + "fire_smoke:big",
    "fire-smoke-tiny": _D + "fire_smoke:tiny",
}

# Arrays: a function of (path or None, **options) that returns an ArrayData; None generates a stand-in.
ARRAY_DATASETS: Dict[str, str] = {
    "cifar10": _D + "image_arrays:cifar10",
    "diabetes": _D + "diabetes:diabetes",
    "google-prices": _D + "prices:google",
    "guava": _D + "image_arrays:guava",
    "ibm-prices": _D + "prices:ibm",
    "mnist": _D + "mnist:mnist",
    "prices": _D + "prices:prices",
    "tiny-imagenet": _D + "image_arrays:tiny_imagenet",
    "tweet-ner": _D + "conll:conll",
    "tweet-span": _D + "tweets:tweet_span",
    "tweet-words": _D + "next_words:next_words",
}

ALIASES: Dict[str, str] = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "paddlepaddle": "paddle",
    "mobilenetv2": "mobilenet_v2",
    "resnet50v1.5": "resnet50_v1_5",
    "resnet-50": "resnet50",
    "vgg-16": "vgg16",
}


PLUGINS = "framework_compare.plugins"


def find(kind: str, table: Mapping[str, Any], name: object) -> Any:
    """The entry of `table` under a name or an alias of it; UnknownNameError lists what is known."""
    key = str(name).lower()
    key = ALIASES.get(key, key)
    if key not in table:
        load_plugins()
    if key not in table:
        raise UnknownNameError(kind, name, table)
    return table[key]


def framework(name: str) -> Framework:
    return find("framework", FRAMEWORKS, name)


def load(target: str) -> Callable[..., Any]:
    """The object behind "module:name"."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


@functools.lru_cache(maxsize=1)
def load_plugins() -> None:
    """Call every installed entry point of group `framework_compare.plugins`, once; each registers what it brings."""
    for entry in importlib.metadata.entry_points(group=PLUGINS):
        entry.load()()


def register_framework(entry: Framework) -> None:
    """Add a framework, or replace the one of that name."""
    FRAMEWORKS[entry.name] = entry


def register_model(name: str, target: str) -> None:
    """Add a model: "module:function" that takes num_classes and image_size and returns a Graph."""
    MODELS[name] = target


def register_dataset(name: str, target: str) -> None:
    """Add a data set: "module:function" that takes a progress callback (or None) and returns a folder."""
    DATASETS[name] = target


def register_array_dataset(name: str, target: str) -> None:
    """Add a data set of arrays: "module:function" that takes a path or None, then options, and returns an ArrayData."""
    ARRAY_DATASETS[name] = target
