"""Keras on PyTorch."""

from typing import Any, Dict, Iterator, Optional

from framework_compare.adapters.keras.trainer import KerasTrainer, declare
from framework_compare.adapters.torch.trainer import TorchTrainer
from framework_compare.protocol import Batch, TrainConfig


class KerasTorchTrainer(KerasTrainer, TorchTrainer):
    """keras.io/guides/writing_a_custom_training_loop_in_torch: backward, and the optimiser of Keras under no_grad."""

    name, backend, default_execution = "keras-torch", "torch", "eager"
    declared = declare(("eager",))

    @classmethod
    def environment(cls, config: TrainConfig) -> Dict[str, str]:
        return {**super().environment(config), "KERAS_TORCH_DEVICE": "cpu"}

    def __init__(self, config: TrainConfig, replicas: Optional[Any] = None) -> None:
        super().__init__(config)
        self._channels_last = False  # batches are (N, H, W, C) as they are

    def settings(self) -> Dict[str, Any]:
        allocator = "keeps freed memory" if self._keeps_memory else "system default"
        return {**super().settings(), "allocator": allocator}

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        for images, labels in pipeline:
            yield Batch(images.permute(0, 2, 3, 1).contiguous(), labels, len(labels))

    def _take_step(self, images: Any, labels: Any) -> Any:
        loss, gradients = self._differentiate(images, labels)
        with self.torch.no_grad():
            self._optimizer.apply(gradients, self._updated)
        return loss.detach()

    def _differentiate(self, images: Any, labels: Any) -> Any:
        loss = self._objective(labels, self._model(images, training=True))
        self._model.zero_grad()
        loss.backward()
        return loss, [variable.value.grad for variable in self._updated]

    def _outputs_of(self, images: Any) -> Any:
        with self.torch.no_grad():
            return self._model(images, training=False)
