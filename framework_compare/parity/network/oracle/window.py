"""Windows that slide over one image, as the columns of a matrix and back."""

from __future__ import annotations

from typing import Iterator, Sequence, Tuple

import numpy as np

from framework_compare.graph.window import Window
from framework_compare.parity.network.oracle.op import Array

ONE_PIXEL = Window((1, 1), (1, 1), ((0, 0), (0, 0)))


def columns(x: Array, window: Window) -> Array:
    """im2col of one image: (C, H, W) to (C, places of the window, Ho * Wo), zeros outside."""
    if window == ONE_PIXEL:
        return x.reshape(len(x), 1, -1)
    padded = np.pad(x, ((0, 0), *window.all_pads(x.shape[1:])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window.spans, axis=(1, 2))
    (down, across), (rows, cols) = window.stride, window.dilation
    windows = windows[:, ::down, ::across, ::rows, ::cols].transpose(0, 3, 4, 1, 2)
    return windows.reshape(len(x), windows.shape[1] * windows.shape[2], -1)


def fold(cols: Array, size: Tuple[int, int], window: Window) -> Array:
    """The adjoint of `columns`: each pixel gets the sum of all windows it was in."""
    channels, (height, width) = len(cols), size
    if window == ONE_PIXEL:
        return cols.reshape(channels, height, width)
    taps = cols.reshape(channels, *window.kernel, *window.output(size))
    (top, bottom), (left, right) = window.all_pads(size)
    out = np.zeros((channels, top + height + bottom, left + width + right), cols.dtype)
    for i, j, place in places(window, size):
        out[place] += taps[:, i, j]
    return out[:, top : top + height, left : left + width]


def places(window: Window, size: Sequence[int]) -> Iterator[Tuple[int, int, Tuple[slice, slice]]]:
    """Of each place (i, j) in the window: the padded image's pixels that it meets, one a window."""
    (rows, across), (down, right) = window.output(size), window.stride
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            first, left = i * window.dilation[0], j * window.dilation[1]
            yield i, j, (..., slice(first, first + down * rows, down), slice(left, left + right * across, right))
