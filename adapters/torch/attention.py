"""Attention, free arrays and what else the layers of transformers need beyond torch.nn's own."""

from __future__ import annotations

from typing import Any, Mapping

from framework_compare.graph.attention import relative_index, shift_mask


def attention(nn: Any, a: Mapping[str, Any]) -> Any:
    import torch

    class Attention(nn.Module):  # type: ignore[misc]
        """scaled_dot_product_attention, which picks torch's own fused kernel; products around it are Linear layers."""

        def forward(self, *inputs: Any) -> Any:
            operands, bias = (inputs[:-1], inputs[-1]) if a.get("bias") else (inputs, None)
            if len(operands) == 1:
                q, k, v = operands[0].unflatten(-1, (3, a["heads"], -1)).unbind(-3)
            else:
                q, k, v = (x.unflatten(-1, (a["heads"], -1)) for x in operands)
            q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, self.scores(bias, q), scale=a["scale"])
            return y.transpose(-2, -3).flatten(-2)

        def scores(self, bias: Any, q: Any) -> Any:
            """What is added to the scores, or None."""
            if bias is not None and q.dim() == 6:
                bias = bias[:, None, None]
            if "mask_shift" not in a:
                return bias
            if not hasattr(self, "mask"):  # as large as the map, which is known now
                array = torch.from_numpy(shift_mask(a, *q.shape[1:3]))
                self.register_buffer("mask", array.to(q.device), persistent=False)
            return self.mask if bias is None else bias + self.mask

    return Attention()


def parameter(nn: Any, a: Mapping[str, Any]) -> Any:
    import torch

    class Parameter(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.zeros(a["shape"]))

        def forward(self) -> Any:
            return self.value[None]

    return Parameter()


def relative_bias(nn: Any, a: Mapping[str, Any]) -> Any:
    import torch

    index = torch.from_numpy(relative_index(a["window"])).long()

    class RelativeBias(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            rows = (2 * a["window"][0] - 1) * (2 * a["window"][1] - 1)
            self.weight = nn.Parameter(torch.zeros(rows, a["heads"]))
            self.register_buffer("index", index.flatten(), persistent=False)

        def forward(self) -> Any:
            return self.weight[self.index].view(*index.shape, -1).permute(2, 0, 1)[None]

    return RelativeBias()


def stochastic_depth(nn: Any, a: Mapping[str, Any]) -> Any:
    kept = 1 - a["p"]

    class StochasticDepth(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if not self.training:
                return x
            return x * x.new_empty((len(x), *[1] * (x.dim() - 1))).bernoulli_(kept).div_(kept)

    return StochasticDepth()
