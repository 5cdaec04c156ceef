"""Published studies that can be repeated: the cells of each, its size, and what of its figures ours stand beside.

Where a document leaves a setting open it is a choice of ours. The published figures are in `report/published/`.
"""

import dataclasses
from typing import Any, Dict, Mapping, Tuple

from framework_compare.plan.ladders import LADDERS, Rung
from framework_compare.protocol import Document

# How ours and theirs are set beside each other.
RATIOS = "ratios"  # seconds per image, and over those of the reference
GAINS = "gains"  # seconds of a rung, and how many times faster than the first
SIZES = "sizes"  # largest batch that works
FIVE = ("torch", "tensorflow", "mxnet", "paddle", "jax")


@dataclasses.dataclass(frozen=True)
class ReproductionPart:
    """One study of a reproduction.

    settings: keywords of `compare`, or of `largest_batch` with `batch_sizes`. quick: what a small run has in their place.
    rungs: of a ladder; those that ask for a GPU are left out where there is none.
    devices: kinds of device it is for. tables: shown where no figures are published, and of those that are none.
    published, beside: file of the published figures, and how they are compared. workload, phase: of its rows.
    reference: the framework that ratios are to.
    places: the published rung beside which a rung of ours stands.
    """

    models: Tuple[str, ...]
    settings: Document = dataclasses.field(default_factory=dict)
    quick: Document = dataclasses.field(default_factory=dict)
    rungs: Tuple[Rung, ...] = ()
    devices: Tuple[str, ...] = ("cpu", "cuda")
    tables: Tuple[str, ...] = ("time",)
    published: str = ""
    beside: str = ""
    reference: str = ""
    workload: str = ""
    phase: str = ""
    places: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def sweeps(self) -> bool:
        """Return whether the batch size grows until a cell fails."""
        return "batch_sizes" in self.settings


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A published study: its source, its frameworks, and its parts by name."""

    source: str
    parts: Mapping[str, ReproductionPart]
    frameworks: Tuple[str, ...] = FIVE
    where_installed: Tuple[str, ...] = ()  # frameworks that are left out where they have no environment


def _ladder(name: str, quick: Document, **published: Any) -> ReproductionPart:
    ladder = LADDERS[name]
    return ReproductionPart(
        (ladder.model,), ladder.base, {"repeats": 1, **quick}, ladder.rungs, tables=("gains",), **published
    )


def _gains(name: str, quick: Document, workload: str, phase: str = "train", **places: int) -> ReproductionPart:
    places = {rung.replace("_", " "): place for rung, place in {"base": 0, **places}.items()}
    theirs = {"published": "abidate_gains.csv", "beside": GAINS, "workload": workload, "phase": phase}
    return _ladder(name, quick, **theirs, places=places)


_NETWORKS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
_FEW: Document = {"epochs": 2, "repeats": 1}
_LERAT = ReproductionPart(
    _NETWORKS,
    {"dataset": ("fire-smoke-small", "fire-smoke-big"), "batch_size": 1, "epochs": 100},
    {"dataset": "fire-smoke-small", "limit": 6, "warmup_steps": 1, **_FEW},
    beside=RATIOS,
    reference="torch",
)
_BATCHES = ReproductionPart(
    _NETWORKS,
    {"dataset": "fire-smoke-small", "batch_sizes": tuple(range(10, 101, 10))},
    {"models": ("alexnet",), "batch_sizes": (10, 50, 100), "limit": 100, "warmup_steps": 0},
    devices=("cpu",),
    published="lerat_batches.csv",
    beside=SIZES,
)
_QUALITY = ("time", "quality")
_TWEETS = ("gains", "quality")
_TEXTS = {"limit": 512, **_FEW}
_IMAGES = {"limit": 128, **_FEW}
_LARGE = {"limit": 16, "batch_size": 8, "image_size": 64, **_FEW}
_INFERENCE = {"mode": "inference", "batch_size": (1, 8, 64), "epochs": 3}
_SHORT = {"epochs": 1, "limit": 64, "repeats": 1}
REPRODUCTIONS: Dict[str, Reproduction] = {
    "lerat2021": Reproduction(
        "Lerat 2021, doi 10.1002/cpe.6730",
        {
            "cpu": dataclasses.replace(_LERAT, devices=("cpu",), published="lerat_table1_cpu.csv"),
            "gpu": dataclasses.replace(_LERAT, devices=("cuda",), published="lerat_table2_gpu.csv"),
            "batches": _BATCHES,
            "batches-gpu": dataclasses.replace(_BATCHES, devices=("cuda",)),
        },
        ("torch", "tensorflow", "mxnet", "paddle", "singa"),
        where_installed=("singa",),
    ),
    "abidate2025": Reproduction(
        "ABIDATE report on GPU gains, 2025",
        {
            # Batches of 4 grow to 5 after 224 steps: with fewer tweets the rung would be its base.
            "tweets": dataclasses.replace(_ladder("abidate2025-tweets", {"epochs": 2, "limit": 2048}), tables=_TWEETS),
            "ibm": _gains("abidate2025-ibm", {"epochs": 2, "limit": 512}, "lstm_ibm", Adam=1),
            "google": _gains(
                "abidate2025-google", {"epochs": 2}, "lstm_google", batch_100=1, batch_200=2, batch_500=3
            ),
            "guava": _gains(
                "abidate2025-guava", {"epochs": 2, "limit": 64}, "guava_cnn", GPU=1, one_batch_on_the_device=2
            ),
            "diabetes": _gains(
                "abidate2025-diabetes", {"epochs": 5}, "diabetes_ann", mixed_precision=1, compiled=2
            ),
            "diabetes-search": dataclasses.replace(
                _gains(
                    "abidate2025-diabetes-search", {"epochs": 1}, "diabetes_ann", "search", mixed_precision=1, compiled=2
                ),
                tables=("search", "gains"),
            ),
            "quantum": ReproductionPart(
                ("quanv_fixed", "quanv_trained", "quanv_classical"), {"epochs": 30}, _FEW, tables=_QUALITY
            ),
        },
    ),
    "tf-profiling": Reproduction(
        "poster on TensorFlow profiling, 2020",
        {
            "simple-cnn": _ladder("tf-profiling", {"epochs": 2, "limit": 512}),
            "resnet50": dataclasses.replace(
                _ladder("tf-profiling", {"epochs": 1, "limit": 256}),
                models=("cifar_resnet50",),
            ),
        },
    ),
    "colab-tiny-imagenet": Reproduction(
        "Colab study of Tiny ImageNet",
        {
            "cpu": ReproductionPart(("tiny_cnn",), {"epochs": 15}, _IMAGES, devices=("cpu",), tables=_QUALITY),
            "gpu": ReproductionPart(("tiny_cnn",), {"epochs": 15}, _IMAGES, devices=("cuda",), tables=_QUALITY),
        },
    ),
    "gpu-guide": Reproduction(
        "guide to GPUs for deep learning",
        {
            "mnist-cnn": ReproductionPart(("mnist_cnn",), {"epochs": 5}, {"limit": 512, **_FEW}, tables=_QUALITY),
            "text-rnn": ReproductionPart(("text_rnn",), {"epochs": 3}, _TEXTS, tables=_QUALITY),
            "vgg16": ReproductionPart(("vgg16_frozen",), {"epochs": 3}, _LARGE, tables=_QUALITY),
            "inference": ReproductionPart(("mnist_cnn",), _INFERENCE, _SHORT, tables=("inference",)),
        },
    ),
}  # fmt: skip
