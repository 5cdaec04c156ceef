"""Repairs of missing and broken parts of the wheel singa 3.0.0.dev1, made in the process that imports it.

Each repair says what it mends and how that shows; tests/real/test_singa_repairs.py shows each fault and its repair.
C++ functions that the wheel's Python side cannot call are called by their exported names.
"""

import ctypes
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Callable, NamedTuple, Tuple

import numpy as np

from framework_compare.errors import Unsupported

VERSION = "3.0.0.dev1 (2020), repaired at run time"
LABEL = f"SINGA {VERSION}"
PYTHONS = ((3, 8), (3, 12))  # of 3.13 the extension's type SwigPyObject, of 3.6's size, is too short
EXTENSION = "_singa_wrap.cpython-36m-x86_64-linux-gnu.so"
# SHA-256 of all files of the wheel that are loaded, one after the other
LIBRARIES = """
libdnnl-034bb581.so.1 libopenblas-r0-f650aae0.3.3.so libglog-28eec8ed.so.0.0.0 libgfortran-4fc760a1.so.3.0.0
libgomp-7c85b1e2.so.1.0.0 libprotobuf-cb0440da.so.8.0.0 libquadmath-30d679e1.so.0.0.0 libz-d8a329de.so.1.2.7
""".split()
MODULES = ("__init__.py", "singa_wrap.py", "tensor.py", "autograd.py", "opt.py", "device.py", "utils.py")
FILES = (EXTENSION, *MODULES, *(os.path.join("..", "singa.libs", name) for name in LIBRARIES))
DIGEST = "ffc7ac5343592dada5c4bc416d806c2354027d7a76ecd148e1a224e7811fc019"


class Singa(NamedTuple):
    """Modules of SINGA: `core` is the wrapper of its C++ side."""

    core: Any
    tensor: Any
    autograd: Any
    opt: Any
    device: Any


@functools.lru_cache(maxsize=None)
def load() -> Singa:
    """Import the wheel and repair it, once in a process; Unsupported where another SINGA, or another Python, is there."""
    folder = _folder()
    _refuse_others(folder)
    _load_extension(os.path.join(folder, EXTENSION))
    names = ("singa_wrap", "tensor", "autograd", "opt", "device")
    singa = Singa(*(importlib.import_module(f"singa.{name}") for name in names))
    library = ctypes.CDLL(os.path.join(folder, EXTENSION))
    for repair in (copy_arrays, unpack_vectors, divide_in_place, scale_dropout, add_gradients_apart):
        repair(singa, library)
    return singa


def _folder() -> str:
    spec = importlib.util.find_spec("singa")
    if spec is None or spec.origin is None:
        raise Unsupported("singa is not installed in this interpreter; run `framework-compare env create singa`")
    return os.path.dirname(spec.origin)


def _refuse_others(folder: str) -> None:
    """The repairs write what the C++ side of one build expects: another build would compute nonsense, or crash."""
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        here = "{}.{}".format(*sys.version_info)
        raise Unsupported(f"singa's wheel is repaired for Python 3.8 to 3.12; this interpreter is {here}")
    digest = hashlib.sha256()
    try:
        for name in FILES:
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(file.read())
    except OSError as error:
        found = f"lacks {os.path.basename(str(error.filename))}"
    else:
        found = f"has checksum {digest.hexdigest()[:12]}, not {DIGEST[:12]}"
    if digest.hexdigest() != DIGEST:
        raise Unsupported(
            f"the singa in {folder} {found}; only the wheel singa 3.0.0.dev1 for CPython 3.6 of PyPI is repaired:"
            " run `framework-compare env create singa`"
        )


def _load_extension(path: str) -> None:
    """Load the extension under its name; `import` passes it over, as its file is named after CPython 3.6."""
    name = "singa._singa_wrap"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    sys.modules[name] = module


def copy_arrays(singa: Singa, library: Any) -> None:
    """Let tensors take and give numpy arrays: the wheel is built without numpy's typemaps.

    Tensor.CopyFloatDataFromHostPtr(array) raises TypeError, as it wants a SWIG pointer to floats. And the aliases
    np.int and np.float, which singa.tensor asks for, are gone since numpy 1.24.
    """
    tensor = singa.core.Tensor
    for kind, letter, dtype in (("Float", "f", np.float32), ("Int", "i", np.int32)):
        put = _function(library, f"_ZNK5singa6Tensor19CopyDataFromHostPtrI{letter}EEvPKT_mm", "ppnn")
        get = _function(library, f"_ZNK5singa6Tensor8GetValueI{letter}EEvPT_m", "ppn")
        copy_from, value = _of_arrays(put, get, dtype)
        setattr(tensor, f"Copy{kind}DataFromHostPtr", copy_from)
        setattr(tensor, f"Get{kind}Value", value)
    for builtin in (int, float):
        if builtin.__name__ not in vars(np):
            setattr(np, builtin.__name__, builtin)


def _of_arrays(put: Callable[..., None], get: Callable[..., None], dtype: Any) -> Tuple[Any, Any]:
    def copy_from(tensor: Any, array: np.ndarray, offset: int = 0) -> None:
        array = np.ascontiguousarray(array, dtype)
        if array.size + offset > tensor.Size():
            raise ValueError(f"{array.size} numbers from place {offset} do not fit a tensor of {tensor.Size()}")
        put(int(tensor.this), array.ctypes.data, array.size, offset)

    def value(tensor: Any, count: int) -> np.ndarray:
        array = np.empty(min(count, tensor.Size()), dtype)
        get(int(tensor.this), array.ctypes.data, array.size)
        return array

    return copy_from, value


def unpack_vectors(singa: Singa, library: Any) -> None:
    """Let BatchNorm's training functions return three tensors: the wheel has no template for a vector of tensors.

    They return `<Swig Object of type 'std::vector< singa::Tensor > *'>`, which cannot be unpacked. What is in it shares
    its memory with the tensors made here; the vector itself is freed by its own destructor.
    """
    core = singa.core
    assign = _function(library, "_ZN5singa6TensoraSERKS0_", "pp")
    destroy = _function(library, "_ZNSt6vectorIN5singa6TensorESaIS1_EED1Ev", "p")
    delete = _function(ctypes.CDLL("libstdc++.so.6"), "_ZdlPv", "p")

    def unpacked(function: Callable[..., Any]) -> Callable[..., Tuple[Any, ...]]:
        def call(*given: Any) -> Tuple[Any, ...]:
            vector = function(*given)
            address = int(vector)
            begin, end = (ctypes.c_size_t * 2).from_address(address)
            tensors = tuple(core.Tensor() for _ in range(3))
            for number, tensor in enumerate(tensors):
                assign(int(tensor.this), begin + number * ((end - begin) // 3))
            vector.disown()
            destroy(address)
            delete(address)
            return tensors

        return call

    for name in ("CpuBatchNormForwardTraining", "CpuBatchNormBackwardx"):
        setattr(core, name, unpacked(getattr(core, name)))


def divide_in_place(singa: Singa, library: Any) -> None:
    """Let `tensor /= number` work: the wheel names the method as Python 2 did, so that the loss raises TypeError."""
    singa.core.Tensor.__itruediv__ = singa.core.Tensor.__idiv__


def scale_dropout(singa: Singa, library: Any) -> None:
    """Have dropout scale by 1 / (1 - ratio), as its own docstring says: it is written `1 / 1 - ratio`."""
    core, autograd = singa.core, singa.autograd

    def forward(self: Any, x: Any) -> Any:
        if autograd.training:
            self.scale = 1 / (1 - self.ratio)
            self.mask = core.Tensor(list(x.shape()), x.device())
            core.Bernoulli(1 - self.ratio, self.mask)
            x = core.MultFloat(core.__mul__(self.mask, x), self.scale)
        return x

    autograd.Dropout.forward = forward


def add_gradients_apart(singa: Singa, library: Any) -> None:
    """Let `tensor += other` make a new tensor: backward() so adds a second gradient of a value to one that others hold.

    The sum's backward hands one tensor to both inputs. Where both have other readers, the gradient of one is added into
    that of the other, too, or the process ends, as SWIG's `+=` frees what the other name still points at.
    """
    core = singa.core

    def added(self: Any, other: Any) -> Any:
        return core.__add__(self, other) if isinstance(other, core.Tensor) else core.AddFloat(self, other)

    core.Tensor.__iadd__ = added


def _function(library: Any, name: str, takes: str) -> Any:
    """An exported C++ function that returns nothing; `takes` has "p" for a pointer and "n" for a number."""
    function = getattr(library, name)
    function.argtypes = [{"p": ctypes.c_void_p, "n": ctypes.c_size_t}[kind] for kind in takes]
    function.restype = None
    return function
