"""Inspect an imported model: its parts, and the frameworks that lack an op of it, before anything trains."""

import math

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.graph import OPS, Graph


def layer_lines(graph: Graph) -> list[str]:
    """One line for each node: name, op, output shape, trained numbers, multiply-accumulates."""
    shapes = graph.shapes()
    rows = [("layer", "op", "output", "parameters", "MACs")]
    for node in graph.nodes:
        own = graph.parameters_of(node) if node.arrays == node.name else []
        trained = sum(parameter.size for parameter in own if parameter.trainable)
        macs, output = OPS[node.op].macs(node, shapes[node.name]), " x ".join(map(str, shapes[node.name]))
        count = f"{trained:,}" if trained else "" if node.arrays == node.name else f"of {node.arrays}"
        rows.append((node.name, node.op, output, count, f"{macs:,}" if macs else ""))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        f"{name:{widths[0]}}  {op:{widths[1]}}  {shape:{widths[2]}}  {count:>{widths[3]}}  {macs:>{widths[4]}}".rstrip()
        for name, op, shape, count, macs in rows
    ]


def summary(graph: Graph) -> str:
    what = f"{graph.task.unit}"
    if graph.image_size:
        size = math.prod(graph.input_shape[1:])
        what += f" of {graph.image_size} x {graph.image_size} ({size:,} pixels)"
    frozen = sum(parameter.size for parameter in graph.parameters() if parameter.frozen)
    more = f" to train and {frozen:,} frozen" if frozen else ""
    counts = f"{len(graph.nodes)} layers, {graph.parameter_count():,} parameters{more}"
    return f"{counts}, {graph.macs() / 1e6:,.1f} M MACs per {what}"


def missing_ops(graph: Graph) -> dict[str, list[str]]:
    """Return a graph's undeclared ops by framework; an adapter given as a file is only asked when it runs."""
    asked = {}
    for name in registry.PLAIN:
        target = registry.framework(name).trainer
        if ".py:" in target or "/" in target:
            continue
        try:
            declared = registry.load(target).declared.ops  # type: ignore[attr-defined]
        except (ImportError, AttributeError) as error:
            raise UsageError(f"the adapter of {name} declares nothing: {error}") from None
        asked[name] = sorted({node.op for node in graph.nodes} - declared)
    return asked
