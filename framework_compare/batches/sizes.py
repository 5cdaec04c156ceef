"""How many samples each batch of an epoch has: all alike, or growing. Worker side: standard library."""

import math
from typing import List


def epoch_sizes(samples: int, first: int, growth: float = 1.0, limit: float = math.inf) -> List[int]:
    """Samples of each batch of an epoch in order, the last with the remaining ones.

    A batch is `growth` times as large as the one before, but no larger than `limit`: whole samples of that, as spaCy's
    `compounding` and `minibatch` have it. Each epoch begins with `first` again.
    """
    sizes: List[int] = []
    size, left = float(first), samples
    while left > 0:
        sizes.append(min(int(size), left))
        left -= sizes[-1]
        size = min(size * growth, max(first, limit))
    return sizes


def distinct(sizes: List[int]) -> List[int]:
    """Each size once, the largest first."""
    return sorted(set(sizes), reverse=True)
