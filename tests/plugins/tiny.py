"""A test framework in numpy without faults: means of an image's channels, then linear layers, as in tests/plugins/linear.py."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.graph import Graph, trainable_names
from framework_compare.protocol import EXECUTIONS, Batch, Declared, DeviceTimes, ImageFiles, ProfileRow, TrainConfig


class TinyTrainer:
    name = "tiny"
    layout = "NCHW"
    declared = Declared(
        ops=frozenset({"GlobalAvgPool", "Linear"}),
        losses=frozenset({"cross_entropy"}),
        optimizers=frozenset({"sgd"}),
        executions={"cpu": frozenset(EXECUTIONS)},
        precisions={"cpu": frozenset({"fp32"})},
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        return {"TINY_THREADS": str(config.threads)}

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        print("tiny: a banner on stdout that is no event")

    def version(self) -> str:
        return "1.0"

    def unsupported(self) -> Optional[str]:
        return None

    def settings(self) -> Dict[str, Any]:
        return {"execution": "eager"}

    def build(self, graph: Graph) -> None:
        pool, *layers = graph.nodes
        if pool.op != "GlobalAvgPool" or not layers or any(node.op != "Linear" for node in layers):
            raise ValueError("tiny trains GlobalAvgPool and then Linear layers only")
        self._layers = [node.name for node in layers]
        self._trainable = trainable_names(graph)

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self._momentum = {name: np.zeros_like(array) for name, array in self._weights.items()}

    def weights(self) -> Dict[str, np.ndarray]:
        return {name: array.astype(np.float32) for name, array in self._weights.items()}

    def host_array(self, shape: Tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, dtype=np.float32)

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return Batch(images, labels, len(labels))

    def read_batch(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return batch.images, batch.labels

    def open_pipeline(self, files: ImageFiles) -> Any:
        from framework_compare.batches.images import SharedPipeline

        return SharedPipeline.of(files, self.config, workers=0)

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        return (self.to_device_batch(images, labels) for images, labels in pipeline.epoch(number))

    def train_step(self, batch: Batch) -> Any:
        loss, gradients = self._loss_and_gradients(batch)
        for name, gradient in gradients.items():
            decayed = gradient + self.config.weight_decay * self._weights[name]
            self._momentum[name] = self.config.momentum * self._momentum[name] + decayed
            self._weights[name] -= self.config.learning_rate * self._momentum[name]
        return loss

    def gradients(self, batch: Batch) -> Dict[str, np.ndarray]:
        return {name: array.astype(np.float32) for name, array in self._loss_and_gradients(batch)[1].items()}

    def _values(self, images: np.ndarray) -> List[np.ndarray]:
        """Return the inputs of each layer, and the logits."""
        values = [images.mean(axis=(2, 3), dtype=np.float64)]
        for name in self._layers:
            values.append(values[-1] @ self._weights[f"{name}.weight"].T + self._weights.get(f"{name}.bias", 0))
        return values

    def _loss_and_gradients(self, batch: Batch) -> Tuple[float, Dict[str, np.ndarray]]:
        *read, logits = self._values(batch.images)
        gradient = np.exp(logits - logits.max(axis=1, keepdims=True))
        gradient /= gradient.sum(axis=1, keepdims=True)
        rows = np.arange(batch.size)
        loss = -np.log(gradient[rows, batch.labels]).mean()
        gradient[rows, batch.labels] -= 1
        gradient /= batch.size
        found = {}
        for name, value in zip(reversed(self._layers), reversed(read)):
            found.update({f"{name}.weight": gradient.T @ value, f"{name}.bias": gradient.sum(axis=0)})
            gradient = gradient @ self._weights[f"{name}.weight"]
        return loss, {name: found[name] for name in self._trainable}

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [float(loss) for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        return self._values(batch.images)[-1].astype(np.float32)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def device_times(self) -> Optional[DeviceTimes]:
        return None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        steps, train = [], self.train_step
        self.train_step = lambda batch: (steps.append(batch), train(batch))[1]  # type: ignore[method-assign]
        step()
        with open(f"{folder}/trace.json", "w", encoding="ascii") as file:
            file.write('{"traceEvents": []}')
        parts = {"logits": 3_000_000, "update": 990_000, "rest": 10_000}
        return [ProfileRow("operator", name, len(steps), took) for name, took in parts.items()]

    def release(self) -> None:
        """Nothing is held."""
