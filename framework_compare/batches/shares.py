"""What one process trains on of an epoch that several replicas share. Worker side."""

from typing import Optional

import numpy as np

from framework_compare.protocol import Replicas


def share_of(order: np.ndarray, batch_size: int, replicas: Optional[Replicas]) -> np.ndarray:
    """This process's part of an order, (n,): of each global batch its rank's `batch_size`, all of it where it is alone.

    batch_size is that of all replicas of the process together.

    Of the last global batch, if it is not full, each replica gets as many images. What does not divide evenly is left
    out: the mean of unequal parts' gradients would be that of no batch.
    """
    if replicas is None:
        return order
    ranks, rank = replicas.processes, replicas.rank or 0
    full = len(order) - len(order) % (ranks * batch_size)
    tail = (len(order) - full) // len(replicas.devices) * len(replicas.devices) // ranks
    batches = order[:full].reshape(-1, ranks, batch_size)[:, rank]
    return np.concatenate([batches.ravel(), order[full + rank * tail : full + (rank + 1) * tail]])


def share_size(count: int, batch_size: int, replicas: Optional[Replicas]) -> int:
    """Return how many of `count` images an epoch of this process has."""
    return len(share_of(np.arange(count), batch_size, replicas))
