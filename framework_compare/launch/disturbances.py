"""CPU time of other programs while a run was measured: marks on its epochs, and warnings."""

from __future__ import annotations

import dataclasses
import os
from typing import Callable, Sequence

from framework_compare.protocol import Fields
from framework_compare.records import Epoch
from framework_compare.samplers.disturbance import Shares, mean_share

THRESHOLD = 0.1  # of one core
# Of each core that a run may use: what else a large host does in passing is no disturbance.
THRESHOLD_PER_CORE = 0.05
# Pages of a library that nobody used for long come back now and then.
LEAST_SWAP_BYTES = 1 << 20
Span = tuple[int, int]


def threshold(cores: int | None = None) -> float:
    """Return what others may take, in cores: on a machine of so many, None for those that this process may use."""
    return max(THRESHOLD, THRESHOLD_PER_CORE * (cores or len(os.sched_getaffinity(0))))


def marked(
    epochs: Sequence[Epoch], shares: Callable[[Span, Span], Shares | None], threshold: float
) -> tuple[Epoch, ...]:
    """The epochs with what each lost, marked where others took more of a core than the threshold."""
    if not epochs:
        return ()
    within = (epochs[0].start_ns, epochs[-1].end_ns)
    return tuple(_marked(epoch, shares((epoch.start_ns, epoch.end_ns), within), threshold) for epoch in epochs)


def _marked(epoch: Epoch, lost: Shares | None, threshold: float) -> Epoch:
    if lost is None:
        return epoch
    return dataclasses.replace(
        epoch,
        disturbed_share=lost.disturbed,
        steal_share=lost.stolen,
        parent_share=lost.parent,
        swap_in_bytes=lost.swap_in_bytes,
        cpu_throttles=lost.throttles,
        disturbed=int(lost.disturbed > threshold),
    )


def summary(epochs: Sequence[Epoch]) -> Fields:
    """The fields of a Run that tell of its marked epochs; {} where nobody knows of any."""
    if all(epoch.disturbed is None for epoch in epochs):
        return {}
    found = [epoch for epoch in epochs if epoch.disturbed]
    return {
        "disturbed_epochs": len(found),
        "disturbed_s": sum(epoch.seconds for epoch in found),
        "disturbed_share": _mean("disturbed_share", found),
    }


def warnings(epochs: Sequence[Epoch]) -> list[str]:
    """A sentence for each kind of disturbance that was seen."""
    return [text for text in (_others(epochs), _swapped(epochs), _throttled(epochs)) if text]


def _others(epochs: Sequence[Epoch]) -> str:
    found = [epoch for epoch in epochs if epoch.disturbed]
    if not found:
        return ""
    share, stolen = _mean("disturbed_share", found) or 0.0, _mean("steal_share", found) or 0.0
    hypervisor = f" ({100 * stolen:.0f} % by the hypervisor for other machines)" if stolen > THRESHOLD / 2 else ""
    seconds, whole = (sum(epoch.seconds for epoch in some) for some in (found, epochs))
    return (
        f"other programs took {100 * share:.0f} % of a core{hypervisor} during {len(found)} of {len(epochs)} epochs,"
        f" {seconds:.1f} s of {whole:.1f} s"
    )


def _swapped(epochs: Sequence[Epoch]) -> str:
    swapped = sum(epoch.swap_in_bytes or 0 for epoch in epochs)
    return f"{swapped / 2**20:.0f} MiB were swapped in during the epochs" if swapped > LEAST_SWAP_BYTES else ""


def _throttled(epochs: Sequence[Epoch]) -> str:
    throttles = sum(epoch.cpu_throttles or 0 for epoch in epochs)
    return f"the CPU throttled {throttles} times during the epochs because of heat" if throttles else ""


def _mean(name: str, epochs: Sequence[Epoch]) -> float | None:
    known = [(getattr(epoch, name), epoch.seconds) for epoch in epochs]
    return mean_share([(share, seconds) for share, seconds in known if share is not None])
