"""Generation in JAX: one program for a prompt, and one for a token, which is given the caches of keys and values."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np

from framework_compare.adapters.common import generation
from framework_compare.adapters.jax.network import Network
from framework_compare.graph.generation import at_positions


class CachedNetwork(Network):
    """A network of steps at given positions; traced with caches, and with those that it leaves."""

    window: int

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
        self.caches: Dict[str, List[Any]] = dict(caches)
        self.at = at
        positions = at + self.jax.numpy.arange(tokens.shape[1], dtype="int32")[None]
        logits = self(arrays, (tokens, positions))[0][:, -1]
        return logits.argmax(-1, keepdims=True).astype(tokens.dtype), logits, self.caches


class Generates(generation.Generates):
    _loss_seen: Any

    def _prepare(self, prompt: int) -> Tuple[int, generation.Step]:
        jit: Any = self.jax.jit if self.config.execution != "eager" else lambda function, **_: function
        net, made, arrays, caches = self._network, [], {}, {}
        graph = net.program.graph
        for steps in (prompt, 1):
            how = {"dtype": net.dtype, "layout": net.layouts[0], "shifts": net.shifts, "flash": net.flash}
            made.append(CachedNetwork(self.jax, at_positions(graph, steps), **how))
            made[-1].window = graph.input_shape[0]
        first, later = (jit(one.step, donate_argnums=1) for one in made)

        def step(tokens: Any, at: int) -> Tuple[Any, Any]:
            nonlocal arrays, caches
            if at == 0:
                arrays, caches = {**self._state.parameters, **self._state.statistics}, {}
            tokens, self._loss_seen, caches = (later if at else first)(arrays, caches, tokens, np.int32(at))
            return tokens, self._loss_seen

        return graph.input_shape[0], step
