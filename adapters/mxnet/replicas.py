"""Replicas on the contexts of one process, as gluon has them: arrays are lists, an entry a context."""

from typing import Any, List, Sequence

import numpy as np


def make_trainer(mx: Any, parameters: Any, optimizer: Any) -> Any:
    """gluon's Trainer with a kvstore that sums gradients, and each context updating by itself.

    Where the kvstore updates, its own copy of the weights undoes what is loaded later (1.9.1). It is made here, not at the
    first step, where it would put context 0's running statistics over the others'.
    """
    trainer = mx.gluon.Trainer(parameters, optimizer, kvstore="device", update_on_kvstore=False)
    trainer._init_kvstore()
    trainer._init_params()
    return trainer


def split(array: Any, contexts: Sequence[Any]) -> List[Any]:
    """A batch in order, a part on each context; what does not divide evenly, and is never trained on, stays whole."""
    if len(array) % len(contexts):
        return [array.as_in_context(contexts[0])]
    size = len(array) // len(contexts)
    return [array[n * size : (n + 1) * size].as_in_context(context) for n, context in enumerate(contexts)]


def whole(parts: Sequence[Any]) -> np.ndarray:
    return np.concatenate([part.asnumpy() for part in parts])
