"""Keras on every back end: the model, its weights, loss and optimiser, `train_on_batch`."""

import os
import sys
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from framework_compare.adapters.common.trainer import NATIVE_OPTIMIZERS, TrainerDefaults, is_native
from framework_compare.adapters.keras.network import OPS, Network
from framework_compare.adapters.keras.tasks import LOSSES, OPTIMIZERS, make_optimizer, optimizer_name
from framework_compare.graph import Graph, trainable_names
from framework_compare.graph.optimizer import DECAYED
from framework_compare.protocol import Batch, Declared, Replicas, TrainConfig


def declare(executions: Tuple[str, ...]) -> Declared:
    return Declared(
        ops=OPS,
        losses=frozenset(LOSSES),
        optimizers=frozenset(OPTIMIZERS) | NATIVE_OPTIMIZERS,
        executions={"cpu": frozenset({"default", "fit", *executions})},
        precisions={"cpu": frozenset({"fp32"})},
        updates=frozenset({"clip_norm", "schedule"}),
        why={
            "cuda": "no environment for Keras on a GPU is pinned",
            "accumulation": "Keras' schedules count batches, not updates",
        },
    )


def step_of(model: Any) -> Callable[[Any, Any], Any]:
    """`train_on_batch` with the loss of the batch. Up to Keras 3.14 it returns the mean over all batches since a reset."""
    on_batch: Callable[[Any, Any], Any] = model.train_on_batch
    if "reset_metrics" in model.train_on_batch.__code__.co_names:
        return on_batch

    def step(images: Any, labels: Any) -> Any:
        model.reset_metrics()
        return on_batch(images, labels)

    return step


class KerasTrainer:
    """Mixed into the plain trainer of a back end, which has the rest: threads, batches, pipelines, profiles.

    A subclass says how it computes, in methods or in what its `_make_functions` compiles.
    """

    _take_step: Callable[[Any, Any], Any]  # trains on images and labels; the loss, unread
    _differentiate: Callable[[Any, Any], Any]  # the loss, and gradients in the order of the model's trainable variables
    _outputs_of: Callable[[Any], Any]  # in evaluation, on the device

    _on_batch: Any = None  # in execution `fit`, as _take_step
    config: TrainConfig
    backend = default_execution = ""
    read_losses = TrainerDefaults.read_losses

    @classmethod
    def environment(cls, config: TrainConfig) -> Dict[str, str]:
        # a folder that cannot exist, as a keras.json in it could change defaults
        own = {"KERAS_BACKEND": cls.backend, "KERAS_HOME": os.path.join(os.devnull, "keras")}
        return {**super().environment(config), **own}  # type: ignore[misc]

    def __init__(self, config: TrainConfig, replicas: Optional[Replicas] = None) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        import keras

        self.keras = keras
        self.layout = "NHWC"
        keras.utils.set_random_seed(config.seed & 0xFFFFFFFF)

    def version(self) -> str:
        return str(self.keras.__version__)

    def settings(self) -> Dict[str, Any]:
        how = {"default": self.default_execution, "fit": "train_on_batch of a compiled model"}
        return {
            "execution": how.get(self.config.execution, self.config.execution),
            "backend": f"{self.backend} {sys.modules[self.backend].__version__}",
            "layout": self.layout,
            "optimizer": optimizer_name(self.config),
            "threads": self.config.threads,
        }

    def build(self, graph: Graph) -> None:
        keras = self.keras
        self._graphed = Network(keras, graph)
        self._model, self._by_name = self._graphed.model, self._graphed.arrays
        self._objective = LOSSES[graph.task.named_loss](keras, **graph.task.loss_options)
        self._optimizer = make_optimizer(keras, self.config)
        if self.config.optimizer == "adamw" and not is_native(self.config):
            axes = {parameter.name: len(parameter.shape) for parameter in graph.parameters()}
            kept = [array.variable for name, array in self._by_name.items() if axes[name] < DECAYED]
            self._optimizer.exclude_from_weight_decay(var_list=kept)
        self._updated = list(self._model.trainable_variables)  # a model looks for them in its layers each time
        self._optimizer.build(self._updated)
        # slots are zeros; what else an optimiser starts from is one number a variable
        self._scalars = {id(v): keras.ops.convert_to_numpy(v) for v in self._optimizer.variables if len(v.shape) == 0}
        trained = set(trainable_names(graph))
        self._trained = {name: array for name, array in self._by_name.items() if name in trained}
        if self.config.execution == "fit":
            self._model.compile(optimizer=self._optimizer, loss=self._objective)
            self._on_batch = step_of(self._model)
        self._make_functions()

    def _make_functions(self) -> None:
        """Compile what the execution asks for; nothing in PyTorch."""

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        ops = self.keras.ops
        for name, array in weights.items():
            place = self._by_name[name]
            native = place.to_native(array)
            if place.row is not None:  # of several arrays in one variable
                whole = np.array(ops.convert_to_numpy(place.variable))
                whole[place.row] = native
                native = whole
            place.variable.assign(native)
        for variable in self._optimizer.variables:
            first = self._scalars.get(id(variable))
            variable.assign(ops.zeros(variable.shape, variable.dtype) if first is None else first)

    def weights(self) -> Dict[str, np.ndarray]:
        values = self._values()
        return {name: array.from_native(values[id(array.variable)]) for name, array in self._by_name.items()}

    def _values(self) -> Dict[int, np.ndarray]:
        """The model's variables as arrays, by identity."""
        return {id(v): self.keras.ops.convert_to_numpy(v) for v in self._model.variables}

    def train_step(self, batch: Batch) -> Any:
        if self.config.execution == "fit":
            return self._on_batch(batch.images, batch.labels)
        return self._take_step(batch.images, batch.labels)

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        numpy_of = self.keras.ops.convert_to_numpy
        found = zip(self._updated, self._differentiate(batch.images, batch.labels)[1])
        by_variable = {id(variable): numpy_of(gradient) for variable, gradient in found}
        return {name: array.from_native(by_variable[id(array.variable)]) for name, array in self._trained.items()}

    def infer(self, batch: Batch) -> Any:
        if self.config.execution == "fit" and self.config.mode == "inference":
            return self._model.predict_on_batch(batch.images)
        return self._outputs_of(batch.images)

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        outputs = self._model(batch.images, training=True) if training else self.infer(batch)
        return np.array(self.keras.ops.convert_to_numpy(outputs))

    def release(self) -> None:
        super().release()  # type: ignore[misc]
        self._graphed = self._model = self._by_name = self._trained = self._updated = self._optimizer = None  # type: ignore[assignment]
        self._on_batch = None
