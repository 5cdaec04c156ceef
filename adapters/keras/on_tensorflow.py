"""Keras on TensorFlow."""

from __future__ import annotations

from typing import Any, Dict, List

from framework_compare.adapters.keras.trainer import KerasTrainer, declare, variables_for
from framework_compare.adapters.tensorflow.trainer import TensorFlowTrainer
from framework_compare.protocol import TrainConfig


class KerasTensorFlowTrainer(KerasTrainer, TensorFlowTrainer):
    """keras.io/guides/writing_a_custom_training_loop_in_tensorflow: a tape, the step a tf.function."""

    name, backend, default_execution = "keras-tensorflow", "tensorflow", "tf.function"
    declared = declare(("eager", "graph", "compiled"))

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        return {**TensorFlowTrainer.environment(config), **variables_for("tensorflow")}

    def _make_functions(self) -> None:
        execution, function = self.config.execution, self.tf.function
        if execution == "eager":
            self._take_step, self._infer, self._differentiate = self._step_once, self._evaluate, self._gradients
            return
        self._take_step = function(self._step_once, jit_compile=execution == "compiled" or None)
        self._infer, self._differentiate = function(self._evaluate), function(self._gradients)

    def _evaluate(self, images: Any) -> Any:
        return self._model(images, training=False)

    def _loss_and_gradients(self, images: Any, labels: Any) -> Any:
        with self.tf.GradientTape() as tape:
            loss = self._loss(labels, self._model(images, training=True))
        return loss, tape.gradient(loss, self._model.trainable_weights)

    def _gradients(self, images: Any, labels: Any) -> List[Any]:
        found = self._loss_and_gradients(images, labels)[1]
        return [self.tf.convert_to_tensor(gradient) for gradient in found]  # of an embedding it is sparse

    def _step_once(self, images: Any, labels: Any) -> Any:
        loss, gradients = self._loss_and_gradients(images, labels)
        self._optimizer.apply(gradients, self._model.trainable_weights)
        return loss
