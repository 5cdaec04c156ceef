"""What onnx's reference evaluator computes of a model in float64, in evaluation mode."""

from __future__ import annotations

import math
from types import ModuleType
from typing import TYPE_CHECKING, Dict, Mapping, Sequence, Tuple

import numpy as np

from framework_compare.importers.common.judging import SEED, moved
from framework_compare.importers.common.onnx_program import OnnxProgram, decimal
from framework_compare.importers.common.user_file import one_line

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from onnx.reference import ReferenceEvaluator

IMAGES = 3
ROOTS = (2**0.5, 0.5**0.5)
DECIMALS = ("epsilon", "alpha", "beta")  # attributes that are float32 in the file


def reference(model: ModelProto, nodes: Sequence[NodeProto], program: OnnxProgram, size: int) -> Dict[str, np.ndarray]:
    """ "images", "logits", and "start:<name>" of what is trained and of statistics; "failure" where onnx cannot run it."""
    rng = np.random.default_rng(SEED)
    variances = {node.inputs[4] for node in program.nodes if node.op == "BatchNormalization"}
    learned = sorted(program.trained | program.statistics)
    start = {name: moved(rng, program.arrays[name], positive=name in variances) for name in learned}
    images = rng.standard_normal((IMAGES, 3, size, size))
    feed = images.transpose(0, 2, 3, 1) if program.channels_last else images
    step = program.batch or IMAGES
    try:
        evaluator = _evaluator(model, nodes, program, {**program.arrays, **start})
        parts = [
            evaluator.run(None, {program.input: feed[np.arange(first, first + step) % IMAGES]})[0]
            for first in range(0, IMAGES, step)
        ]
    except Exception as error:  # what it lacks may be what no operator is for, which is said for all layers at once
        return {"failure": np.array(f"onnx cannot run it at {size} x {size} pixels: {one_line(error)}")}
    logits = np.concatenate(parts)[:IMAGES]
    return {"images": images, "logits": logits, **{f"start:{name}": array for name, array in start.items()}}


def _evaluator(
    model: ModelProto, nodes: Sequence[NodeProto], program: OnnxProgram, arrays: Mapping[str, np.ndarray]
) -> ReferenceEvaluator:
    """One for the nodes in evaluation mode, whose arrays are float64."""
    import onnx
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Erf(OpRun):  # type: ignore[misc]
        """onnx's own gives float32 whatever it gets."""

        op_domain = ""

        def _run(self, x: np.ndarray) -> Tuple[np.ndarray]:
            return (np.vectorize(math.erf, otypes=[np.float64])(x),)

    made = [_in_evaluation(onnx, node) for node in nodes if node.output[0] not in arrays]
    initial = [onnx.numpy_helper.from_array(_in_double(array), name) for name, array in arrays.items()]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None)
        for name in (program.input, program.output)
    ]
    graph = onnx.helper.make_graph(made, "evaluation", ends[:1], ends[1:], initial)
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=model.opset_import), new_ops=[Erf])
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


def _in_evaluation(onnx: ModuleType, node: NodeProto) -> NodeProto:
    """The node without dropout, statistics of a batch and casts to float32."""
    if node.op_type == "Dropout":
        return onnx.helper.make_node("Identity", node.input[:1], node.output[:1])
    made = onnx.NodeProto()
    made.CopyFrom(node)
    if node.op_type == "BatchNormalization":
        del made.output[1:]
    for attribute in made.attribute:
        if attribute.name == "training_mode":
            attribute.i = 0
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == onnx.TensorProto.FLOAT:
            attribute.i = onnx.TensorProto.DOUBLE
    return made
