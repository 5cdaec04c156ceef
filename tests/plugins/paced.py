# What stands above is the source of tests/plugins/tiny.py: a worker has no other way to it. Steps of a known length.
import os  # noqa: E402, F401 - for what a test puts below
import threading  # noqa: E402, F401
import time  # noqa: E402


class PacedTrainer(TinyTrainer):  # noqa: F821
    """Each step takes PACE_S by the clock, SLOW times that for the first SLOW_STEPS, and GROWTH more each step."""

    pace_s, slow, slow_steps, growth = 0.004, 1.0, 0, 0.0

    def __init__(self, config):
        super().__init__(config)
        self.steps = 0

    def train_step(self, batch):
        length_s = self.pace_s * (1 + self.growth * self.steps)
        end = time.perf_counter() + length_s * (self.slow if self.steps < self.slow_steps else 1)
        self.steps += 1
        self.on_step()
        loss = super().train_step(batch)
        time.sleep(max(end - time.perf_counter(), 0))
        return loss

    def on_step(self):
        """Called in each step."""


class Paced(PacedTrainer):
    """The fields and methods that a test gives stand below."""
