"""Keras on TensorFlow."""

from typing import Any

from framework_compare.adapters.keras.trainer import KerasTrainer, declare
from framework_compare.adapters.tensorflow.trainer import TensorFlowTrainer
from framework_compare.errors import Unsupported


class KerasTensorFlowTrainer(KerasTrainer, TensorFlowTrainer):
    """keras.io/guides/writing_a_custom_training_loop_in_tensorflow: a tape, the step a tf.function."""

    name, backend, default_execution = "keras-tensorflow", "tensorflow", "tf.function"
    declared = declare(("eager", "graph", "compiled"))

    def _make_functions(self) -> None:
        config, execution = self.config, self.config.execution
        ops = {node.op for node in self._graphed.graph.nodes}
        if execution == "fit" and config.clip_norm and "Embedding" in ops:
            raise Unsupported(
                "clip_norm: Keras' fit takes the norm of an embedding's gradient token by token; use default"
            )
        function: Any = (lambda function, **_: function) if execution == "eager" else self.tf.function
        self._take_step = function(self._step_once, jit_compile=execution == "compiled" or None)
        self._outputs_of, self._differentiate = function(self._outputs), function(self._value_and_gradients)

    def _outputs(self, images: Any) -> Any:
        return self._model(images, training=False)

    def _value_and_gradients(self, images: Any, labels: Any) -> Any:
        with self.tf.GradientTape() as tape:
            loss = self._objective(labels, self._model(images, training=True))
        # dense, an embedding's too: of a sparse one Keras would clip by the norm of each token's part
        found = tape.gradient(loss, self._updated)
        return loss, [self.tf.convert_to_tensor(gradient) for gradient in found]

    def _step_once(self, images: Any, labels: Any) -> Any:
        loss, gradients = self._value_and_gradients(images, labels)
        self._optimizer.apply(gradients, self._updated)
        return loss
