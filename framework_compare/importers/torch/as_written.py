"""A user's module as its author wrote it, in our steps: what the model that we rebuild from it is measured against.

Optimizer, loss, precision, memory format and pipeline are those of any other cell; the module alone is the user's own.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from types import ModuleType
from typing import TYPE_CHECKING, Mapping

import numpy as np

from framework_compare.adapters.torch.trainer import TorchTrainer
from framework_compare.errors import Unsupported
from framework_compare.graph import Graph, Task, trainable_names
from framework_compare.graph.imported_model import head_of
from framework_compare.importers.torch.calls import chosen_output
from framework_compare.importers.torch.tracing import arrays_of, load, read
from framework_compare.json_types import Document, Fields

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

ANY_WIDTH = ("cross_entropy", "token_cross_entropy")  # losses for which a module may have other classes than the data


class WrittenTrainer(TorchTrainer):
    declared = TorchTrainer.declared._replace(
        replicas={}, generation=frozenset(), why={"replicas": "as written, it trains on one device"}
    )
    written: Mapping[str, str] = {}  # where the module is, as a job of kind "trace" names it; the runner sets it

    def settings(self) -> Fields:
        return {**super().settings(), "model": f"{self.written['text']} as written"}

    def _make_network(self, graph: Graph) -> Module:
        """The module with a head for the graph's classes; Unsupported where it no longer is what was imported."""
        torch, text = self.torch, self.written["text"]
        if self.written.get("path") and not os.path.isfile(self.written["path"]):
            raise Unsupported(f"{text} is no longer there ({self.written['path']}); put it back")
        module, output = load(self.written).float(), self.written.get("output", "")
        asked = [dataclasses.replace(graph.task, outputs=0)] if graph.task.loss in ANY_WIDTH else [graph.task]
        reading = read(torch, copy.deepcopy(module), asked, output)
        if reading.graph.num_classes != graph.num_classes:
            head = head_of(reading.graph)
            if head is None:
                raise Unsupported(
                    f"{text} gives {reading.graph.num_classes} classes, and its last layer is not replaced"
                )
            _replace_head(torch, module, reading.origin[f"{head.arrays}.weight"], graph.num_classes)
            reading = read(torch, copy.deepcopy(module), [graph.task], output)
        if reading.graph.to_dict() != {**graph.to_dict(), "name": reading.graph.name}:
            raise Unsupported(f"{text} is no longer the model that was imported; compare it again")
        self._reading = reading
        # an array of the graph is a part of one of the module's: which of its numbers, in the graph's order
        arrays = arrays_of(module)
        self._places = {
            ours: reading.as_graph(ours, torch.arange(arrays[own].numel()).reshape(arrays[own].shape)).astype(np.int64)
            for ours, own in reading.origin.items()
        }
        return _with_one_output(torch, module, output, graph.task)

    def _freeze(self, graph: Graph) -> None:
        own = arrays_of(self._network.module)
        for parameter in self._network.parameters():
            parameter.requires_grad_(False)
        for name in trainable_names(graph):
            own[self._reading.origin[name]].requires_grad_(True)

    def _copy_in(self, weights: Document) -> None:
        torch, own, origin = self.torch, arrays_of(self._network.module), self._reading.origin
        held = {target: own[target].detach().cpu().contiguous().numpy().ravel().copy() for target in origin.values()}
        for name, array in weights.items():
            if name in origin:
                held[origin[name]][self._places[name].ravel()] = np.ravel(array)
        for target, flat in held.items():
            own[target].copy_(torch.from_numpy(flat.reshape(own[target].shape)))

    def weights(self) -> Fields:
        own = arrays_of(self._network.module)
        return {
            name: self._reading.as_graph(name, own[self._reading.origin[name]])
            if name in self._reading.origin
            else array
            for name, array in self._reading.arrays.items()
        }

    def _held_gradients(self) -> Fields:
        own = arrays_of(self._network.module)
        return {
            name: self._reading.as_graph(name, own[target].grad)
            for name, target in self._reading.origin.items()
            if own[target].grad is not None
        }


def _replace_head(torch: ModuleType, module: Module, weight: str, classes: int) -> None:
    """Replace the layer that holds the weight by one of the same kind with as many outputs."""
    path = weight.rpartition(".")[0]
    parent, _, name = path.rpartition(".")
    head = module.get_submodule(path)
    bias = getattr(head, "bias", None) is not None
    if type(head) is torch.nn.Linear:
        made = torch.nn.Linear(head.in_features, classes, bias=bias)
    elif type(head) is torch.nn.Conv2d:
        sizes = {"stride": head.stride, "padding": head.padding, "dilation": head.dilation}
        made = torch.nn.Conv2d(head.in_channels, classes, head.kernel_size, bias=bias, **sizes)
    else:
        raise Unsupported(
            f"its last layer {path!r} is a {type(head).__name__}, which is not replaced in the module itself"
        )
    setattr(module.get_submodule(parent), name, made)


def _with_one_output(torch: ModuleType, module: Module, output: str, task: Task) -> Module:
    """The module, giving the tensor that is trained of what it returns; it gets integers of 64 bits, as modules expect."""
    integers = any(field.dtype.startswith("int") for field in task.inputs)

    class OneOutput(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *given: Tensor) -> Tensor:
            if integers:
                given = tuple(
                    one if one.is_floating_point() or one.dtype == torch.bool else one.long() for one in given
                )
            found = chosen_output(self.module(*given), output)
            return found.reshape(len(found), 1) if found.ndim == 1 else found

    return OneOutput()
