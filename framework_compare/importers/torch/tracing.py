"""A user's nn.Module as a layer graph: loaded, exported by torch.export in training mode, judged in float64.

A job of kind "trace" has one task: {"source": where the module is, "sizes": image sizes}. It writes a TraceAnswer into
the run's folder. A module in hand is read in its own process.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import inspect
import math
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.adapters.torch.pipeline import import_torchvision
from framework_compare.adapters.torch.trainer import TorchTrainer
from framework_compare.errors import Unsupported, UsageError
from framework_compare.graph import Field, Graph
from framework_compare.graph.trace_answer import TraceAnswer, input_names
from framework_compare.importers.common.judging import SEED, moved
from framework_compare.importers.common.onnx_program import OnnxProgram
from framework_compare.importers.common.user_file import made_by, one_line
from framework_compare.importers.torch import hugging_face
from framework_compare.importers.torch.onnx_module import module_of
from framework_compare.importers.torch.reading import Reading
from framework_compare.protocol import Job

BATCH = 2  # images of the tracing; the judging has another number, so that a batch taken for a constant shows
JUDGED = 3  # at least
VALUES = 16  # that each BatchNorm sees at least when it is judged: over a few, it amplifies rounding beyond the level
# Of memory for each parameter: the module and its copy in float32, the copy in float64 with its gradients, both to be
# written.
BYTES_A_PARAMETER = 40


class Known(NamedTuple):
    """What another program computes of a model in evaluation mode, and the arrays it starts from, by their paths."""

    images: np.ndarray
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
        if task["source"]["kind"] == ONNX:
            traced = trace_onnx(OnnxProgram.read(task["program"]), task["sizes"])
        else:
            module, inputs, sizes = load_with_inputs(task["source"])
            traced = trace_module(module, task["sizes"] if sizes == (0,) else sizes, inputs=inputs)
        traced.write(os.getcwd())


def load(source: Mapping[str, str]) -> Any:
    """The module that a source names: a function or class of a file, or a model of torchvision or timm."""
    import torch

    with contextlib.suppress(Unsupported):  # the user's file may not need it
        import_torchvision(torch)
    torch.manual_seed(SEED)  # the same weights at every import
    made = _from_zoo(source) if source["kind"] in ZOOS else made_by(source["path"], source["name"])
    if not isinstance(made, torch.nn.Module):
        raise UsageError(
            f"{source['name']} gives a {type(made).__name__}; allowed: a function that returns an nn.Module"
        )
    return made


def load_with_inputs(source: Mapping[str, str]) -> Tuple[Any, Sequence[Field], Sequence[int]]:
    """The module that a source names, what it takes where that is no image, and the size of its images; 0: any."""
    import torch

    if source["kind"] != TRANSFORMERS:
        return load(source), (), (0,)
    torch.manual_seed(SEED)
    return hugging_face.made(torch, source["name"])


TRANSFORMERS = "transformers"
ZOOS, ONNX = ("torchvision", "timm"), "onnx"


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
        near = difflib.get_close_matches(name, known, n=8)
        raise UsageError(f"{zoo} has no model {name!r}" + (f"; near it: {', '.join(near)}" if near else ""))
    return module.get_model(name, weights=None) if zoo == "torchvision" else module.create_model(name)


def trace_onnx(program: OnnxProgram, sizes: Sequence[int]) -> TraceAnswer:
    """The same of an ONNX file, whose logits another program has computed."""
    module = module_of(program)
    exact = program.reference
    if "failure" in exact:
        trace_module(module, sizes)  # what the graph has no op for is said first
        raise UsageError(str(exact["failure"]))
    start = {module.paths[name]: exact[f"start:{name}"] for name in module.paths}
    traced = trace_module(module, sizes, Known(exact["images"], start, exact["logits"]))
    return traced._replace(notes=(*program.notes, *_guesses(traced.graphs[sizes[0]]), *traced.notes))


def _guesses(graph: Graph) -> Tuple[str, ...]:
    """A word on arrays that belong to no layer, which a file may have meant as constants."""
    free = [node.name for node in graph.nodes if node.op == "Parameter" and node.attrs.get("trained", True)]
    more = f" and {len(free) - 3} more" if len(free) > 3 else ""
    words = f"ONNX does not say which arrays are trained; beside those of layers {', '.join(free[:3])}{more} are"
    return (words,) if free else ()


def trace_module(
    module: Any, sizes: Sequence[int], known: Optional[Known] = None, inputs: Sequence[Field] = ()
) -> TraceAnswer:
    """Read a module at each image size; its own mode, weights and statistics stay as they are.

    inputs: what it takes where that is no image; its graph then stands under the size 0.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(
            "it is a program of torch.jit, which torch.export does not read; give the module that it is of"
        )
    if not inputs:
        _check_inputs(module)
    _check_numbers(module)
    _check_gradient_hooks(module)
    module = _copied(module).cpu().float()
    readings: Dict[int, Reading] = {}
    sizes = [0] if inputs else sizes
    for size in sizes:
        readings[size] = read(torch, module, inputs or size)
    first = readings[sizes[0]]
    _check_all_trained(module, first)
    for size in sizes[1:]:
        _check_same_arrays(first, sizes[0], readings[size], size)
    exact = judge(torch, module, first, sizes[0], known)
    return TraceAnswer(
        {size: reading.graph for size, reading in readings.items()}, first.arrays, exact, first.notes, torch.__version__
    )


def read(torch: Any, module: Any, fed: Any) -> Reading:
    """A float32 module on the CPU; it is in training mode afterwards. fed: a size of images, or the shapes of inputs."""
    inputs = [torch.zeros(BATCH, 3, fed, fed)] if isinstance(fed, int) else [_zeros(torch, field) for field in fed]
    _check_runs(torch, module, inputs)
    program = _export(torch, module, inputs)
    first, apart = None, frozenset()
    while True:  # until no array is left that two kinds of layers share
        try:
            return Reading(program, BATCH, apart)
        except UsageError as error:
            first = first or error
            if getattr(error, "shared", apart) <= apart:
                raise first from None
            apart |= error.shared


def _zeros(torch: Any, field: Field) -> Any:
    return torch.zeros((BATCH, *field.shape), dtype=getattr(torch, field.dtype))


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
    import torch

    arrays = list(module.parameters())
    if any(torch.nn.parameter.is_lazy(array) for array in arrays):
        raise UsageError(
            "it has layers that take their sizes from the first images; call it once before it is returned"
        )
    if any(array.is_meta for array in arrays):
        raise UsageError("its weights are on the device 'meta', which has no numbers; give it weights first")
    count, available = sum(array.numel() for array in arrays), _available_bytes()
    needed = count * BYTES_A_PARAMETER
    if available is not None and needed > available:
        raise UsageError(
            f"it has {count:,} parameters; reading and proving it takes about {needed / 2**30:.0f} GiB of memory, and"
            f" {available / 2**30:.0f} GiB are free; use a machine with more"
        )


def _check_gradient_hooks(module: Any) -> None:
    """UsageError for hooks on parameters: a copy of the module, which is what is judged, does not have them."""
    kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
    hooked = [name for name, array in module.named_parameters() if any(getattr(array, kind, None) for kind in kinds)]
    if hooked:
        raise UsageError(f"hooks change the gradients of {len(hooked)} parameters, such as {hooked[0]}; remove them")


def _copied(module: Any) -> Any:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise UsageError(f"it cannot be copied: {one_line(error)}") from error


def _check_all_trained(module: Any, reading: Reading) -> None:
    own = dict(module.named_parameters(remove_duplicate=False))
    used = dict.fromkeys(reading.origin.values())
    frozen = [name for name in used if name in own and not own[name].requires_grad]
    if frozen:
        raise UsageError(
            f"{len(frozen)} of its parameters are not trained, such as {frozen[0]}; call requires_grad_(True) on them"
        )


def _check_same_arrays(first: Reading, size: int, second: Reading, other: int) -> None:
    """UsageError for a constant that depends on the size of the image: all sizes start from one set of arrays."""
    for name, array in second.arrays.items():
        if name in first.arrays and not np.array_equal(first.arrays[name], array):
            raise UsageError(f"{name} has other numbers at {other} pixels than at {size}; import it at one size")


def _available_bytes() -> Optional[int]:
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _check_runs(torch: Any, module: Any, inputs: Sequence[Any]) -> None:
    try:
        with torch.no_grad():
            module.eval()(*inputs)
    except Exception as error:
        images = len(inputs) == 1 and inputs[0].dim() == 4
        what = f"a batch of {'images' if images else 'inputs'} {', '.join(str(tuple(one.shape)) for one in inputs)}"
        raise UsageError(f"forward fails on {what}: {one_line(error)}") from error


def _export(torch: Any, module: Any, inputs: Sequence[Any]) -> Any:
    """The ATen program of a training pass; nothing is computed, so statistics stay."""
    try:
        return torch.export.export(module.train(), tuple(inputs), strict=False)
    except Exception as error:
        raise UsageError(
            f"torch.export cannot trace it: {one_line(error)}; what forward does must not depend on the values of its input"
        ) from error


def judge(torch: Any, module: Any, reading: Reading, size: int, known: Optional[Known] = None) -> Dict[str, np.ndarray]:
    """What the module as its author wrote it computes in float64, by names of the graph; dropout is off.

    module: a copy, which is changed.

    images, labels, start:<array> (where it starts), evaluation, training, gradient:<array>, after:<statistic>.
    """
    module = module.double()
    rng = np.random.default_rng(SEED)
    arrays = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    with torch.no_grad():
        for name in dict.fromkeys(reading.origin.values()):
            own = arrays[name].numpy()
            start = known.start[name] if known else moved(rng, own, positive=name.endswith("running_var"))
            arrays[name].copy_(torch.from_numpy(np.asarray(start)))
    graph = reading.graph
    inputs = [torch.from_numpy(known.images)] if known else _drawn(torch, rng, graph, size)
    labels = _labels(torch, graph, len(inputs[0]))
    exact = {name: array.numpy() for name, array in zip(input_names(graph), inputs)}
    exact["labels"] = labels.numpy()
    exact.update({f"start:{name}": array for name, array in reading.arrays.items() if name not in reading.origin})
    exact.update({f"start:{ours}": reading.as_graph(ours, arrays[own]) for ours, own in reading.origin.items()})
    exact["evaluation"] = _evaluated(torch, module, inputs) if known is None else known.logits
    exact["training"] = _trained(torch, module, inputs, labels)
    _check_finite(exact)
    for ours, own in reading.origin.items():
        array = arrays[own]
        if array.requires_grad and array.grad is not None:
            exact[f"gradient:{ours}"] = reading.as_graph(ours, array.grad)
        elif not isinstance(array, torch.nn.Parameter):
            exact[f"after:{ours}"] = reading.as_graph(ours, array)
    return exact


def _drawn(torch: Any, rng: Any, graph: Graph, size: int) -> List[Any]:
    """Normally distributed numbers; tokens from 1 on, as 0 often stands for none."""
    count, arrays = _judged(graph), []
    for field in graph.task.inputs:
        shape = (count, *field.shape)
        if field.dtype == "float32":
            arrays.append(torch.from_numpy(rng.standard_normal(shape)))
        else:
            arrays.append(torch.from_numpy(rng.integers(min(1, field.vocabulary), max(2, field.vocabulary), shape)))
    return arrays


def _labels(torch: Any, graph: Graph, count: int) -> Any:
    shape = (count, *graph.task.target.shape)
    return torch.arange(math.prod(shape)).reshape(shape) % graph.num_classes


def _evaluated(torch: Any, module: Any, inputs: Sequence[Any]) -> np.ndarray:
    """Logits in evaluation, which must be the same at a second call."""
    with torch.no_grad():
        logits, again = (first_output(module.eval()(*(one.clone() for one in inputs))).numpy().copy() for _ in range(2))
    if not np.allclose(logits, again, rtol=1e-9, atol=1e-9 * float(np.abs(logits).max()), equal_nan=True):
        raise UsageError(
            "in evaluation it gives other logits for the same images at a second call: it remembers the first, or draws"
            " random numbers, as a functional dropout without training=self.training does"
        )
    return logits  # type: ignore[no-any-return]


def _trained(torch: Any, module: Any, inputs: Sequence[Any], labels: Any) -> np.ndarray:
    """Logits in training; gradients are with the parameters then."""
    with exact_derivatives(torch):
        given = [one.clone() for one in inputs]
        logits = first_output(module.train()(*given))
        if not all(map(torch.equal, given, inputs)):
            raise UsageError(
                "forward changes its images in place, which the next epoch would see; let it copy them first"
            )
        if not logits.requires_grad:
            raise UsageError("no gradient reaches a parameter from its first output, so nothing of it can be trained")
        try:
            torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        except RuntimeError as error:
            raise UsageError(f"its backward pass fails in torch, too: {one_line(error)}") from error
    return logits.detach().numpy()  # type: ignore[no-any-return]


def _check_finite(exact: Mapping[str, np.ndarray]) -> None:
    """UsageError where there is nothing to compare with."""
    for mode in ("evaluation", "training"):
        if not np.isfinite(exact[mode]).all():
            raise UsageError(
                f"its logits in {mode} are not all finite for images of normally distributed pixels, in float64; mend"
                " its weights or its forward first"
            )


def _judged(graph: Graph) -> int:
    """How many images a model is judged by."""
    shapes = graph.shapes()
    places = [math.prod(shapes[node.name][1:]) for node in graph.nodes if node.op == "BatchNorm2d"]
    return max(JUDGED, -(-VALUES // min(places, default=VALUES)))


def first_output(output: Any) -> Any:
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
