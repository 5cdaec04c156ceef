"""An ONNX file as nodes and arrays: what the worker that reads it hands to the one that makes a torch module of it."""

import dataclasses
import json
import os
from typing import FrozenSet, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from framework_compare.json_types import Document

PROGRAM, PLACES = "program.json", {"arrays": "program.npz", "reference": "reference.npz"}


class OnnxNode(NamedTuple):
    """Inputs and outputs are names of values, "" for one that is left out; attributes are plain JSON values."""

    op: str
    name: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    attrs: Document


@dataclasses.dataclass(frozen=True)
class OnnxProgram:
    """Nodes in their order, up to the logits.

    arrays: initialisers and constants by the names of their values; of these `trained` are parameters and `statistics`
    are running statistics. inputs: names of values; fields: of a user's arrays those that they are given, none for
    images. batch: the number of samples that the file is fixed to, 0 for any. reference: what onnx's own evaluator
    computes in float64 in evaluation mode: "input:<name>" of its inputs, images as (N, 3, S, S), "logits", and by
    "start:<name>" the arrays that it started from.
    """

    inputs: Tuple[str, ...]
    output: str
    nodes: Tuple[OnnxNode, ...]
    arrays: Mapping[str, np.ndarray]
    trained: FrozenSet[str]
    statistics: FrozenSet[str]
    channels_last: bool
    batch: int
    fields: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    reference: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def constants(self, nodes: Sequence[OnnxNode]) -> List[str]:
        """Values computed by nodes that depend on nothing but shapes: on no input, and on nothing that is trained."""
        known = {*self.arrays, ""} - self.trained - self.statistics
        computed: List[str] = []
        for node in nodes:
            alone = known.issuperset(node.inputs) and not node.op.startswith("Random")
            if node.op in ("Shape", "Size") or alone:
                known.update(node.outputs)
                computed += node.outputs
        return computed

    def write(self, folder: str) -> None:
        """Arrays stand under numbers in their files: no name is the name of a file."""
        document = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        document.update(trained=sorted(self.trained), statistics=sorted(self.statistics))
        for name, place in PLACES.items():
            arrays = document[name]
            np.savez(os.path.join(folder, place), **{f"a{i}": array for i, array in enumerate(arrays.values())})
            document[name] = list(arrays)
        with open(os.path.join(folder, PROGRAM), "w", encoding="utf-8") as file:
            json.dump(document, file)

    @classmethod
    def read(cls, folder: str) -> "OnnxProgram":
        with open(os.path.join(folder, PROGRAM), encoding="utf-8") as file:
            document = json.load(file)
        for name, place in PLACES.items():
            with np.load(os.path.join(folder, place), allow_pickle=False) as file:
                document[name] = {own: file[f"a{number}"] for number, own in enumerate(document[name])}
        nodes = (OnnxNode(op, name, tuple(i), tuple(o), attrs) for op, name, i, o, attrs in document["nodes"])
        kinds = {"trained": frozenset, "statistics": frozenset, "notes": tuple, "inputs": tuple, "fields": tuple}
        document.update({name: kind(document[name]) for name, kind in kinds.items()}, nodes=tuple(nodes))
        return cls(**document)


def decimal(value: float) -> float:
    """The number that was meant: ONNX keeps attributes in float32, 1e-5 as 9.99999975e-06; 1/6 has no short form."""
    short = float(str(np.float32(value)))
    return 1 / 6 if np.float32(short) == np.float32(1 / 6) else short
