"""Generation in Paddle: a network for prompts and one for single tokens, with common layers that cache keys and values."""

from typing import Any, Dict, Mapping, Tuple

from framework_compare.adapters.common import generation
from framework_compare.adapters.paddle import network
from framework_compare.graph.generation import at_positions


class Cache:
    """The position of the next step, and attention that keeps the keys and values of all steps."""

    def __init__(self, paddle: Any) -> None:
        self.paddle, self.at = paddle, 0

    def attention(self, nn: Any, a: Mapping[str, Any]) -> Any:
        held: Dict[str, Any] = {}  # (N, steps, heads, features) each

        def attend(q: Any, k: Any, v: Any, is_causal: bool, **how: Any) -> Any:
            new = {"k": k, "v": v}
            if self.at:
                new = {name: self.paddle.concat([held[name], one], axis=1) for name, one in new.items()}
            held.update(new)
            # a later step is one token, and attends to all that there is
            return nn.functional.scaled_dot_product_attention(q, held["k"], held["v"], is_causal=not self.at, **how)

        return network.attention(nn, a, attend)


class Generates(generation.Generates):
    paddle: Any
    _auto_cast: Any
    _built: Any  # the graph, and its layers by the names of their arrays

    def _prepare(self, prompt: int) -> Tuple[int, generation.Step]:
        paddle, cache, (graph, layers) = self.paddle, Cache(self.paddle), self._built
        window = graph.input_shape[0]
        layers = {name: layer for name, layer in layers.items() if layer.parameters()}
        kinds, made = {**network.LAYERS, "Attention": cache.attention}, []
        for steps in (prompt, 1):
            program = network.make_program(at_positions(graph, steps))
            layers = network.make_layers(paddle, program, kinds, layers)
            made.append(network.make_network(paddle, program, layers))
            made[-1].eval()
        places = paddle.arange(window, dtype="int32").unsqueeze(0)

        def step(tokens: Any, at: int) -> Tuple[Any, Any]:
            cache.at = at
            with paddle.no_grad(), self._auto_cast():
                y = made[at > 0](tokens, places[:, at : at + tokens.shape[1]])[:, -1].astype("float32")
                return y.argmax(-1, keepdim=True).astype(tokens.dtype), y

        return window, step

    _on_host = staticmethod(lambda array: array.numpy())
