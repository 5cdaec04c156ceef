"""Generation in JAX: one program for prompts and one for single tokens, which is given the caches of keys and values."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np

from framework_compare.adapters.common import generation
from framework_compare.adapters.jax.network import Network
from framework_compare.graph.generation import at_positions


class CachedNetwork(Network):
    """A network of steps at given positions; traced with the caches it is given, and with those that it leaves."""

    window: int
    at: Any  # position of the first step
    caches: Dict[str, List[Any]]  # of each attention: keys and values (N, window, heads, features)

    def attend(self, node: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        jax, new = self.jax, (k, v)
        if node.name not in self.caches:  # of a prompt
            rest = [(0, 0), (0, self.window - k.shape[1]), (0, 0), (0, 0)]
            self.caches[node.name] = [jax.numpy.pad(one, rest) for one in new]
            return super().attend(node, q, k, v, bias)
        held = zip(self.caches[node.name], new)
        self.caches[node.name] = [jax.lax.dynamic_update_slice_in_dim(*both, self.at, 1) for both in held]
        seen = {"scale": node.attrs["scale"], "key_value_seq_lengths": jax.numpy.full(len(q), self.at + 1, "int32")}
        return jax.nn.dot_product_attention(q, *self.caches[node.name], **seen)

    def step(self, arrays: Any, caches: Any, tokens: Any, at: Any) -> Tuple[Any, Any, Any]:
        self.caches, self.at = dict(caches), at
        positions = at + self.jax.numpy.arange(tokens.shape[1], dtype="int32")[None]
        logits = self(arrays, (tokens, positions))[0][:, -1]
        return logits.argmax(-1, keepdims=True).astype(tokens.dtype), logits, self.caches


class Generates(generation.Generates):
    jax: Any
    _state: Any
    _loss_seen: Any  # what `synchronize` waits for

    def _prepare(self, prompt: int) -> Tuple[int, generation.Step]:
        jit: Any = self.jax.jit if self.config.execution != "eager" else lambda function, **_: function
        first, later = (jit(self._cached(steps).step, donate_argnums=1) for steps in (prompt, 1))
        arrays, caches = dict[str, Any](), dict[str, Any]()

        def step(tokens: Any, at: int) -> Tuple[Any, Any]:
            nonlocal arrays, caches
            if at == 0:
                arrays, caches = {**self._state.parameters, **self._state.statistics}, {}
            tokens, self._loss_seen, caches = (later if at else first)(arrays, caches, tokens, np.int32(at))
            return tokens, self._loss_seen

        return self._network.program.graph.input_shape[0], step

    def _cached(self, steps: int) -> CachedNetwork:
        own, graph = self._network, self._network.program.graph
        how = {"dtype": own.dtype, "layout": own.layouts[0], "shifts": own.shifts, "flash": own.flash}
        made = CachedNetwork(self.jax, at_positions(graph, steps), **how)
        made.window = graph.input_shape[0]
        return made
