"""Generation in TensorFlow: a function of prompts and one of single tokens, which are given keys and values and return them."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from framework_compare.adapters.common import generation
from framework_compare.adapters.tensorflow.network import Network
from framework_compare.graph import Node
from framework_compare.graph.generation import at_positions


class CachedNetwork(Network):
    """A network of steps at given positions over another one's variables."""

    caches: Dict[str, Any]  # of each attention: keys and values (N, heads, steps, features)

    def keys_and_values(self, node: Node, *new: Any) -> Any:
        if node.name in self.caches:
            new = tuple(self.tf.concat(both, 2) for both in zip(self.caches[node.name], new))
        self.caches[node.name] = new
        return new

    def step(self, caches: Dict[str, Any], tokens: Any, positions: Any) -> Tuple[Any, Any, Dict[str, Any]]:
        self.caches = dict(caches)
        logits = self((tokens, positions), training=False)[:, -1]
        return self.tf.argmax(logits, -1, output_type=tokens.dtype)[:, None], logits, self.caches


class Generates(generation.Generates):
    tf: Any

    def _prepare(self, prompt: int) -> Tuple[int, generation.Step]:
        tf, eager = self.tf, self.config.execution == "eager"
        steps = map(self._step_of, (prompt, 1))
        first, later = steps if eager else (tf.function(one, reduce_retracing=True) for one in steps)
        window = self._network.program.graph.input_shape[0]
        places, caches = tf.range(window)[None], dict[str, Any]()

        def step(tokens: Any, at: int) -> Tuple[Any, Any]:
            nonlocal caches
            places_here, held = places[:, at : at + tokens.shape[1]], caches if at else {}
            tokens, logits, caches = (later if at else first)(held, tokens, places_here)
            return tokens, logits

        return window, step

    def _step_of(self, steps: int) -> Any:
        own = self._network
        made = CachedNetwork(self.tf, at_positions(own.program.graph, steps), own.dtype)
        made.variables = own.variables
        return made.step
