"""Names of frameworks, models and devices as people write them."""

from collections.abc import Iterable, Sequence

from framework_compare import registry

TITLES = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "mxnet": "MXNet",
    "paddle": "PaddlePaddle",
    "jax": "JAX",
    "singa": "SINGA (repaired)",
    "keras-tensorflow": "Keras (TensorFlow)",
    "keras-jax": "Keras (JAX)",
    "keras-torch": "Keras (PyTorch)",
    "lightning": "Lightning",
    "flax": "Flax NNX",
    "torch-as-written": "PyTorch (as written)",
    "alexnet": "AlexNet",
    "mobilenet_v2": "MobileNetV2",
    "resnet50": "ResNet-50",
    "resnet50_v1_5": "ResNet-50 v1.5",
    "vgg16": "VGG-16",
    "cuda": "GPU",
    "cpu": "CPU",
}


def title(name: object) -> str:
    """A name as people write it, "PyTorch 2.12.0" for "torch@2.12.0"; one that is not known stays."""
    base, _, version = str(name).partition("@")
    return f"{TITLES[base]} {version}".strip() if base in TITLES else str(name)


def listed(names: Iterable[str]) -> str:
    """Names as a sentence lists them: "A, B and C"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def in_order(names: Sequence[str]) -> list[str]:
    """Frameworks in the order of the registry, versions of one as they come, others after them."""
    places = {name: place for place, name in enumerate(registry.FRAMEWORKS)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(str(name).partition("@")[0], len(places)))
