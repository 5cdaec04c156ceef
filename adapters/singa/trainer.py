"""One model in SINGA: steps by its autograd and opt.SGD, arrays in and out. One device, one precision, eager only."""

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.adapters.common.trainer import TrainerDefaults
from framework_compare.adapters.singa import repairs
from framework_compare.adapters.singa.network import OPS, Network, as_stored
from framework_compare.adapters.singa.operators import Operators
from framework_compare.adapters.singa.pipeline import NativePipeline
from framework_compare.graph import OPTIMIZERS, Graph, trainable_names
from framework_compare.protocol import UPDATES, Batch, Declared, ImageFiles, ProfileRow, TrainConfig


class SingaTrainer(TrainerDefaults):
    name = "singa"
    layout = "NCHW"
    declared = Declared(
        ops=OPS,
        losses=frozenset({"cross_entropy"}),
        optimizers=frozenset({"sgd"}),
        executions={"cpu": frozenset({"default", "eager"})},
        precisions={"cpu": frozenset({"fp32"})},
        internals=frozenset({"public", "private"}),
        why={
            "replicas": "its DistOpt needs a build with CUDA and NCCL, and its wheel has neither",
            "graph": "its graph mode ends the process at the first BatchNorm, by a check of its own",
            "compiled": "it has no compiler",
            **dict.fromkeys(("tf32", "bf16", "fp16"), "its arithmetic on a CPU is in float32 alone"),
            **dict.fromkeys(
                [name for name in OPTIMIZERS if name != "sgd"], "its only optimizer that is repaired and proved is SGD"
            ),
            **dict.fromkeys(UPDATES, "only plain steps of SGD are proved"),
            "inference": "only the training of the published study is proved",
        },
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        # of oneDNN's OpenMP, read once; the wheel's OpenBLAS is built for one thread, element-wise loops have one
        threads = {"OMP_NUM_THREADS": str(config.threads)}
        # beside other busy processes its GNU OpenMP spins at each barrier: ResNet-50 then took twice the CPU time a step
        return {**threads, **({"GOMP_SPINCOUNT": "10000"} if config.tuning == "recommended" else {})}

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.singa = config, repairs.load()
        self._read: Callable[[Any], np.ndarray] = self.singa.tensor.to_numpy
        self._device = self.singa.device.get_default_device()
        self._device.SetRandSeed(config.seed & 0x7FFFFFFF)
        self._private = config.internals == "private"
        self._pipeline: Optional[NativePipeline] = None

    def version(self) -> str:
        corrected = "; fields that are not public corrected where a model needs it"
        return repairs.VERSION + (corrected if self._private else "")

    def unsupported(self) -> Optional[str]:
        return None

    def settings(self) -> Dict[str, Any]:
        return {
            "execution": "eager",
            "layout": self.layout,
            "optimizer": "opt.SGD",
            "label": repairs.LABEL,
            "convolutions_in_groups": "a corrected handle" if self._private else "one by one",
            "garbage": "gradients are freed in the step, by cutting the cycle that holds each",
            "short_batch": "handles of its own, no padding",
            "running_variance": "unbiased",
            "threads": self.config.threads,
        }

    def build(self, graph: Graph) -> None:
        config = self.config
        self._network = Network(self.singa, Operators(self.singa, private=self._private), graph)
        self._trained = len(trainable_names(graph))
        self._sgd = self.singa.opt.SGD(
            lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
        )

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, array in weights.items():
            self._network.parameters[name].copy_from_numpy(as_stored(np.asarray(array)))
        for momentum in self._sgd.moments.values():
            momentum.set_value(0.0)

    def weights(self) -> Dict[str, np.ndarray]:
        return {name: as_stored(self._read(tensor)) for name, tensor in self._network.parameters.items()}

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        tensor, int32 = self.singa.tensor.Tensor, self.singa.tensor.int32
        held = tensor(data=labels.astype(np.int32), dtype=int32, requires_grad=False)
        return Batch(tensor(data=images, requires_grad=False), held, len(labels))

    def read_batch(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return self._read(batch.images), self._read(batch.labels).astype(np.int64)

    def open_pipeline(self, files: ImageFiles) -> NativePipeline:
        self._pipeline = NativePipeline(files, self.config)
        return self._pipeline

    def epoch(self, pipeline: NativePipeline, number: int) -> Iterator[Batch]:
        return (self.to_device_batch(images, labels) for images, labels in pipeline.epoch(number))

    def train_step(self, batch: Batch) -> Any:
        loss = self._loss(batch)
        updated = 0
        for parameter, gradient in self.singa.autograd.backward(loss):
            self._sgd.apply(parameter.name, parameter, gradient)
            _free(gradient)
            updated += 1
        self._sgd.step()
        self._check(updated)
        return loss.data  # alone: the tensor holds every activation

    def _loss(self, batch: Batch) -> Any:
        logits = self._network(batch.images, training=True)
        return self.singa.autograd.softmax_cross_entropy(logits, batch.labels)

    def _check(self, count: int) -> None:
        """Autograd knows tensors by their addresses, and loses gradients where two have one after the other."""
        if count != self._trained:
            raise RuntimeError(f"SINGA's backward pass gave {count} gradients of {self._trained}")

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        found = {}
        for parameter, gradient in self.singa.autograd.backward(self._loss(batch)):
            found[parameter.name] = as_stored(self._read(gradient))
            _free(gradient)
        self._check(len(found))
        return found

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [float(loss.GetFloatValue(1)[0]) for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        return self._read(self._network(batch.images, training=training))

    def synchronize(self) -> None:
        """A call of SINGA's returns when it has been computed."""

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        from framework_compare.adapters.singa.profile import profile_rows

        return profile_rows(step, folder)

    def release(self) -> None:
        if self._pipeline:
            self._pipeline.close()


def _free(gradient: Any) -> None:
    """A tensor and its creator hold each other; the collector, which sees no size, lets gradients pile up for steps."""
    gradient.creator = None
