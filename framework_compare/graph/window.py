"""The window that a convolution or a pooling moves over an image: its attributes read in one place.

A node's `kernel`, `stride` and `dilation` are one number, or two for height and width. Its `padding` is one number, two
for height and width, or four for top, bottom, left and right. `dilation` is 1 and `ceil_mode` False where left out.
"""

import dataclasses
from typing import List, Sequence, Tuple, Union

import numpy as np

from framework_compare.json_types import Document

Pair = Tuple[int, int]  # of height and width
Numbers = Union[int, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Window:
    """Height and width of each; `pads` are zeros (top, bottom) and (left, right).

    ceil_mode: the size is rounded up, but a window that would start behind image and first pads is left out, as in
    torch.
    """

    kernel: Pair
    stride: Pair
    pads: Tuple[Pair, Pair]
    dilation: Pair = (1, 1)
    ceil_mode: bool = False

    @classmethod
    def of(cls, attrs: Document) -> "Window":
        return cls(
            pair(attrs["kernel"]),
            pair(attrs["stride"]),
            _pads(attrs["padding"]),
            pair(attrs.get("dilation", 1)),
            bool(attrs.get("ceil_mode", False)),
        )

    @property
    def spans(self) -> Pair:
        """Pixels from a window's first to its last."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel))  # type: ignore[return-value]

    @property
    def is_symmetric(self) -> bool:
        return all(first == last for first, last in self.pads)

    @property
    def is_padded(self) -> bool:
        return any(map(any, self.pads))

    @property
    def keeps_size(self) -> bool:
        """Return whether an image stays as large by as much padding on each side: "same" of TensorFlow and Keras."""
        whole = all(2 * first == span - 1 for (first, _), span in zip(self.pads, self.spans))
        return self.stride == (1, 1) and self.is_symmetric and whole

    def output(self, size: Sequence[int]) -> Pair:
        """Number of windows down and across an image of that height and width; may be below 1 where none fits."""
        return tuple(map(self._count, range(2), size))  # type: ignore[return-value]

    def _count(self, axis: int, pixels: int) -> int:
        (first, last), stride = self.pads[axis], self.stride[axis]
        room = pixels + first + last - self.spans[axis]
        if not self.ceil_mode:
            return room // stride + 1
        count = -(-room // stride) + 1
        return count - 1 if (count - 1) * stride >= pixels + first else count

    def all_pads(self, size: Sequence[int]) -> Tuple[Pair, Pair]:
        """`pads`, with those at the end that the last window of `ceil_mode` needs."""
        (top, bottom), (left, right) = self.pads
        below, behind = (self._overhang(axis, pixels) for axis, pixels in enumerate(size))
        return (top, bottom + below), (left, right + behind)

    def areas(self, size: Sequence[int], *, with_pads: bool) -> np.ndarray:
        """Pixels of each window that a mean divides by, float32: those of `pads` too, or not; of `ceil_mode`'s none."""
        counts = []
        for axis, (pixels, pads) in enumerate(zip(size, self.pads)):
            inside = np.zeros(pixels + sum(self.all_pads(size)[axis]), np.float32)
            inside[0 if with_pads else pads[0] : pads[0] + pixels + (pads[1] if with_pads else 0)] = 1
            starts = self.stride[axis] * np.arange(self._count(axis, pixels))
            counts.append(np.array([inside[start : start + self.kernel[axis]].sum() for start in starts], np.float32))
        return np.outer(*counts)

    def _overhang(self, axis: int, pixels: int) -> int:
        reach = (self._count(axis, pixels) - 1) * self.stride[axis] + self.spans[axis]
        return max(0, reach - pixels - sum(self.pads[axis]))


def same_padding(pixels: int, kernel: int, stride: int, dilation: int) -> Pair:
    """Pixels before and behind an axis so that there are ceil(pixels / stride) windows; an odd one stands behind."""
    total = max(0, (-(-pixels // stride) - 1) * stride + (kernel - 1) * dilation + 1 - pixels)
    return total // 2, total - total // 2


def plain(value: Numbers) -> Union[int, List[int]]:
    """The shortest form of a node's numbers: one where all are the same, two where four are symmetric."""
    if isinstance(value, int):
        return value
    numbers = list(value)
    if len(set(numbers)) == 1:
        return numbers[0]
    if len(numbers) == 4 and numbers[0] == numbers[1] and numbers[2] == numbers[3]:
        return [numbers[0], numbers[2]]
    return numbers


def pair(value: Numbers) -> Pair:
    first, second = (value, value) if isinstance(value, int) else value
    return first, second


def _pads(value: Numbers) -> Tuple[Pair, Pair]:
    if isinstance(value, int) or len(value) == 2:
        height, width = pair(value)
        return (height, height), (width, width)
    top, bottom, left, right = value
    return (top, bottom), (left, right)
