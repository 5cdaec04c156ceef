"""Every name a user may give, as literal tables; looked up on demand, so nothing is imported before it is needed."""

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, NamedTuple, TypeVar

from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.json_types import Document, Fields


class ForeignWheels(NamedTuple):
    """Wheels that are named after a Python other than the one that is to run them; no installer would take them."""

    requirements: str  # file in the adapter's folder, with checksums: what is installed without a check must be known
    python: str  # "3.6"
    platform: str  # "manylinux2014_x86_64"


@dataclasses.dataclass(frozen=True)
class Framework:
    """A framework: where its adapter is, and what its environment needs."""

    name: str
    trainer: str  # "module:Class", "path/to/file.py:Class" or "path/to/folder:Class", imported in the worker only
    requirements: str  # file in the adapter's folder, or next to its file; "" for the parent's own interpreter
    imports: str  # module whose import proves that the framework is there
    python: tuple[tuple[int, int], tuple[int, int]]  # first and last interpreter version its pinned wheels run on
    cuda_requirements: str = ""  # likewise, for NVIDIA GPUs; "" where no build for them is pinned
    # From how many loader workers on each one of the native pipeline makes whole batches; 0 where they read images.
    whole_batches_from: int = 0
    foreign: ForeignWheels | None = None
    title: str = ""  # its name as people write it; "" for the registered one
    label: str = ""  # what tables must say of it, where its name and version do not tell what runs
    cpu_index: str = ""  # package index of its builds for CPUs, where PyPI has only builds for GPUs
    companions: tuple[str, ...] = ()  # packages that are from the same index as the framework's own
    process_per_device: bool = False  # whether a cell on several devices is as many processes, or one
    importer: str = ""  # "module:Class" of `importers`, which its workers run in place of `trainer`
    library: str = ""  # package on top of a plain framework, whose version is this one's: "keras"
    since: str = ""  # oldest version that its adapter supports, where indexes list older ones
    backend: str = ""  # that framework, whose adapter is staged too, and with which tables compare: "jax"
    environment: str = ""  # framework whose environment it runs in; "" for one of its own
    cuda_extra: str = ""  # extra of its package that brings CUDA's libraries, for other versions than the pinned one

    def requirements_on(self, device: str) -> str:
        """The requirements file for a device ("cpu", "cuda", "cuda:1"); "" where there is none."""
        return self.cuda_requirements if device_kind(device) == "cuda" and self.requirements else self.requirements


def device_kind(device: str) -> str:
    """ "cuda" of "cuda:1": devices of one kind share an environment."""
    return device.partition(":")[0]


_A = "framework_compare.adapters."
Builder = Callable[..., Any]  # of a Graph: from num_classes and image_size, or from a graph.Task and sizes
_PYTHONS = ((3, 11), (3, 13))
_PINS, _CUDA_PINS = "requirements.txt", "requirements-cuda.txt"
_CPU_BUILDS: Fields = {"cpu_index": "https://download.pytorch.org/whl/cpu", "companions": ("torchvision",)}


def _plain(name: str, title: str, trainer: str, **more: Any) -> Framework:
    pinned = {"requirements": _PINS, "cuda_requirements": _CUDA_PINS, "imports": name, "python": _PYTHONS}
    return Framework(name, f"{_A}{name}:{trainer}", title=title, **{**pinned, **more})


def _above(name: str, title: str, trainer: str, backend: str, **more: Any) -> Framework:
    return _plain(name, title, trainer, cuda_requirements="", library=name, backend=backend, **more)


def _of_keras(backend: str, title: str, trainer: str, requirements: str, **more: Any) -> Framework:
    known: Fields = {"imports": "keras", "python": _PYTHONS, "library": "keras", "since": "3.0.0", "backend": backend}
    return Framework(f"keras-{backend}", f"{_A}keras:{trainer}", requirements, title=title, **known, **more)


FRAMEWORKS: dict[str, Framework] = {
    "torch": _plain("torch", "PyTorch", "TorchTrainer", whole_batches_from=1, process_per_device=True, **_CPU_BUILDS),
    "tensorflow": _plain("tensorflow", "TensorFlow", "TensorFlowTrainer", cuda_extra="and-cuda"),
    "mxnet": _plain("mxnet", "MXNet", "MXNetTrainer", python=((3, 11), (3, 11)), whole_batches_from=1),
    "paddle": _plain("paddle", "PaddlePaddle", "PaddleTrainer", whole_batches_from=1, process_per_device=True),
    "jax": _plain("jax", "JAX", "JaxTrainer", whole_batches_from=3, cuda_extra="cuda13"),
    "singa": _plain(
        "singa",
        "SINGA (repaired)",
        "SingaTrainer",
        cuda_requirements="",
        python=((3, 8), (3, 12)),
        whole_batches_from=1,
        foreign=ForeignWheels("requirements-cp36.txt", "3.6", "manylinux2014_x86_64"),
        label="SINGA 3.0.0.dev1 (2020), repaired at run time",
    ),
    "keras-tensorflow": _of_keras(
        "tensorflow", "Keras (TensorFlow)", "KerasTensorFlowTrainer", "../tensorflow/" + _PINS, environment="tensorflow"
    ),
    "keras-jax": _of_keras("jax", "Keras (JAX)", "KerasJaxTrainer", "requirements-jax.txt", whole_batches_from=3),
    "keras-torch": _of_keras(
        "torch", "Keras (PyTorch)", "KerasTorchTrainer", "requirements-torch.txt", whole_batches_from=1, **_CPU_BUILDS
    ),
    "lightning": _above("lightning", "Lightning", "LightningTrainer", "torch", whole_batches_from=1, **_CPU_BUILDS),
    "flax": _above("flax", "Flax NNX", "FlaxTrainer", "jax", whole_batches_from=3),
}
# What commands take where no framework is named: those of which none runs on top of another.
PLAIN = tuple(name for name, entry in FRAMEWORKS.items() if not entry.library)

# What reads models of users, in the environment of a framework or, of files that belong to none, in one of its own.
_I = "framework_compare.importers."
_ONNX = _I + "onnx:OnnxImporter"
READERS = {"onnx": Framework("onnx", _ONNX, _PINS, imports="onnx", python=_PYTHONS, importer=_ONNX)}
IMPORTERS: dict[str, Framework] = {
    "torch": dataclasses.replace(FRAMEWORKS["torch"], importer=_I + "torch:TorchImporter"),
    "tensorflow": dataclasses.replace(FRAMEWORKS["tensorflow"], importer=_I + "keras:KerasImporter"),
    **READERS,
}

# What trains a model of the user's as its author wrote it, in the environment of the framework it is named after.
AS_WRITTEN: dict[str, Framework] = {
    "torch-as-written": dataclasses.replace(
        FRAMEWORKS["torch"],
        title="PyTorch (as written)",
        importer=_I + "torch:WrittenTrainer",
        process_per_device=False,
    )
}

_D = "framework_compare.datasets."


@dataclasses.dataclass(frozen=True)
class DataSource:
    """A data set: "module:function" that makes it, as `register_dataset` describes it."""

    make: str
    arrays: bool = False
    class_folders: bool = False


DATASETS: dict[str, DataSource] = {
    "fire-smoke-small": DataSource(_D + "fire_smoke:small"),
    "fire-smoke-big": DataSource(_D + "fire_smoke:big"),
    "fire-smoke-tiny": DataSource(_D + "fire_smoke:tiny"),
    "cifar10": DataSource(_D + "image_arrays:cifar10", arrays=True, class_folders=True),
    "diabetes": DataSource(_D + "diabetes:diabetes", arrays=True),
    "diabetes-folds": DataSource(_D + "diabetes:diabetes_folds", arrays=True),
    "google-prices": DataSource(_D + "prices:google", arrays=True),
    "guava": DataSource(_D + "image_arrays:guava", arrays=True, class_folders=True),
    "ibm-prices": DataSource(_D + "prices:ibm", arrays=True),
    "mnist": DataSource(_D + "mnist:mnist", arrays=True),
    "prices": DataSource(_D + "prices:prices", arrays=True),
    "text-bytes": DataSource(_D + "text_windows:text_bytes", arrays=True),
    "tiny-imagenet": DataSource(_D + "image_arrays:tiny_imagenet", arrays=True, class_folders=True),
    "tweet-ner": DataSource(_D + "conll:conll", arrays=True),
    "tweet-span": DataSource(_D + "tweets:tweet_span", arrays=True),
    "tweet-words": DataSource(_D + "next_words:next_words", arrays=True),
}
OWN = "own data"  # in place of a data set's name: of models that were imported for a user's arrays
CONVOLUTIONAL, TRANSFORMER, RECURRENT, DENSE = "convolutional", "transformer", "recurrent", "dense"


@dataclasses.dataclass(frozen=True)
class Model:
    """A network with the data set that it is for, and the settings it is trained with unless others are asked for.

    build: "module:function", or an imported model. It returns a Graph from num_classes and image_size; or, of a workload,
    whose data set is arrays, from a graph.Task and `size`.
    """

    build: str | Builder
    dataset: str = "fire-smoke-small"
    settings: Document = dataclasses.field(default_factory=dict)  # of TrainConfig
    size: Document = dataclasses.field(default_factory=dict)
    options: Document = dataclasses.field(default_factory=dict)  # of the data set
    # Of a grid search: what its candidates are the product of, by setting of TrainConfig or argument of the model.
    search: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    unit: str = "image"  # what the task calls a sample
    title: str = ""  # its name as people write it; "" for the registered one
    kind: str = CONVOLUTIONAL  # of network: an archive's first page has an answer for each

    @property
    def of_arrays(self) -> bool:
        return self.dataset == OWN or DATASETS[self.dataset].arrays


_M = "framework_compare.models."
# Those for arrays by the names that the documents give them; where they leave a setting open it is a choice of ours.
_ADAM = {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 32}
_TWEETS = {**_ADAM, "epochs": 3}
# Settings first, as candidates of other settings have a trainer of their own.
_GRID = {"learning_rate": (1e-2, 1e-3), "layers": (1, 2, 3), "units": (16, 32, 64), "dropout": (0.0, 0.2)}
_DEMO = {"train": 50, "validation": 30}
# As the two nano models are specified: AdamW, clipping, and a rate that rises over 10 updates and falls until the 1,000th.
_NANO = {
    **{"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.1, "beta2": 0.95, "epsilon": 1e-8},
    **{"batch_size": 16, "clip_norm": 1.0, "ramp_updates": 10, "decay_updates": 1000, "epochs": 3},
}
_SMALL = {**_NANO, "learning_rate": 6e-4, "ramp_updates": 100}
_QUANV = {**_ADAM, "batch_size": 4, "epochs": 30}
_SERIES: Fields = {"unit": "sequence", "kind": RECURRENT}
_TEXT: Fields = {"unit": "sequence", "kind": TRANSFORMER}
MODELS: dict[str, Model] = {
    "alexnet": Model(_M + "alexnet:build", title="AlexNet"),
    "mobilenet_v2": Model(_M + "mobilenet_v2:build", title="MobileNetV2"),
    "resnet50": Model(_M + "resnet50:build", title="ResNet-50"),
    "resnet50_v1_5": Model(_M + "resnet50:build_v1_5", title="ResNet-50 v1.5"),
    "vgg16": Model(_M + "vgg16:build", title="VGG-16"),
    "diabetes_ann": Model(_M + "diabetes_mlp:build", "diabetes", {**_ADAM, "epochs": 30}, unit="row", kind=DENSE),
    "diabetes_search": Model(
        _M + "diabetes_mlp:build", "diabetes-folds", {**_ADAM, "epochs": 30}, unit="row", kind=DENSE, search=_GRID
    ),
    "lstm_ibm": Model(_M + "lstm:build", "ibm-prices", {**_ADAM, "epochs": 10}, **_SERIES),
    "gru_ibm": Model(_M + "lstm:build", "ibm-prices", {**_ADAM, "epochs": 10}, size={"kind": "gru"}, **_SERIES),
    "lstm_google": Model(_M + "lstm:build", "google-prices", {**_ADAM, "epochs": 10}, size={"layers": 2}, **_SERIES),
    "tweet_span": Model(_M + "bilstm_tagger:build", "tweet-span", _TWEETS, **_SERIES),
    "tweet_span_conv": Model(_M + "conv_tagger:build", "tweet-span", _TWEETS, unit="sequence"),
    "tweet_ner": Model(_M + "bilstm_tagger:build", "tweet-ner", _TWEETS, **_SERIES),
    "text_rnn": Model(_M + "text_rnn:build", "tweet-words", _TWEETS, **_SERIES),
    "mnist_cnn": Model(_M + "small_cnns:mnist_cnn", "mnist", {**_ADAM, "batch_size": 64, "epochs": 3}),
    "cifar_cnn": Model(_M + "small_cnns:cifar_cnn", "cifar10", {**_ADAM, "epochs": 10}),
    "cifar_resnet50": Model(_M + "resnet50:build_for", "cifar10", {"batch_size": 32, "epochs": 3}),
    "tiny_cnn": Model(_M + "tiny_cnn:build", "tiny-imagenet", {**_ADAM, "batch_size": 128, "epochs": 3}),
    "guava_cnn": Model(_M + "small_cnns:guava_cnn", "guava", {**_ADAM, "batch_size": 64, "epochs": 10}),
    "vgg16_frozen": Model(_M + "vgg16:build_transfer", "guava", {**_ADAM, "epochs": 3}, options={"image_size": 224}),
    "gpt_nano": Model(_M + "language:gpt", "text-bytes", _NANO, **_TEXT),
    "llama_nano": Model(_M + "language:llama", "text-bytes", _NANO, **_TEXT),
    "gpt2_small": Model(
        _M + "language:gpt",
        "text-bytes",
        _SMALL,
        size={"layers": 12, "heads": 12, "width": 768, "name": "gpt2_small"},
        options={"window": 1024, "vocabulary": 50257},
        **_TEXT,
    ),
    "llama_160m": Model(
        _M + "language:llama",
        "text-bytes",
        _SMALL,
        size={"layers": 12, "heads": 12, "kv_heads": 12, "width": 768, "inner": 3072, "name": "llama_160m"},
        options={"window": 1024, "vocabulary": 32000},
        **_TEXT,
    ),
    "quanv_fixed": Model(_M + "quanv:build", "mnist", _QUANV, options=_DEMO),
    "quanv_trained": Model(_M + "quanv:build", "mnist", _QUANV, size={"trained": True}, options=_DEMO),
    "quanv_classical": Model(_M + "quanv:classical", "mnist", _QUANV, options=_DEMO),
}

ALIASES: dict[str, str] = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "paddlepaddle": "paddle",
    "mobilenetv2": "mobilenet_v2",
    "resnet50v1.5": "resnet50_v1_5",
    "resnet-50": "resnet50",
    "vgg-16": "vgg16",
}

Entry = TypeVar("Entry")
PLUGINS, ADAPTERS = "framework_compare.plugins", "framework_compare.adapters"  # groups of entry points


def find(kind: str, table: Mapping[str, Entry], name: object) -> Entry:
    """The entry of `table` under a name or an alias of it; UnknownNameError lists what is known."""
    return table[find_name(kind, table, name)]


def find_name(kind: str, table: Mapping[str, object], name: object) -> str:
    """The name in `table` of what a user calls by that or by an alias; likewise."""
    key = ALIASES.get(str(name).lower(), str(name).lower())
    if key not in table:
        load_plugins()
    if key not in table:
        raise UnknownNameError(kind, name, table)
    return key


def unit(model: str) -> str:
    """Return what a sample of a model is called: "image", "row"."""
    return MODELS[model].unit if model in MODELS else "image"


def of_arrays(model: str) -> bool:
    """Return whether a model is a workload: one for a data set of arrays, not for folders of images."""
    return model in MODELS and MODELS[model].of_arrays


def image_models() -> dict[str, Model]:
    """The models for folders of images."""
    return {name: model for name, model in MODELS.items() if not model.of_arrays}


def workloads() -> dict[str, Model]:
    """The models for arrays."""
    return {name: model for name, model in MODELS.items() if model.of_arrays}


def image_datasets() -> list[str]:
    """The names of the data sets that are folders of images."""
    return [name for name, source in DATASETS.items() if not source.arrays]


def builder(model: str) -> None | str | Builder:
    """Return what builds the graph of a model; None of one that is not registered."""
    return MODELS[model].build if model in MODELS else None


def data_source(name: object) -> DataSource | None:
    """The data set under a name; None for what may be a path."""
    try:
        return find("data set", DATASETS, name)
    except UnknownNameError:
        return None


def framework(name: str) -> Framework:
    """A framework under a name or an alias; a reader; or one that trains models as they are written.

    "torch@2.12.0" is torch as another interpreter has it.
    """
    base, _, version = str(name).partition("@")
    found = (
        READERS.get(base) or AS_WRITTEN.get(base) or find("framework", FRAMEWORKS, name if name in FRAMEWORKS else base)
    )
    return dataclasses.replace(found, name=name) if version else found


def labels(names: Iterable[str]) -> tuple[str, ...]:
    """Remarks on frameworks, as sentences, for every place that names them; most have none."""
    known = [FRAMEWORKS[base] for base in dict.fromkeys(name.partition("@")[0] for name in names) if base in FRAMEWORKS]
    return tuple(f"{entry.name} is {entry.label}." for entry in known if entry.label)


def source_path(target: str) -> Path:
    """The file or folder of "module:Class", found without an import, which may need a framework; else UsageError."""
    place = target.rpartition(":")[0]
    spec = None
    if "/" not in place and not place.endswith(".py"):
        with contextlib.suppress(ImportError, ValueError):  # a package above it is not there, or it is not a name
            spec = importlib.util.find_spec(place)
    path = Path(spec.origin) if spec and spec.origin else Path(place)
    path = path.parent if path.name == "__init__.py" else path
    if not (path.is_file() or (path / "__init__.py").is_file()):
        raise UsageError(
            f"adapter {place!r} is not a file; allowed: the name of a module or a package, the path of a .py file or of a"
            " folder with an __init__.py"
        )
    return path


def load(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """The object behind "module:name"; an imported model is one itself."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=1)
def load_plugins() -> None:
    """Register what installed packages bring, once.

    An entry point of group `framework_compare.adapters` is a Framework, under its own name; one of group
    `framework_compare.plugins` is a function that registers what it likes.
    """
    for entry in importlib.metadata.entry_points(group=ADAPTERS):
        register_framework(dataclasses.replace(entry.load(), name=entry.name))
    for entry in importlib.metadata.entry_points(group=PLUGINS):
        entry.load()()


def register_framework(entry: Framework) -> None:
    """Add a framework, or replace the one with this name."""
    FRAMEWORKS[entry.name] = entry


def register_model(name: str, target: str, **more: Any) -> None:
    """Add a model: "module:function" that takes num_classes and image_size and returns a Graph; `more`: fields of Model."""
    MODELS[name] = Model(target, **more)


def register_imported(name: str, build: Builder, *, of_arrays: bool, unit: str) -> None:
    """Add a model that was imported: for folders of images, or for a user's arrays."""
    MODELS[name] = Model(build, OWN, unit=unit) if of_arrays else Model(build)


def model_of_all(name: str) -> Model | None:
    """A model that every process knows; None for one that was imported, which only processes that read it know."""
    return entry if (entry := MODELS.get(name)) and isinstance(entry.build, str) else None


def register_dataset(name: str, target: str, *, arrays: bool = False, class_folders: bool = False) -> None:
    """Add a data set: "module:function" that takes a progress callback (or None) and returns a folder of images.

    arrays: it takes a path or None, for which it generates a stand-in, then options, and returns an ArrayData.
    class_folders: arrays whose path is a folder, never a file, and may have folders of images in it.
    """
    DATASETS[name] = DataSource(target, arrays, class_folders)
