"""Task that a network learns: arrays of a sample, loss, metrics. A data set states it; a network is built for it."""

import dataclasses
from typing import Dict, Tuple

from framework_compare.errors import UsageError
from framework_compare.graph.node import Shape
from framework_compare.json_types import Document, Fields

# Each is a mean over samples, or over the tokens that count; half of nothing.
LOSSES = ("cross_entropy", "token_cross_entropy", "mse", "binary_cross_entropy", "mean_output")
SMOOTHED = LOSSES[:2]
DTYPES = ("float32", "int32", "int64", "bool")
INPUT = "input"  # under which nodes read an only input


@dataclasses.dataclass(frozen=True)
class Field:
    """One array of a sample, without the batch; `vocabulary` is the number of different tokens, 0 for numbers.

    positive: none of the numbers is below zero, so models may take their root or logarithm.
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    vocabulary: int = 0
    positive: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"field {self.name}: dtype is {self.dtype!r}; allowed: {', '.join(DTYPES)}")


@dataclasses.dataclass(frozen=True)
class Task:
    """Inputs, target and loss of a workload; `outputs` is the size of the last axis of the network's output.

    target: labels () int64 for cross_entropy; (T,) int64 with -1 where a token does not count for token_cross_entropy;
    (outputs,) float32 for mse and for binary_cross_entropy, there 0 or 1 against logits; (T, outputs) for mse, too. For
    mean_output the network's output is the loss of each sample: a target that it needs is one of its inputs, and `target`
    is unused.
    smoothing: the share s of a label that all classes have in equal parts (Szegedy et al. 2016): a loss of SMOOTHED is
    the mean of (1 - s) * (-log p[label]) + s * (the mean of -log p over all classes, that of the label included).
    """

    inputs: Tuple[Field, ...]
    target: Field
    outputs: int
    loss: str
    metrics: Tuple[str, ...] = ()
    unit: str = "image"  # what a sample is called in tables: "image", "sequence", "row"
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UsageError(f"loss is {self.loss!r}; allowed: {', '.join(LOSSES)}")
        if self.smoothing and self.loss not in SMOOTHED:
            raise UsageError(f"label_smoothing is {self.smoothing:g}; allowed for loss {self.loss!r}: 0")

    @property
    def named_loss(self) -> str:
        """The loss as adapters declare it: "smoothed cross_entropy" where labels are smoothed."""
        return f"smoothed {self.loss}" if self.smoothing else self.loss

    @property
    def loss_options(self) -> Dict[str, float]:
        """The keywords of an adapter's loss."""
        return {"smoothing": self.smoothing} if self.smoothing else {}

    @property
    def named_inputs(self) -> Dict[str, Field]:
        """The fields of a sample by the names under which nodes read them: an only one as "input"."""
        return {INPUT if len(self.inputs) == 1 else field.name: field for field in self.inputs}

    @property
    def output_shape(self) -> Shape:
        """Shape of the network's output for a sample; an axis of 0 has any size."""
        if self.loss == "mse":
            return self.target.shape
        return (*(self.target.shape if self.loss == "token_cross_entropy" else ()), self.outputs)

    @property
    def image_size(self) -> int:
        """Pixels a side of the first input; 0 where that is not an image."""
        shape = self.inputs[0].shape
        return shape[-1] if len(shape) == 3 else 0

    def to_dict(self) -> Fields:
        document = dataclasses.asdict(self)
        if not self.smoothing:  # documents of earlier versions have none
            del document["smoothing"]
        for field in (*document["inputs"], document["target"]):
            if not field["positive"]:  # nor this
                del field["positive"]
        return document

    @classmethod
    def from_dict(cls, document: Document) -> "Task":
        def field(given: Document) -> Field:
            return Field(**{**given, "shape": tuple(given["shape"])})

        return cls(
            **{
                **document,
                "inputs": tuple(map(field, document["inputs"])),
                "target": field(document["target"]),
                "metrics": tuple(document["metrics"]),
            }
        )


def image_classification(num_classes: int, image_size: int) -> Task:
    """One RGB image of image_size x image_size to one of num_classes labels."""
    return Task(
        (Field("image", (3, image_size, image_size)),),
        Field("label", (), "int64"),
        num_classes,
        "cross_entropy",
        ("accuracy",),
    )
