"""Generation in PyTorch: two networks of one's layers, for a prompt and for a token, whose attention caches keys and values."""

from __future__ import annotations

from typing import Any, Mapping, Tuple

from framework_compare.adapters.common import generation
from framework_compare.adapters.torch.network import LAYERS, attention_class, make_network
from framework_compare.graph.generation import at_positions


class Cache:
    """The position of the next step, and the attention that keeps keys and values of all steps before."""

    def __init__(self, window: int) -> None:
        self.window, self.at = window, 0

    def attention(self, nn: Any, a: Mapping[str, Any]) -> Any:
        cache = self

        class Attention(attention_class(nn, a)):  # type: ignore[misc]
            keys = values = None

            def attend(self, q: Any, k: Any, v: Any, added: Any) -> Any:
                start, end, shape = cache.at, cache.at + q.shape[-2], (*k.shape[:2], cache.window, k.shape[-1])
                if self.keys is None or self.keys.shape != shape:
                    self.keys, self.values = k.new_empty(shape), v.new_empty(shape)
                self.keys[:, :, start:end], self.values[:, :, start:end] = k, v
                self.how["is_causal"] = start == 0  # a later step is one token, and sees all that there is
                return super().attend(q, self.keys[:, :, :end], self.values[:, :, :end], added)

        return Attention()


class Generates(generation.Generates):
    def _prepare(self, prompt: int) -> Tuple[int, generation.Step]:
        torch, cache = self.torch, Cache(self._graph.input_shape[0])
        layers = {**LAYERS, "Attention": cache.attention}
        held = {name: one for name, one in self._network.named_modules() if list(one.parameters(recurse=False))}
        first = make_network(torch, at_positions(self._graph, prompt), layers, held).to(self._device).eval()
        later = make_network(torch, at_positions(self._graph, 1), layers, dict(first.named_modules())).eval()
        places = torch.arange(cache.window, dtype=torch.int32, device=self._device)[None]

        def step(tokens: Any, at: int) -> Tuple[Any, Any]:
            cache.at = at
            with torch.no_grad(), self._autocast():
                logits = (later if at else first)(tokens, places[:, at : at + tokens.shape[1]])[:, -1].float()
                return logits.argmax(-1, keepdim=True).to(tokens.dtype), logits

        return cache.window, step

    _on_host = staticmethod(lambda array: array.cpu().numpy())
