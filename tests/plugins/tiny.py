"""A test framework: the linear classifier of tests/plugins/linear.py in numpy, trained for real. No faults."""

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
        if [node.op for node in graph.nodes] != ["GlobalAvgPool", "Linear"]:
            raise ValueError("tiny trains the linear test model only")
        self._linear = graph.nodes[1].name
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

    def open_pipeline(self, files: ImageFiles) -> Any:
        from framework_compare.batches.images import SharedPipeline

        return SharedPipeline.of(files, self.config, workers=0)

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        return (self.to_device_batch(images, labels) for images, labels in pipeline.epoch(number))

    def train_step(self, batch: Batch) -> Any:
        features = batch.images.mean(axis=(2, 3), dtype=np.float64)
        logits = self._logits(features)
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        rows = np.arange(batch.size)
        loss = -np.log(probabilities[rows, batch.labels]).mean()
        probabilities[rows, batch.labels] -= 1
        self._update("weight", probabilities.T @ features / batch.size)
        self._update("bias", probabilities.mean(axis=0))
        return loss

    def _logits(self, features: np.ndarray) -> np.ndarray:
        return features @ self._weights[f"{self._linear}.weight"].T + self._weights[f"{self._linear}.bias"]

    def _update(self, parameter: str, gradient: np.ndarray) -> None:
        name = f"{self._linear}.{parameter}"
        self._momentum[name] = self.config.momentum * self._momentum[name] + gradient
        self._weights[name] -= self.config.learning_rate * self._momentum[name]

    def read_losses(self, losses: List[Any]) -> List[float]:
        return [float(loss) for loss in losses]

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        return self._logits(batch.images.mean(axis=(2, 3), dtype=np.float64)).astype(np.float32)

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
