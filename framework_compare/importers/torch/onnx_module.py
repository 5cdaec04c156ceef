"""An ONNX program as an nn.Module, which is traced as any other: one module for each node, arrays under their names."""

from __future__ import annotations

import operator
import re
from types import ModuleType
from typing import TYPE_CHECKING, Callable, Dict, List, Sequence, Set, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.importers.common.graph_reader import inexpressible
from framework_compare.importers.common.onnx_program import OnnxNode, OnnxProgram
from framework_compare.importers.torch.onnx_layers import LAYERS, PARTS
from framework_compare.importers.torch.onnx_ops import FUNCTIONS, Call
from framework_compare.importers.torch.onnx_patterns import simplified
from framework_compare.json_types import Document, Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

OPERATORS = {**FUNCTIONS, **LAYERS}

NAMES = re.compile(r"[A-Za-z_]\w*(\.\w+)+")  # of arrays that have kept those of a module
UNSIGNED = ("Relu", "Sigmoid", "HardSigmoid", "Softmax")  # never below zero
KEEPS_SIGN = ("MaxPool", "AveragePool", "GlobalAveragePool", "Dropout", "Identity")


def module_of(program: OnnxProgram) -> Module:
    """The module; UsageError that lists every kind of node that no operator is for.

    It has `paths`: where each array of the program is in it.
    """
    import torch

    nodes = simplified(program)
    _check_known(nodes)
    constant = frozenset(program.constants(nodes))
    signless = _signless(nodes)

    class Step(torch.nn.Module):
        """One node."""

        def __init__(self, node: OnnxNode) -> None:
            super().__init__()
            self.node = node
            self.signless = bool(signless.intersection(node.inputs[:1]))

        def forward(self, *values: Tensor) -> Tensor:
            call = Call(torch, self.node.attrs, len(self.node.outputs), self.signless, program.batch, self.training)
            return OPERATORS[self.node.op](call, *values)

    class OnnxModule(torch.nn.Module):
        """All of them, in their order."""

        def __init__(self) -> None:
            super().__init__()
            self.steps: List[Tuple[OnnxNode, str]] = []
            self.paths: Dict[str, str] = {}
            # what depends on the sizes of the inputs alone, from the last run that was no export
            self.shapes: Dict[str, np.ndarray] = {}
            for node in nodes:
                name = _free(self, re.sub(r"\W+", "_", node.name).strip("_") or node.op)
                self.add_module(name, Step(node))
                self.steps.append((node, name))
            for name, place in _places(program, self.steps).items():
                array = torch.from_numpy(np.array(program.arrays[name]))
                array = array if name in program.statistics else torch.nn.Parameter(array)
                self.paths[name] = _keep(torch, self, place, array)

        def forward(self, *given: Tensor) -> Tensor:
            double = any(one.dtype == torch.float64 for one in self.parameters())
            values: Fields = {name: program.arrays[name] for name in program.arrays if name not in self.paths}
            given = tuple(one.permute(0, 2, 3, 1) for one in given) if program.channels_last else given
            values.update(zip(program.inputs, given))
            # computed in float32, as the file has them
            known = torch.compiler.is_exporting() or double
            for node, name in self.steps:
                if known and all(self._is_known(output, double) for output in node.outputs):
                    values.update({output: self.shapes[output] for output in node.outputs})
                    continue
                results = self._run(node, self._modules[name], values)
                if node.outputs[0] in constant:
                    arrays = [_array(torch, result) for result in results]
                    if not double:
                        self.shapes.update(zip(node.outputs, arrays))
                    results = arrays
                values.update(zip(node.outputs, results))
            return values[program.output]

        def _is_known(self, name: str, double: bool) -> bool:
            """Return whether a value is taken from the last run: in double, where shapes may differ, only numbers."""
            return name in self.shapes and not (double and self.shapes[name].dtype.kind != "f")

        def _run(self, node: OnnxNode, step: Callable[..., object], values: Document) -> Sequence[object]:
            own = ((name, self.paths.get(name)) for name in node.inputs)
            given = (operator.attrgetter(path)(self) if path else values[name] if name else None for name, path in own)
            try:
                result = step(*given)
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(f"node {node.name} ({node.op}): {' '.join(str(error).split())[:200]}") from error
            return result if isinstance(result, (list, tuple)) else [result]

    return OnnxModule()


def _keep(torch: ModuleType, module: Module, place: str, array: np.ndarray) -> str:
    """Have an array, which is a Parameter or becomes a buffer, in a module at a place like this one; where it is."""
    *path, leaf = place.split(".")
    for i, part in enumerate(path):
        if part not in module._modules:
            path[i] = part = _free(module, part)
            module.add_module(part, torch.nn.Module())
        module = module._modules[part]
    leaf = _free(module, leaf)
    if isinstance(array, torch.nn.Parameter):
        module.register_parameter(leaf, array)
    else:
        module.register_buffer(leaf, array)
    return ".".join((*path, leaf))


def _check_known(nodes: Sequence[OnnxNode]) -> None:
    unknown: Dict[str, List[str]] = {}
    for node in nodes:
        if node.op not in OPERATORS:
            unknown.setdefault(node.op, []).append(node.name)
    if unknown:
        raise inexpressible(unknown, len({node.op for node in nodes}))


def _signless(nodes: Sequence[OnnxNode]) -> Set[str]:
    """Values that are never below zero."""
    names: Set[str] = set()
    for node in nodes:
        low = node.attrs.get("min", 0) if node.op == "Clip" and len(node.inputs) < 2 else -1
        if node.op in UNSIGNED or low >= 0 or (node.op in KEEPS_SIGN and node.inputs[0] in names):
            names.update(node.outputs)
    return names


def _places(program: OnnxProgram, steps: Sequence[Tuple[OnnxNode, str]]) -> Dict[str, str]:
    """Return the places of a program's arrays in the module: their own names where these are a module's."""
    places: Dict[str, str] = {}
    for node, step in steps:
        for position, name in enumerate(node.inputs):
            if name in program.trained | program.statistics and name not in places:
                part = PARTS.get(node.op, {}).get(position)
                own = f"{step}.{part}" if part else re.sub(r"\W+", "_", name)
                places[name] = name if NAMES.fullmatch(name) else own
    return places


def _free(module: Module, name: str) -> str:
    """A name like this one that a module has not yet."""
    while hasattr(module, name):
        name += "_"
    return name


def _array(torch: ModuleType, value: object) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array
