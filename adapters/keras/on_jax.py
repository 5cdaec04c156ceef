"""Keras on JAX."""

from typing import Any, Dict, Mapping

import numpy as np

from framework_compare.adapters.jax.trainer import JaxTrainer
from framework_compare.adapters.keras.trainer import KerasTrainer, declare
from framework_compare.graph import Graph
from framework_compare.protocol import Batch


class KerasJaxTrainer(KerasTrainer, JaxTrainer):
    """keras.io/guides/writing_a_custom_training_loop_in_jax: stateless calls in jax.jit, the state donated."""

    name, backend, default_execution = "keras-jax", "jax", "jit"
    declared = declare(("eager", "graph", "compiled"))

    def build(self, graph: Graph) -> None:
        self._target_type = np.int32 if graph.task.target.dtype.startswith("int") else np.float32
        self._leaves: Any = None  # the state, lists: trained variables, the others, those of the optimiser
        super().build(graph)
        self._take_state()

    def _make_functions(self) -> None:
        jit: Any = (lambda function, **_: function) if self.config.execution == "eager" else self.jax.jit
        self._stepped = jit(self._step_of_state, donate_argnums=0)
        self._outputs = jit(lambda state, images: self._model.stateless_call(*state[:2], images, training=False)[0])
        self._training = jit(lambda state, images: self._model.stateless_call(*state[:2], images, training=True))
        differentiate = jit(self._value_and_gradients)
        self._differentiate = lambda images, labels: differentiate(self._held(), images, labels)

    def _value_and_gradients(self, state: Any, images: Any, labels: Any) -> Any:
        def compute(trained: Any, others: Any) -> Any:
            outputs, others = self._model.stateless_call(trained, others, images, training=True)
            return self._objective(labels, outputs), others

        return self.jax.value_and_grad(compute, has_aux=True)(*state[:2])

    def _step_of_state(self, state: Any, images: Any, labels: Any) -> Any:
        (loss, others), gradients = self._value_and_gradients(state, images, labels)
        trained, slots = self._optimizer.stateless_apply(state[2], gradients, state[0])
        return (trained, others, slots), loss

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        super().load_weights(weights)
        self._take_state()

    @property
    def _variables(self) -> Any:
        return self._model.trainable_variables, self._model.non_trainable_variables, self._optimizer.variables

    def _take_state(self) -> None:
        """Copies of all variables: a step takes the memory of its state. Placed as its results are, else it is compiled twice."""
        placed = self.jax.device_put(tuple([v.value for v in variables] for variables in self._variables), self._device)
        if self.config.execution == "fit":  # which keeps the variables themselves
            for variables, arrays in zip(self._variables, placed):
                for variable, array in zip(variables, arrays):
                    variable.assign(array)
        else:
            self._leaves = self.jax.tree.map(self.jax.numpy.array, placed)

    def _held(self) -> Any:
        if self.config.execution == "fit":
            return tuple([v.value for v in variables] for variables in self._variables)
        return self._leaves

    def _values(self) -> Dict[int, np.ndarray]:
        pairs = zip(self._variables[:2], self._held()[:2])
        return {id(v): np.asarray(array) for variables, held in pairs for v, array in zip(variables, held)}

    def _take_step(self, images: Any, labels: Any) -> Any:
        self._leaves, self._loss_seen = self._stepped(self._leaves, images, labels)
        return self._loss_seen

    def _outputs_of(self, images: Any) -> Any:
        self._loss_seen = self._outputs(self._held(), images)
        return self._loss_seen

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        if not training:
            return np.asarray(self.infer(batch))
        outputs, others = self._training(self._held(), batch.images)
        for variable, value in zip(self._model.non_trainable_variables, others):  # the seeds of dropout among them
            variable.assign(value)
        if self._leaves is not None:
            self._leaves = (self._leaves[0], others, self._leaves[2])
        return np.asarray(outputs)
