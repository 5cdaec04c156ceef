"""Operators that SINGA lacks, of its own functions: convolutions in groups, and a product with a number."""

import ctypes
from typing import Any, List, Mapping, Optional

from framework_compare.adapters.singa.repairs import Singa
from framework_compare.errors import Unsupported

# Where a ConvHandle of this wheel has the beginnings of the vectors of its input's and its weights' dimensions
_X_DIMS, _W_DIMS = 224, 272


class Operators:
    """`private`: correct fields of a ConvHandle so that oneDNN computes all groups at once."""

    def __init__(self, singa: Singa, *, private: bool) -> None:
        self._core, self._private, self._scale = singa.core, private, _make_scale(singa)
        self._grouped = (_make_together if private else _make_one_by_one)(singa)

    def scale(self, x: Any, by: float) -> Any:
        return self._scale(by)(x)[0]

    def conv_handle(self, a: Mapping[str, Any], x: Any) -> Any:
        """The handle of a convolution for inputs like x; in groups that of one group, or corrected to hold all."""
        groups, (images, channels, *size) = a["groups"], x.shape
        own = [images, channels // groups, *size]
        outputs = a["out_channels"] if self._private else a["out_channels"] // groups
        pairs = [(a[name], a[name]) for name in ("kernel", "stride", "padding")]
        tensor = self._core.Tensor(own, x.device)
        handle = self._core.ConvHandle(tensor, *pairs, own[1], outputs, a["bias"], 1)
        if groups > 1 and self._private:
            _correct(handle, _X_DIMS, own, [images, channels, *size])
            of_weight = [own[1], *pairs[0]]
            _correct(handle, _W_DIMS, [1, outputs, *of_weight], [groups, outputs // groups, *of_weight])
        return handle

    def grouped_conv2d(self, handle: Any, groups: int, x: Any, weight: Any, bias: Optional[Any]) -> Any:
        return self._grouped(handle, groups)(*([x, weight] if bias is None else [x, weight, bias]))[0]


def _correct(handle: Any, offset: int, before: List[int], after: List[int]) -> None:
    """Overwrite a vector of int64 within a handle, if it holds what it should before."""
    begin, end = (ctypes.c_uint64 * 2).from_address(int(handle.this) + offset)
    if end - begin != 8 * len(before):
        raise Unsupported("SINGA's ConvHandle is not laid out as in the wheel; use internals 'public'")
    numbers = (ctypes.c_int64 * len(before)).from_address(begin)
    if list(numbers) != before:
        raise Unsupported(f"SINGA's ConvHandle holds {list(numbers)}, not {before}; use internals 'public'")
    numbers[:] = after  # type: ignore[assignment]


def _make_scale(singa: Singa) -> Any:
    core = singa.core

    class Scale(singa.autograd.Operator):  # type: ignore[name-defined]
        def __init__(self, by: float) -> None:
            super().__init__()
            self._by = by

        def forward(self, x: Any) -> Any:
            return core.MultFloat(x, self._by)

        def backward(self, dy: Any) -> Any:
            return core.MultFloat(dy, self._by)

    return Scale


def _make_together(singa: Singa) -> Any:
    class Together(singa.autograd._Conv2d):  # type: ignore[name-defined]
        """SINGA's convolution on images seen as many of one group's channels, which its checks want to see."""

        def __init__(self, handle: Any, groups: int) -> None:
            super().__init__(handle)
            self._groups = groups

        def forward(self, x: Any, *arrays: Any) -> Any:
            images, channels, *size = self._shape = list(x.shape())
            seen = [images * self._groups, channels // self._groups, *size]
            return super().forward(singa.core.Reshape(x, seen), *arrays)

        def backward(self, dy: Any) -> Any:
            dx, *rest = super().backward(dy)
            return (singa.core.Reshape(dx, self._shape), *rest)

    return Together


def _make_one_by_one(singa: Singa) -> Any:
    core, autograd = singa.core, singa.autograd

    def join(whole: Any, part: Any, number: int, axis: int) -> None:
        """Copy a part of equal ones into its place along an axis."""
        rows = 1 if axis == 0 else whole.shape()[0]
        size, row = part.Size() // rows, whole.Size() // rows
        for image in range(rows):
            core.CopyDataToFrom(whole, part, size, image * row + number * size, image * size)

    class OneByOne(autograd.Operator):  # type: ignore[name-defined]
        """A convolution for each group, on slices of input and weights; results are copied side by side."""

        def __init__(self, handle: Any, groups: int) -> None:
            super().__init__()
            self._handle, self._groups = handle, groups

        def forward(self, x: Any, weight: Any, bias: Optional[Any] = None) -> Any:
            handle, groups, y = self._handle, self._groups, None
            self._given = (x, weight, bias)
            self._parts: List[Any] = []
            for number in range(groups):
                parts = self._part(x, number, 1), self._part(weight, number, 0), self._bias(bias, number, x)
                one = core.CpuConvForward(*parts, handle)
                if y is None:
                    images, channels, *size = one.shape()
                    y = core.Tensor([images, channels * groups, *size], x.device())
                join(y, one, number, 1)
                if autograd.training:
                    self._parts.append(parts)
            return y

        def _part(self, whole: Any, number: int, axis: int) -> Any:
            size = whole.shape()[axis] // self._groups
            return core.SliceOn(whole, number * size, (number + 1) * size, axis)

        def _bias(self, bias: Optional[Any], number: int, x: Any) -> Any:
            if bias is not None:
                return self._part(bias, number, 0)
            zeros = core.Tensor([self._handle.num_filters], x.device())
            zeros.SetFloatValue(0.0)
            return zeros

        def backward(self, dy: Any) -> Any:
            handle = self._handle
            whole = [None if given is None else core.Tensor(list(given.shape()), dy.device()) for given in self._given]
            for number, (x, weight, bias) in enumerate(self._parts):
                part = self._part(dy, number, 1)
                join(whole[0], core.CpuConvBackwardx(part, weight, x, handle), number, 1)
                join(whole[1], core.CpuConvBackwardW(part, x, weight, handle), number, 0)
                if whole[2] is not None:
                    join(whole[2], core.CpuConvBackwardb(part, bias, handle), number, 0)
            return tuple(array for array in whole if array is not None)

    return OneByOne
