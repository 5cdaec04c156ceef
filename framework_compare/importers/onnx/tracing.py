"""An ONNX file read and checked, and its logits computed by onnx's own evaluator.

A job of kind "trace" has one task: {"source": where the file is, "sizes": image sizes, "tasks": those for the user's
arrays, "output": the one that is trained}. It writes an OnnxProgram into the run's folder. Nothing in a file is run but
the operators of the standard.
"""

from __future__ import annotations

import dataclasses
import os
import re
from types import ModuleType
from typing import TYPE_CHECKING, Collection, Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Field
from framework_compare.graph.imported_model import Asked
from framework_compare.importers.common.onnx_program import OnnxNode, OnnxProgram, decimal
from framework_compare.importers.common.sources import one_line
from framework_compare.importers.common.tracing import IMAGES, SAMPLES, SEED, drawn_inputs, in_order, output_number
from framework_compare.importers.onnx.evaluation import reference
from framework_compare.json_types import JSON, Document
from framework_compare.protocol import Job, TrainConfig

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

MOST_BYTES = 2**31  # of a file, which protobuf reads at most, and of the weights beside it
STANDARD = ("", "ai.onnx")
EXPORT = (
    "from torch export it by torch.onnx.export(copy.deepcopy(model), images, FILE, dynamo=False,"
    " training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)"
)
# What exporters leave of their rewriting: in the metadata of nodes, and in names.
RULES = "pkg.onnxscript.rewriter.rule_name"
FOLDED_RULE, BIAS_RULE, FOLDED_NAME = "FuseBatchNorm", "RemoveOptionalBias", re.compile(r"_fused_bn\b")
ANONYMOUS = re.compile(r"onnx::Conv_\d+")  # weights that were computed at the export
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "LayerNormalization", "PRelu")
SOFTMAX = ("Softmax", "LogSoftmax")
LAST = {"cross_entropy": SOFTMAX, "token_cross_entropy": SOFTMAX, "binary_cross_entropy": ("Sigmoid",)}


class OnnxImporter:
    """It answers jobs of kind "trace" only."""

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        return {}

    @staticmethod
    def trace(job: Job) -> None:
        """Answer a job of kind "trace"; UsageError, in one line, where the file cannot be used."""
        (task,) = job.tasks
        asked = Asked.from_dict(task)
        if asked.loss:
            raise UsageError("an ONNX file trains with the loss of its target; for loss_function give an nn.Module")
        read(load(task["source"]["path"]), asked).write(os.getcwd())


def load(path: str) -> ModelProto:
    """The checked model of a file, with what lies beside it in its folder."""
    import onnx
    from google.protobuf.message import DecodeError

    if os.path.getsize(path) >= MOST_BYTES:
        raise UsageError(f"{path} has {os.path.getsize(path) / 1e9:.1f} GB; the limit is 2.1 GB")
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError:
        raise UsageError(f"{path} is not an ONNX file, or truncated") from None
    if not (model.graph.node and model.graph.output and model.opset_import):
        raise UsageError(f"{path} is not an ONNX file: it has no nodes or no output")
    _load_beside(onnx, model, path)
    try:
        onnx.checker.check_model(model)
        return onnx.inliner.inline_local_functions(model) if model.functions else model
    except (onnx.checker.ValidationError, ValueError) as error:
        raise UsageError(f"{path} is not a valid ONNX file: {one_line(error)}") from None


def _load_beside(onnx: ModuleType, model: ModelProto, path: str) -> None:
    """Weights in files of their own; those that lie elsewhere than in the model's folder are refused."""
    from onnx import external_data_helper

    folder = os.path.dirname(path)
    beside = [one for one in model.graph.initializer if external_data_helper.uses_external_data(one)]
    kinds = onnx.helper.tensor_dtype_to_np_dtype
    total = sum(int(np.prod(one.dims, dtype=object)) * kinds(one.data_type).itemsize for one in beside)
    if total >= MOST_BYTES:
        raise UsageError(f"{path} has {total / 1e9:.1f} GB of external weights; the limit is 2.1 GB")
    for tensor in beside:
        place = external_data_helper.ExternalDataInfo(tensor).location
        inside = os.path.realpath(os.path.join(folder, place)).startswith(os.path.realpath(folder) + os.sep)
        if os.path.isabs(place) or not inside:
            raise UsageError(f"{path} keeps weights in {place!r}, which is not in its folder; they are not read")
    try:
        external_data_helper.load_external_data_for_model(model, folder)
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UsageError(f"the external weights of {path} cannot be read: {one_line(error)}") from None


def read(model: ModelProto, asked: Asked) -> OnnxProgram:
    """Nodes and arrays of a checked model, and what onnx computes with them; UsageError for what cannot be trained."""
    import onnx

    graph = model.graph
    _check_layers(graph)
    arrays, copies = _arrays(onnx, graph)
    sources = [one for one in graph.input if one.name not in arrays]
    tasks = next(iter(asked.by_size.values()))
    if asked.tasks:
        fields = _fields(onnx, sources, tasks[0].inputs)
        channels_last, batch = False, sources[0].type.tensor_type.shape.dim[0].dim_value
    else:
        fields = ()
        channels_last, batch = _layout(onnx, sources, asked.sizes)
    made = {output: node for node in graph.node for output in node.output}
    names = [one.name for one in graph.output]
    output, notes = _logits(names[output_number(names, asked.output)], made, {task.loss for task in tasks})
    live = _live(graph.node, output, made)
    left = [node for node in live if node.op_type != "Constant" and node.output[0] not in copies]
    users = _users(left)
    arrays = {name: array for name, array in arrays.items() if name in users}
    initial = {one.name for one in graph.initializer} | copies
    statistics = _statistics(left, arrays)
    # ONNX does not say what is trained: float arrays of layers are, and other initialisers of more than one number
    learned = {
        name
        for name, array in arrays.items()
        if array.dtype.kind == "f" and (not set(LAYERS).isdisjoint(users[name]) or (name in initial and array.size > 1))
    } - statistics
    program = OnnxProgram(
        tuple(one.name for one in sources),
        output,
        tuple(_node(onnx, node) for node in left),
        arrays,
        frozenset(learned),
        statistics,
        channels_last,
        batch,
        tuple(field.name for field in fields),
        notes,
    )
    task = dataclasses.replace(tasks[0], inputs=fields or tasks[0].inputs)
    given = drawn_inputs(task, SAMPLES if fields else IMAGES, np.random.default_rng(SEED))
    return dataclasses.replace(program, reference=reference(model, live, program, given))


def _check_layers(graph: GraphProto) -> None:
    """UsageError, with the command that exports properly, where the exporter has folded or left out what is trained."""
    ops = {node.op_type for node in graph.node}
    rules = " ".join(entry.value for node in graph.node for entry in node.metadata_props if entry.key == RULES)
    weights = [node.input[1] for node in graph.node if node.op_type == "Conv"]
    anonymous = "BatchNormalization" not in ops and any(ANONYMOUS.fullmatch(name) for name in weights)
    if FOLDED_RULE in rules or anonymous or any(map(FOLDED_NAME.search, weights)):
        raise UsageError(f"its exporter folded BatchNorm into Conv, so it cannot be trained; {EXPORT}")
    if BIAS_RULE in rules:
        raise UsageError(f"its exporter left out biases that were zero, so they would not be trained; {EXPORT}")
    quantised = sorted(op for op in ops if op.startswith(("QLinear", "Quantize", "Dequantize", "DynamicQuantize")))
    if quantised:
        raise UsageError(f"it is quantised ({', '.join(quantised)}), so it cannot be trained; export it in float32")


def _arrays(onnx: ModuleType, graph: GraphProto) -> Tuple[Dict[str, np.ndarray], Set[str]]:
    """Initialisers and constants, floats in float32, and the names of those that are copies of another.

    torch writes equal arrays once, and the others as Identity of it; each is an array of its own.
    """
    tensors = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    copies = set()
    for node in graph.node:
        if node.op_type == "Constant":
            tensors[node.output[0]] = _constant(onnx, node)
        elif node.op_type == "Identity" and node.input[0] in tensors:
            tensors[node.output[0]] = tensors[node.input[0]]
            copies.add(node.output[0])
    return {name: _plain(name, array) for name, array in tensors.items()}, copies


def _constant(onnx: ModuleType, node: NodeProto) -> np.ndarray:
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value, {"value_int": np.int64, "value_ints": np.int64}.get(attribute.name, np.float32))


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "iub":
        return array
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise UsageError(f"its array {name!r} has the type {array.dtype}; allowed: numbers")
    return array.astype(np.float32)


def _fields(onnx: ModuleType, sources: Sequence[ValueInfoProto], fields: Sequence[Field]) -> Tuple[Field, ...]:
    """Return what each input is given: the array of its name, or, where not all have one, those in their order."""
    found = in_order([one.name for one in sources], fields)
    for source, field in zip(sources, found):
        kind = source.type.tensor_type
        dims = [dim.dim_value for dim in kind.shape.dim]  # 0: not fixed
        letter = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).kind.replace("u", "i")
        fits = len(dims) == 1 + len(field.shape) and all(n in (0, size) for n, size in zip(dims[1:], field.shape))
        if not fits or letter != {"float32": "f", "bool": "b"}.get(field.dtype, "i"):
            shape = " x ".join(str(dim or "?") for dim in dims)
            own = " x ".join(map(str, ("?", *field.shape)))
            what = {"f": "floats", "b": "booleans"}.get(letter, "integers")
            raise UsageError(f"its input {source.name!r} takes {what} {shape}, and {field.name} is {field.dtype} {own}")
    return found


def _layout(onnx: ModuleType, sources: Sequence[ValueInfoProto], sizes: Sequence[int]) -> Tuple[bool, int]:
    """Return whether channels come last, and the number of images that the file is fixed to (0: any)."""
    if len(sources) != 1:
        names = ", ".join(one.name for one in sources)
        raise UsageError(f"it takes {len(sources)} inputs ({names}); allowed: one, a batch of images")
    (source,) = sources
    kind = source.type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]  # 0: not fixed
    channels_last = len(dims) == 4 and dims[3] == 3 and dims[1] != 3
    channels, pixels = (dims[3], dims[1:3]) if channels_last else (dims[1], dims[2:]) if len(dims) == 4 else (0, [])
    if len(dims) != 4 or channels not in (0, 3) or onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).kind != "f":
        shape = " x ".join(str(dim or "?") for dim in dims)
        raise UsageError(
            f"its input {source.name!r} has shape {shape}; allowed: images, N x 3 x S x S or N x S x S x 3"
        )
    for size in sizes:
        if any(fixed not in (0, size) for fixed in pixels):
            raise UsageError(f"it is fixed to images of {pixels[0]} x {pixels[1]} pixels, but image_size is {size}")
    return channels_last, dims[0]


def _logits(name: str, made: Document, losses: Collection[str]) -> Tuple[str, Tuple[str, ...]]:
    """The output, in front of a last softmax or sigmoid where the loss takes logits."""
    node = made.get(name)
    if node is None:
        raise UsageError(f"its output {name!r} does not depend on its inputs")
    if any(node.op_type in ops and loss in losses for loss, ops in LAST.items()):
        return node.input[0], (f"its last layer, {node.op_type}, is removed: losses take logits",)
    return name, ()


def _live(nodes: Sequence[NodeProto], output: str, made: Document) -> List[NodeProto]:
    """The nodes that the output needs, in their order."""
    needed, waiting = set(), [output]
    while waiting:
        node = made.get(waiting.pop())
        if node is not None and id(node) not in needed:
            needed.add(id(node))
            waiting += node.input
    return [node for node in nodes if id(node) in needed]


def _users(nodes: Sequence[NodeProto]) -> Dict[str, List[str]]:
    """Kinds of the nodes that read each value."""
    users: Dict[str, List[str]] = {}
    for node in nodes:
        for name in filter(None, node.input):
            users.setdefault(name, []).append(node.op_type)
    return users


def _statistics(nodes: Sequence[NodeProto], arrays: Mapping[str, np.ndarray]) -> FrozenSet[str]:
    names = frozenset(name for node in nodes if node.op_type == "BatchNormalization" for name in node.input[3:5])
    computed = sorted(names - set(arrays))
    if computed:
        raise UsageError(f"its BatchNormalization reads statistics that are computed ({computed[0]}), not running ones")
    return names


def _node(onnx: ModuleType, node: NodeProto) -> OnnxNode:
    attrs = {one.name: _plain_attribute(onnx, one) for one in node.attribute}
    op = node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"
    return OnnxNode(op, node.name or node.output[0], tuple(node.input), tuple(node.output), attrs)


def _plain_attribute(onnx: ModuleType, attribute: AttributeProto) -> JSON:
    """A number, text, or a list of numbers; None for what no operator here has."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return decimal(value)
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value).ravel().tolist()
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, list) and all(isinstance(one, (int, float)) for one in value):
        return [decimal(one) if isinstance(one, float) else one for one in value]
    return None
