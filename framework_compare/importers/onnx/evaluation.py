"""Evaluate a model in float64 with onnx's reference evaluator, in evaluation mode."""

from __future__ import annotations

import math
from types import ModuleType
from typing import TYPE_CHECKING, Dict, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.importers.common.onnx_program import OnnxProgram, decimal
from framework_compare.importers.common.sources import one_line
from framework_compare.importers.common.tracing import SEED, moved
from framework_compare.json_types import Document

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from onnx.reference import ReferenceEvaluator

ROOTS = (2**0.5, 0.5**0.5)
DECIMALS = ("epsilon", "alpha", "beta")  # attributes that are float32 in the file


def reference(
    model: ModelProto, nodes: Sequence[NodeProto], program: OnnxProgram, given: Sequence[np.ndarray]
) -> Dict[str, np.ndarray]:
    """ "input:<name>", "logits", and "start:<name>" of what is trained and of statistics; "failure" where onnx cannot run it.

    given: its inputs in their order, floats in float64; images channels first.
    """
    rng = np.random.default_rng(SEED)
    variances = {node.inputs[4] for node in program.nodes if node.op == "BatchNormalization"}
    learned = sorted(program.trained | program.statistics)
    start = {name: moved(rng, program.arrays[name], positive=name in variances) for name in learned}
    inputs = dict(zip(program.inputs, given))
    feed = {name: one.transpose(0, 2, 3, 1) if program.channels_last else one for name, one in inputs.items()}
    count = len(given[0])
    step = program.batch or count
    try:
        fixed = _fixed(model, nodes, program, {**program.arrays, **start}, feed)
        evaluator = _evaluator(model, nodes, program, {**program.arrays, **start, **fixed}, [program.output])
        parts = []
        for first in range(0, count, step):
            rows = np.arange(first, first + step) % count
            parts += evaluator.run(None, {name: _as_declared(model, name, one[rows]) for name, one in feed.items()})
    except Exception as error:  # what it lacks may be what no operator is for, which is said for all layers at once
        shapes = " and ".join(str(one.shape) for one in given)
        return {"failure": np.array(f"onnx cannot run it on {shapes}: {one_line(error)}")}
    fed = {f"input:{name}": one for name, one in inputs.items()}
    started = {f"start:{name}": array for name, array in start.items()}
    return {**fed, "logits": np.concatenate(parts)[:count], **started}


def _fixed(
    model: ModelProto,
    nodes: Sequence[NodeProto],
    program: OnnxProgram,
    arrays: Mapping[str, np.ndarray],
    feed: Document,
) -> Dict[str, np.ndarray]:
    """Numbers that depend on shapes alone, in float32 as whoever runs the file computes them."""
    names = program.constants(program.nodes)
    if not names:
        return {}
    single = {name: _in_single(_as_declared(model, name, one)) for name, one in feed.items()}
    found = dict(zip(names, _evaluator(model, nodes, program, arrays, names, double=False).run(None, single)))
    return {name: array for name, array in found.items() if np.asarray(array).dtype.kind == "f"}


def _as_declared(model: ModelProto, name: str, array: np.ndarray) -> np.ndarray:
    """Whole numbers in the type that the file declares."""
    import onnx

    (kind,) = (one.type.tensor_type.elem_type for one in model.graph.input if one.name == name)
    return array if array.dtype.kind == "f" else array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))


def _evaluator(
    model: ModelProto,
    nodes: Sequence[NodeProto],
    program: OnnxProgram,
    arrays: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    *,
    double: bool = True,
) -> ReferenceEvaluator:
    """One for the nodes in evaluation mode, whose arrays are float64 or, where not `double`, float32."""
    import onnx
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Erf(OpRun):
        """onnx's own gives float32 whatever it gets."""

        op_domain = ""

        def _run(self, x: np.ndarray) -> Tuple[np.ndarray]:
            return (np.vectorize(math.erf, otypes=[x.dtype])(x),)

    class Gelu(OpRun):
        """onnx's own has the constants of the tanh form in float32."""

        op_domain = ""

        def _run(self, x: np.ndarray, approximate: str = "none") -> Tuple[np.ndarray]:
            if approximate == "tanh":
                share = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
            else:
                share = np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2))
            return (x * (1 + share) / 2,)

    made = [_in_evaluation(onnx, node, double) for node in nodes if node.output[0] not in arrays]
    given = {name: _in_double(array) if double else _in_single(array) for name, array in arrays.items()}
    initial = [onnx.numpy_helper.from_array(array, name) for name, array in given.items()]
    kinds = {one.name: one.type.tensor_type.elem_type for one in model.graph.input if one.name in program.inputs}
    wide = {onnx.TensorProto.FLOAT: onnx.TensorProto.DOUBLE} if double else {}
    begins = [onnx.helper.make_tensor_value_info(name, wide.get(kind, kind), None) for name, kind in kinds.items()]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in outputs]
    graph = onnx.helper.make_graph(made, "evaluation", begins, ends, initial)
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=model.opset_import), new_ops=[Erf, Gelu])
    for node in evaluator.rt_nodes_:
        for name in DECIMALS:
            if isinstance(getattr(node, name, None), (float, np.floating)):
                setattr(node, name, decimal(getattr(node, name)))
    return evaluator


def _in_double(array: np.ndarray) -> np.ndarray:
    """Floats in float64; of a single one that is a root, as in GELU, the digits that float32 has not kept."""
    if array.dtype.kind != "f":
        return array
    exact = array.astype(np.float64)
    roots = [root for root in ROOTS if array.size == 1 and np.float32(root) == array.ravel()[0]]
    return np.full(array.shape, roots[0]) if roots else exact


def _in_single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _in_evaluation(onnx: ModuleType, node: NodeProto, double: bool) -> NodeProto:
    """The node without dropout, statistics of a batch and, in double, casts to float32."""
    if node.op_type == "Dropout":
        return onnx.helper.make_node("Identity", node.input[:1], node.output[:1])
    made = onnx.NodeProto()
    made.CopyFrom(node)
    if node.op_type == "BatchNormalization":
        del made.output[1:]
    for attribute in made.attribute:
        if attribute.name == "training_mode":
            attribute.i = 0
        if double and node.op_type == "Cast" and attribute.name == "to" and attribute.i == onnx.TensorProto.FLOAT:
            attribute.i = onnx.TensorProto.DOUBLE
    return made
