"""A user's nn.Module as a layer graph: loaded, exported by torch.export in training mode, judged in float64.

A job of kind "trace" has one task: {"source": where the module is, "sizes": image sizes}. It writes ANSWER, the
weights and what the module computes in float64, into the run's folder. A module in hand is read in its own process.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.adapters.torch.aten import Reading
from framework_compare.adapters.torch.pipeline import import_torchvision
from framework_compare.errors import Unsupported, UsageError
from framework_compare.graph import Graph
from framework_compare.protocol import Job

ANSWER, WEIGHTS, EXACT = "trace.json", "weights.npz", "exact.npz"
BATCH = 2  # images of the tracing; the judging has another number, so that a batch taken for a constant shows
JUDGED = 3  # at least
VALUES = 16  # that each BatchNorm sees at least when it is judged: over a few, it amplifies rounding beyond the level
SEED = 0
# Of memory for each parameter: the module and its copy in float32, the copy in float64 with its gradients, both to be
# written.
BYTES_A_PARAMETER = 40


class Traced(NamedTuple):
    """A module's graphs by image size, its arrays by their names there, what it computes in float64, and remarks."""

    graphs: Dict[int, Graph]
    arrays: Dict[str, np.ndarray]
    exact: Dict[str, np.ndarray]
    notes: Tuple[str, ...]
    version: str


def trace(job: Job) -> None:
    """Answer a job of kind "trace"; UsageError, in one line, where the module cannot be imported."""
    (task,) = job.tasks
    import torch

    torch.set_num_threads(job.config.threads)
    traced = trace_module(load(task["source"]), task["sizes"])
    np.savez(WEIGHTS, **traced.arrays)
    np.savez(EXACT, **traced.exact)
    graphs = {size: graph.to_dict() for size, graph in traced.graphs.items()}
    with open(ANSWER, "w", encoding="utf-8") as file:
        json.dump({"graphs": graphs, "notes": traced.notes, "version": traced.version}, file)


def load(source: Mapping[str, str]) -> Any:
    """The module that a source names: a function or class of a file, or a model of torchvision or timm."""
    import torch

    with contextlib.suppress(Unsupported):  # the user's file may not need it
        import_torchvision(torch)
    torch.manual_seed(SEED)  # the same weights at every import
    made = _from_zoo(source) if source["kind"] in ZOOS else _from_file(source["path"], source["name"])
    if not isinstance(made, torch.nn.Module):
        raise UsageError(
            f"{source['name']} gives a {type(made).__name__}; allowed: a function that returns an nn.Module"
        )
    return made


ZOOS = ("torchvision", "timm")


def _from_zoo(source: Mapping[str, str]) -> Any:
    zoo, name = source["kind"], source["name"]
    try:
        module = importlib.import_module("torchvision.models" if zoo == "torchvision" else zoo)
    except ImportError as error:
        raise UsageError(
            f"{zoo} is not installed in {sys.executable} ({error}); name an interpreter that has it:"
            " python={'torch': '/path/to/python'}"
        ) from None
    known = module.list_models()
    if name not in known:
        near = [one for one in known if one.startswith(name[:4])][:8]
        raise UsageError(f"{zoo} has no model {name!r}" + (f"; near it: {', '.join(near)}" if near else ""))
    return module.get_model(name, weights=None) if zoo == "torchvision" else module.create_model(name)


def _from_file(path: str, name: str) -> Any:
    sys.path.insert(0, os.path.dirname(path))  # files beside it may be imported by it
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import would; dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be imported: {_line(error)}") from error
    made = getattr(module, name, None)
    if made is None:
        names = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == spec.name
        ]
        raise UsageError(f"{path} has no {name!r}; it has {', '.join(names) or 'no function or class'}")
    try:
        return made() if inspect.isclass(made) or inspect.isroutine(made) else made
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name}() of {path} fails: {_line(error)}; it is called without arguments") from error


def _line(error: BaseException) -> str:
    """An exception in one line."""
    words = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {words[:300]}"


def trace_module(module: Any, sizes: Sequence[int]) -> Traced:
    """Read a module at each image size; its own mode, weights and statistics stay as they are."""
    import torch

    _check_inputs(module)
    _check_numbers(module)
    module = copy.deepcopy(module).cpu().float()
    readings: Dict[int, Reading] = {}
    for size in sizes:
        images = torch.zeros(BATCH, 3, size, size)
        _check_runs(torch, module, images)
        readings[size] = Reading(_export(torch, module, images), BATCH)
    first = readings[sizes[0]]
    exact = judge(torch, module, first, sizes[0])
    return Traced(
        {size: reading.graph for size, reading in readings.items()}, first.arrays, exact, first.notes, torch.__version__
    )


def _check_inputs(module: Any) -> None:
    parameters = list(inspect.signature(module.forward).parameters.values())
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    if len(needed) > 1:
        raise UsageError(f"forward takes {len(needed)} inputs ({', '.join(needed)}); allowed: one, a batch of images")


def _check_numbers(module: Any) -> None:
    """UsageError for weights that are not there, and for more than can be proved in this machine's memory."""
    arrays = list(module.parameters())
    if any(array.is_meta for array in arrays):
        raise UsageError("its weights are on the device 'meta', which has no numbers; give it weights first")
    count, available = sum(array.numel() for array in arrays), _available_bytes()
    needed = count * BYTES_A_PARAMETER
    if available is not None and needed > available:
        raise UsageError(
            f"it has {count:,} parameters; reading and proving it takes about {needed / 2**30:.0f} GiB of memory, and"
            f" {available / 2**30:.0f} GiB are free; use a machine with more"
        )


def _available_bytes() -> Optional[int]:
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _check_runs(torch: Any, module: Any, images: Any) -> None:
    try:
        with torch.no_grad():
            module.eval()(images)
    except Exception as error:
        raise UsageError(f"forward fails on a batch of images {tuple(images.shape)}: {_line(error)}") from error


def _export(torch: Any, module: Any, images: Any) -> Any:
    """The ATen program of a training pass; nothing is computed, so statistics stay."""
    try:
        return torch.export.export(module.train(), (images,), strict=False)
    except Exception as error:
        raise UsageError(
            f"torch.export cannot trace it: {_line(error)}; what forward does must not depend on the values of its input"
        ) from error


def judge(torch: Any, module: Any, reading: Reading, size: int) -> Dict[str, np.ndarray]:
    """What the module as its author wrote it computes in float64, by names of the graph; dropout is off.

    module: a copy, which is changed.

    images, labels, start:<array> (where it starts: biases, scales and statistics moved from their neutral values, so
    that one left out or taken for another shows), evaluation, training, gradient:<array>, after:<statistic>.
    """
    module = module.double()
    generator = torch.Generator().manual_seed(SEED)
    arrays = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    with torch.no_grad():
        for name in dict.fromkeys(reading.origin.values()):
            _move(torch, arrays[name], name, generator)
    count = _judged(reading.graph)
    images = torch.randn(count, 3, size, size, generator=generator, dtype=torch.float64)
    labels = torch.arange(count) % reading.graph.num_classes
    exact = {"images": images.numpy(), "labels": labels.numpy()}
    exact.update({f"start:{name}": array for name, array in reading.arrays.items() if name not in reading.origin})
    exact.update({f"start:{ours}": reading.as_graph(ours, arrays[own]) for ours, own in reading.origin.items()})
    exact["evaluation"] = _logits(module.eval()(images)).detach().numpy()
    with exact_derivatives(torch):
        logits = _logits(module.train()(images))
        torch.nn.functional.cross_entropy(logits, labels).backward()
    exact["training"] = logits.detach().numpy()
    for ours, own in reading.origin.items():
        array = arrays[own]
        if array.requires_grad and array.grad is not None:
            exact[f"gradient:{ours}"] = reading.as_graph(ours, array.grad)
        elif not isinstance(array, torch.nn.Parameter):
            exact[f"after:{ours}"] = reading.as_graph(ours, array)
    return exact


def _judged(graph: Graph) -> int:
    """How many images a model is judged by."""
    shapes = graph.shapes()
    places = [math.prod(shapes[node.name][1:]) for node in graph.nodes if node.op == "BatchNorm2d"]
    return max(JUDGED, -(-VALUES // min(places, default=VALUES)))


def _move(torch: Any, array: Any, name: str, generator: Any) -> None:
    """One float32 number for each, so that the graph's float32 arrays hold the same."""
    if not array.is_floating_point():
        return
    if array.ndim <= 1 or name.endswith(("bias", "gamma", "layer_scale")):
        noise = torch.rand(array.shape, generator=generator, dtype=torch.float32).to(array.dtype)
        array.copy_(array * (0.8 + 0.4 * noise) if name.endswith("running_var") else array + 0.2 * (noise - 0.5))
    array.copy_(array.float())


def _logits(output: Any) -> Any:
    """The first tensor of what a module returns, as the graph has it."""
    while not hasattr(output, "detach"):
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    return output


def exact_derivatives(torch: Any) -> Any:
    """A mode in which nothing is dropped, and constants that torch keeps in float32 are in float64."""
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten

    class Exact(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is aten.bernoulli_.float:  # a mask that keeps all, before it is divided by the share kept
                return args[0].fill_(args[1] if len(args) > 1 else 0.5)
            if function is aten.hardsigmoid_backward.default:  # torch 2.13 has 1/6 in float32 there
                gradient, x = args
                return torch.where((x > -3) & (x < 3), gradient / 6, torch.zeros_like(gradient))
            return function(*args, **(kwargs or {}))

    return Exact()
