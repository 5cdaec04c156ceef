"""What a worker asks of an adapter, as far as a reader of files has it."""

from __future__ import annotations

from typing import Dict

from framework_compare.protocol import TrainConfig


class OnnxReader:
    """Answers jobs of kind "trace" only; see `tracing`."""

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        return {}
