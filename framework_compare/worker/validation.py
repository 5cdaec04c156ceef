"""The quality of a network on the validation split, by our own metrics in numpy; its time is no part of training's."""

from __future__ import annotations

from typing import Dict, Optional

import numpy as np

from framework_compare.batches import quality
from framework_compare.batches.arrays import ArrayPipeline, SplitArrays
from framework_compare.protocol import TrainConfig, Trainer


class Validation:
    """A validation split, asked of a trainer batch by batch in its order."""

    def __init__(self, trainer: Trainer, split: SplitArrays, config: TrainConfig) -> None:
        self._trainer = trainer
        self._split = split
        self._pipeline = ArrayPipeline(self._split, batch_size=config.batch_size, layout=trainer.layout, shuffle=False)

    def measure(self) -> Dict[str, Optional[float]]:
        """Loss and metrics of the task by name; None where one cannot be computed."""
        trainer = self._trainer
        split, batches = self._split, self._pipeline.epoch(1)
        parts = ((trainer.forward(trainer.to_device_batch(inputs, target)), target) for inputs, target in batches)
        if set(split.task.metrics).issubset(quality.OF_TOKENS) and split.task.loss == "token_cross_entropy":
            found = quality.evaluate_parts(split.task, parts)  # the outputs of all are gigabytes
        else:
            outputs = np.concatenate([part for part, _ in parts])
            found = quality.evaluate(split.task, outputs, split.target, extras=split.extras, facts=split.facts)
        return {name: value if np.isfinite(value) else None for name, value in found.items()}
