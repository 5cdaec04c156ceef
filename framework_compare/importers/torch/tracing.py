"""A user's nn.Module as a layer graph: loaded, exported by torch.export in training mode, judged in float64.

A job of kind "trace" has one task: {"source": where the module is, "tasks": for each image size, or for the user's arrays,
the tasks of which its output decides, "output": the one that is trained}. It writes a TraceAnswer into the run's folder. A
module in hand is read in its own process.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import os
from types import ModuleType
from typing import TYPE_CHECKING, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.adapters.torch.pipeline import import_torchvision
from framework_compare.adapters.torch.trainer import TorchTrainer
from framework_compare.errors import Unsupported, UsageError
from framework_compare.graph import Graph, Task
from framework_compare.graph.imported_model import Asked, TraceAnswer
from framework_compare.importers.common.onnx_program import OnnxProgram
from framework_compare.importers.common.sources import made_by, object_of, one_line, place_of
from framework_compare.importers.common.tracing import IMAGES, SEED, drawn_inputs, drawn_target, moved
from framework_compare.importers.torch import calls, zoos
from framework_compare.importers.torch.onnx_module import module_of
from framework_compare.importers.torch.reading import Reading
from framework_compare.protocol import Job

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.nn import Module

BATCH = 2  # images of the tracing
AMPLIFIED = 1e-9  # relative change of outputs by the last place of what is given: beyond it, evaluation verifies little
VALUES = 16  # that each BatchNorm sees at least when it is judged: over a few, it amplifies rounding beyond the level
# Of memory for each parameter: the module and its copy in float32, the copy in float64 with its gradients, both to be
# written.
BYTES_A_PARAMETER = 40


class Known(NamedTuple):
    """A model's output in evaluation mode by another program, and the arrays that it starts from, by their paths."""

    given: Sequence[np.ndarray]
    start: Mapping[str, np.ndarray]
    logits: np.ndarray


class TorchImporter:
    environment = staticmethod(TorchTrainer.environment)

    @staticmethod
    def trace(job: Job) -> None:
        """Answer a job of kind "trace"; UsageError, in one line, where the module cannot be imported."""
        (task,) = job.tasks
        import torch

        torch.set_num_threads(job.config.threads)
        asked = Asked.from_dict(task)
        if task["source"]["kind"] == ONNX:
            traced = trace_onnx(OnnxProgram.read(task["program"]), asked)
        else:
            traced = trace_module(load(task["source"]), asked)
        traced.write(os.getcwd())


def load(source: Mapping[str, str]) -> Module:
    """The module that a source names: a function or class of a file, or a model of torchvision, timm or transformers."""
    import torch

    with contextlib.suppress(Unsupported):  # the user's file may not need it
        import_torchvision(torch)
    torch.manual_seed(SEED)  # the same weights at every import
    kind = source["kind"]
    made = zoos.MAKERS[kind](kind, source["name"]) if kind in zoos.MAKERS else made_by(source["path"], source["name"])
    if not isinstance(made, torch.nn.Module):
        raise UsageError(
            f"{source['name']} gives a {type(made).__name__}; allowed: a function that returns an nn.Module"
        )
    return made


ONNX = "onnx"


def trace_onnx(program: OnnxProgram, asked: Asked) -> TraceAnswer:
    """The same of an ONNX file, whose logits another program has computed."""
    module = module_of(program)
    exact = program.reference
    fields = {field.name: field for task in asked.tasks for field in task.inputs}
    inputs = tuple(fields[name] for name in program.fields)
    asked = Asked(asked.sizes, [dataclasses.replace(task, inputs=inputs) for task in asked.tasks])
    if "failure" in exact:
        trace_module(module, asked)  # what the graph has no op for is said first
        raise UsageError(str(exact["failure"]))
    start = {module.paths[name]: exact[f"start:{name}"] for name in module.paths}
    given = [exact[f"input:{name}"] for name in program.inputs]
    traced = trace_module(module, asked, Known(given, start, exact["logits"]))
    return traced._replace(notes=(*program.notes, *_guesses(next(iter(traced.graphs.values()))), *traced.notes))


def _guesses(graph: Graph) -> Tuple[str, ...]:
    """A word on arrays that belong to no layer, which a file may have meant as constants."""
    free = [node.name for node in graph.nodes if node.op == "Parameter" and node.attrs.get("trained", True)]
    more = f" and {len(free) - 3} more" if len(free) > 3 else ""
    words = f"ONNX does not say which arrays are trained; besides those of layers, {', '.join(free[:3])}{more} are"
    return (words,) if free else ()


def trace_module(module: Module, asked: Asked, known: Optional[Known] = None) -> TraceAnswer:
    """Read a module for each image size, or for arrays; its own mode, weights and statistics stay as they are.

    A loss function takes its output and the target, the last input of the tasks; what it gives becomes the output.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(
            "it is a program of torch.jit, which torch.export does not read; give the module that it was made from"
        )
    _check_numbers(module)
    _check_gradient_hooks(module)
    module = _copied(module).cpu().float()
    output, by_size = asked.output, asked.by_size
    if asked.loss:
        by_size = {size: _inputs_in_order(module, tasks) for size, tasks in by_size.items()}
        module, output = calls.with_loss(torch, module, object_of(*asked.loss), output), ""
    readings = {size: read(torch, module, tasks, output) for size, tasks in by_size.items()}
    (start, first), *others = readings.items()
    _check_all_trained(module, first)
    for size, reading in others:  # which start from one set of arrays
        for name, array in reading.arrays.items():
            if name in first.arrays and not np.array_equal(first.arrays[name], array):
                raise UsageError(f"{name} has different values at {size} and at {start} pixels; import it at one size")
    exact = judge(torch, module, first, known, output)
    return TraceAnswer(
        {size: reading.graph for size, reading in readings.items()}, first.arrays, exact, first.notes, torch.__version__
    )


def _inputs_in_order(module: Module, tasks: Sequence[Task]) -> Sequence[Task]:
    """Tasks whose last input is the target, with the others in the order of forward's parameters."""
    *_, target = tasks[0].inputs
    own = calls.in_order(module, dataclasses.replace(tasks[0], inputs=tasks[0].inputs[:-1]))
    return [dataclasses.replace(task, inputs=(*own, target)) for task in tasks]


def read(torch: ModuleType, module: Module, tasks: Sequence[Task], output: str = "") -> Reading:
    """A float32 module on the CPU for one of the tasks; it is in training mode afterwards."""
    fields = calls.in_order(module, tasks[0])
    given = calls.examples(torch, fields, BATCH)
    _check_runs(torch, module, given, tasks[0])
    ordered = [dataclasses.replace(task, inputs=fields) for task in tasks]
    program, first = _export(torch, module, given), None
    reading = Reading(BATCH, ordered)
    while True:
        try:
            reading.read_all(program, output)
            return reading
        except UsageError as error:
            first = first or error
            if reading.next_way == reading.way:
                raise first from None
            reading = Reading(BATCH, ordered, reading.next_way)


def _check_numbers(module: Module) -> None:
    """UsageError for weights that are not there, and for more than can be proved in this machine's memory."""
    import torch

    arrays = list(module.parameters())
    if any(torch.nn.parameter.is_lazy(array) for array in arrays):
        raise UsageError("it has layers that take their sizes from the first images; call it once before you return it")
    if any(array.is_meta for array in arrays):
        raise UsageError("its weights are on the device 'meta', which has no numbers; give it weights first")
    count, available = sum(array.numel() for array in arrays), _available_bytes()
    needed = count * BYTES_A_PARAMETER
    if available is not None and needed > available:
        raise UsageError(
            f"it has {count:,} parameters; reading and verifying it takes about {needed / 2**30:.0f} GiB of memory, and"
            f" {available / 2**30:.0f} GiB are free; use a machine with more"
        )


def _check_gradient_hooks(module: Module) -> None:
    """UsageError for hooks on parameters: a copy of the module, which is what is judged, does not have them."""
    kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
    hooked = [name for name, array in module.named_parameters() if any(getattr(array, kind, None) for kind in kinds)]
    if hooked:
        raise UsageError(f"hooks change the gradients of {len(hooked)} parameters, such as {hooked[0]}; remove them")


def _copied(module: Module) -> Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise UsageError(f"it cannot be copied: {one_line(error)}") from error


def _check_all_trained(module: Module, reading: Reading) -> None:
    own = dict(module.named_parameters(remove_duplicate=False))
    used = dict.fromkeys(reading.origin.values())
    frozen = [name for name in used if name in own and not own[name].requires_grad]
    if frozen:
        raise UsageError(
            f"{len(frozen)} of its parameters are not trained, such as {frozen[0]}; call requires_grad_(True) on them"
        )


def _available_bytes() -> Optional[int]:
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _check_runs(torch: ModuleType, module: Module, given: Tuple[Tensor, ...], task: Task) -> None:
    try:
        with torch.no_grad():
            module.eval()(*given)
    except Exception as error:
        shapes = " and ".join(
            f"{'' if one.is_floating_point() else f'{one.dtype} '}{tuple(one.shape)}" for one in given
        )
        raise UsageError(f"forward fails on a batch of {task.unit}s {shapes}: {one_line(error)}") from error


def _export(torch: ModuleType, module: Module, given: Tuple[Tensor, ...]) -> ExportedProgram:
    """The ATen program of a training pass; nothing is computed, so statistics stay."""
    try:
        return torch.export.export(module.train(), given, strict=False)
    except Exception as error:
        by_values = type(error).__name__ == "GuardOnDataDependentSymNode"  # whose words are for authors of torch
        words = "it branches on values" if by_values else one_line(error)
        raise UsageError(
            f"torch.export cannot trace it{place_of(error)}: {words}; what forward does must not depend on the values of its"
            " input"
        ) from error


def judge(
    torch: ModuleType, module: Module, reading: Reading, known: Optional[Known] = None, output: str = ""
) -> Dict[str, np.ndarray]:
    """Return what the module as its author wrote it computes in float64, by names of the graph; dropout is off.

    module: a copy, which is changed. The result is what a TraceAnswer has as `exact`.
    """
    module = module.double()
    rng = np.random.default_rng(SEED)
    arrays = arrays_of(module)
    with torch.no_grad():
        for name in dict.fromkeys(reading.origin.values()):
            own = arrays[name].numpy()
            start = known.start[name] if known else moved(rng, own, positive=name.endswith("running_var"))
            arrays[name].copy_(torch.from_numpy(np.asarray(start)))
    task = reading.graph.task
    given = known.given if known else drawn_inputs(task, _judged(reading.graph), rng)
    target = drawn_target(task, len(given[0]), rng)
    exact = {**{f"input:{name}": array for name, array in zip(task.named_inputs, given)}, "target": target}
    call = calls.Call(torch, module, tuple(map(torch.from_numpy, given)), task, output)
    if known is None:
        exact["evaluation"] = call.evaluated()
        if call.amplification(exact["evaluation"]) > AMPLIFIED:
            call.take_statistics()
            exact["evaluation"] = call.evaluated()
    else:
        exact["evaluation"] = known.logits.reshape(-1, *task.output_shape)
    exact.update({f"start:{name}": array for name, array in reading.arrays.items() if name not in reading.origin})
    exact.update({f"start:{ours}": reading.as_graph(ours, arrays[own]) for ours, own in reading.origin.items()})
    exact["training"] = call.trained(torch.from_numpy(target))
    _check_finite(exact, call.name)
    for ours, own in reading.origin.items():
        array = arrays[own]
        if array.requires_grad and array.grad is not None:
            exact[f"gradient:{ours}"] = reading.as_graph(ours, array.grad)
        elif not isinstance(array, torch.nn.Parameter):
            exact[f"after:{ours}"] = reading.as_graph(ours, array)
    return exact


def arrays_of(module: Module) -> Dict[str, Tensor]:
    """Parameters and buffers by all their names."""
    parameters, buffers = module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    return {**dict(parameters), **dict(buffers)}


def _check_finite(exact: Mapping[str, np.ndarray], name: str) -> None:
    """UsageError where there is nothing to compare with."""
    for mode in ("evaluation", "training"):
        if not np.isfinite(exact[mode]).all():
            raise UsageError(
                f"its {name} in {mode} are not all finite for normally distributed inputs, in float64; fix its weights or"
                " its forward first"
            )


def _judged(graph: Graph) -> int:
    """Return how many images a model is judged by."""
    shapes = graph.shapes()
    places = [math.prod(shapes[node.name][1:]) for node in graph.nodes if node.op == "BatchNorm2d"]
    return max(IMAGES, -(-VALUES // min(places, default=VALUES)))
