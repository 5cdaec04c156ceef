"""The rounding that a precision makes, done to the oracle: from it come the yardsticks of tf32, bf16 and fp16.

Values stay float32 arrays, here put on the grid of the format. tf32 rounds the operands of every product, forward and
backward, and nothing else. bf16 and fp16 are mixed precision: products take rounded operands, sum in float32 and give
rounded results (gradients of weights too), other layers read and write rounded values and compute in float32;
BatchNorm's parameters and statistics, the loss, the weights and their update stay in float32.
"""

import dataclasses
from typing import Callable

import numpy as np

from framework_compare.graph import Node
from framework_compare.parity.network.oracle.op import Array, Mode, Op, Result, Weights

MANTISSA_BITS = {"fp32": 23, "tf32": 10, "bf16": 7, "fp16": 10}
LOSS_SCALE = 8192.0  # of fp16: gradients are rounded as if multiplied by it
PRODUCTS = (
    *("Conv2d", "Linear", "Conv1d", "LSTM", "GRU", "Attention", "Unembedding"),
    *("MatMul", "Convolve", "ConvTranspose"),
)
RECURRENT = ("LSTM", "GRU")
# Their outputs, or the gradients they hand on, are numbers that were on the grid before.
MOVES = (
    *("Flatten", "Reverse", "Last", "Select", "Split", "Slice", "Maxout"),
    *("ChannelShuffle", "Tokens", "Pad", "Roll", "Windows", "FromWindows"),
    *("Reshape", "Permute", "PadAxes"),
)
SELECTS_FORWARD = ("ReLU", "ReLU6", "MaxPool2d", "Concat", "Take", "Expand", "ReduceMax", "Abs", "Detach", *MOVES)
SELECTS_BACKWARD = ("ReLU", "ReLU6", *MOVES)


def unit(precision: str) -> float:
    """Distance of 1 from the next larger number."""
    return 2.0 ** -MANTISSA_BITS[precision]


def round_off(x: Array, bits: int) -> Array:
    """float32 to the nearest number of so many mantissa bits, ties to even; the exponent's range stays."""
    drop = 23 - bits
    numbers = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = (numbers >> np.uint32(drop)) & np.uint32(1)
    return _cut(numbers + odd + np.uint32((1 << (drop - 1)) - 1), drop)


def cut_off(x: Array, bits: int) -> Array:
    """float32 with the mantissa's other bits dropped, as hardware does that reads only the first ones."""
    return _cut(np.ascontiguousarray(x, np.float32).view(np.uint32), 23 - bits)


def _cut(numbers: Array, drop: int) -> Array:
    return (numbers & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)).view(np.float32)


def to_half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Rounding:
    """Rounding in one run of the oracle at float32; wraps each of its ops.

    draw 0 rounds a layer's output once, with its bias; further ones as frameworks also do: the bias is added to the
    rounded output, and the last bits of tf32's operands are dropped. share: one sample's share in the loss, relative
    to that in the oracle's batch; in a larger batch gradients are smaller, and fp16 has fewer bits for them.
    """

    precision: str
    draw: int = 0
    share: float = 1.0

    def operand(self, x: Array) -> Array:
        if self.precision == "tf32":  # cuBLAS on Ampere rounds; Hopper's wgmma drops the lower 13 bits (PTX ISA)
            return cut_off(x, 10) if self.draw == 2 else round_off(x, 10)
        return self.stored(x)

    def stored(self, x: Array) -> Array:
        """A value between two layers."""
        if self.precision == "tf32":
            return x
        return to_half(x) if self.precision == "fp16" else round_off(x, 7)

    def gradient(self, x: Array) -> Array:
        """A gradient between two layers, or of a product's weights."""
        return self._scaled(self.stored, x)

    def _scaled(self, to_grid: Callable[[Array], Array], x: Array) -> Array:
        """fp16 lacks exponents for gradients, so frameworks multiply the loss."""
        if self.precision != "fp16":
            return to_grid(x)
        scale = np.float32(LOSS_SCALE * self.share)
        with np.errstate(over="ignore"):
            return to_grid(x * scale) / scale

    def __call__(self, op: Op, node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
        """The op's output and backward function, rounded."""
        product = node.op in PRODUCTS
        if product:
            y, exact_backward = self._product(op, node, weights, inputs, mode)
        else:
            y, exact_backward = op(node, weights, inputs, mode)
        if node.op not in SELECTS_FORWARD:
            y = self.stored(y)

        def backward(dy: Array) -> tuple[tuple[Array, ...], dict[str, Array]]:
            found, parameters = exact_backward(self._scaled(self.operand, dy) if product else dy)
            if node.op not in SELECTS_BACKWARD:
                found = tuple(map(self.gradient, found))
            return found, {k: self.gradient(g) for k, g in parameters.items()} if product else parameters

        return y, backward

    def _product(self, op: Op, node: Node, weights: Weights, inputs: tuple[Array, ...], mode: Mode) -> Result:
        """A bias is no operand: in tf32 it stays as it is. The state of a recurrent layer is one at every step."""
        held = {name: (self.stored if name.startswith("bias") else self.operand)(a) for name, a in weights.items()}
        bias = None if node.op in RECURRENT else held.get("bias")
        mode = dataclasses.replace(
            mode, operand=self.operand, operand_gradient=lambda dy: self._scaled(self.operand, dy)
        )
        if self.draw and bias is not None:
            held["bias"] = np.zeros_like(bias)
        y, backward = op(node, held, tuple(map(self.operand, inputs)), mode)
        if self.draw and bias is not None:
            y = self.stored(y) + (bias[:, None, None] if y.ndim == 4 else bias)
        return y, backward


def rounding_of(precision: str, draw: int = 0, share: float = 1.0) -> Rounding | None:
    """Return what a run of the oracle in float32 is given for a precision."""
    return None if precision == "fp32" else Rounding(precision, draw, share)
