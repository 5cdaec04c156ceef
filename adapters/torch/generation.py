"""Generation in PyTorch: a network for prompts and one for single tokens, with common layers that cache keys and values."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from framework_compare.adapters.common import generation
from framework_compare.adapters.torch.network import LAYERS, attention, make_network
from framework_compare.graph import Graph
from framework_compare.graph.generation import at_positions


class Cache:
    """The position of the next step, and attention that keeps the keys and values of all steps."""

    def __init__(self, window: int) -> None:
        self.window, self.at = window, 0

    def attention(self, torch: Any, a: Mapping[str, Any]) -> Any:
        held: Dict[str, Any] = {}  # (N, heads, window, features) each

        def attend(q: Any, k: Any, v: Any, added: Any, is_causal: bool, **how: Any) -> Any:
            start, end, shape = self.at, self.at + q.shape[-2], (*k.shape[:2], self.window, k.shape[-1])
            if not held or held["k"].shape != shape or held["k"].dtype != k.dtype:
                held.update(k=k.new_empty(shape), v=v.new_empty(shape))
            held["k"][:, :, start:end], held["v"][:, :, start:end] = k, v
            k, v = (held[name][:, :, :end] for name in "kv")
            # a later step is one token, and attends to all that there is
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, added, is_causal=start == 0, **how)

        return attention(torch, a, attend)


class Generates(generation.Generates):
    torch: Any
    _graph: Graph
    _device: Any
    _autocast: Any

    def _prepare(self, prompt: int) -> Tuple[int, generation.Step]:
        torch, cache = self.torch, Cache(self._graph.input_shape[0])
        layers = {**LAYERS, "Attention": cache.attention}
        made = {name: one for name, one in self._network.named_modules() if list(one.parameters(recurse=False))}
        first = make_network(torch, at_positions(self._graph, prompt), layers, made).to(self._device).eval()
        later = make_network(torch, at_positions(self._graph, 1), layers, dict(first.named_modules())).eval()
        places = torch.arange(cache.window, dtype=torch.int32, device=self._device)[None]

        def step(tokens: Any, at: int) -> Tuple[Any, Any]:
            cache.at = at
            with torch.no_grad(), self._autocast():
                logits = (later if at else first)(tokens, places[:, at : at + tokens.shape[1]])[:, -1].float()
                return logits.argmax(-1, keepdim=True).to(tokens.dtype), logits

        return cache.window, step

    _on_host = staticmethod(lambda array: array.cpu().numpy())
