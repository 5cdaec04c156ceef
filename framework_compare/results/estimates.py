"""The time of a whole epoch, estimated from the part that was measured: the first step, then steady steps."""

from __future__ import annotations

import numpy as np

from framework_compare.records import Epoch


def whole_epoch_s(epoch: Epoch, steps_ns: np.ndarray | None, warm_up: int) -> float:
    """Seconds of the whole epoch of which `epoch` is a sample.

    The first step fills the loader's queue, once per epoch. All others are taken to last as long as those after the
    warm-up, the device waited for at the end; but no less than the input pipeline needs alone, as the sample may have
    been fed from what that had ready. The smaller last batch counts by its images. warm_up: steps after the first one
    that are left out. Without step times all steps are alike.
    """
    size = epoch.images / epoch.steps
    steps = (epoch.whole_images or epoch.images) / size
    if steps_ns is None or len(steps_ns) < 2:
        return steps * max(epoch.seconds / epoch.steps, epoch.pipeline_s or 0.0)
    left_out = 1 + min(warm_up, len(steps_ns) - 2)
    steady_s = (epoch.seconds - steps_ns[:left_out].sum() / 1e9) / (len(steps_ns) - left_out)
    return float(steps_ns[0] / 1e9 + (steps - 1) * max(steady_s, epoch.pipeline_s or 0.0))
