"""An ONNX file as nodes and arrays: what the worker that reads it hands to the one that makes a torch module of it."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Tuple

import numpy as np

PROGRAM, ARRAYS, REFERENCE = "program.json", "program.npz", "reference.npz"


class OnnxNode(NamedTuple):
    """Inputs and outputs are names of values, "" for one that is left out; attributes are plain JSON values."""

    op: str
    name: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    attrs: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class OnnxProgram:
    """Nodes in their order, up to the logits.

    arrays: initialisers and constants by the names of their values; of these `trained` are parameters and `statistics`
    are running statistics. batch: the number of images that the file is fixed to, 0 for any. reference: what onnx's
    own evaluator computes in float64 in evaluation mode: "images" (N, 3, S, S), "logits", and by "start:<name>" the
    arrays that it started from.
    """

    input: str
    output: str
    nodes: Tuple[OnnxNode, ...]
    arrays: Mapping[str, np.ndarray]
    trained: FrozenSet[str]
    statistics: FrozenSet[str]
    channels_last: bool
    batch: int
    notes: Tuple[str, ...] = ()
    reference: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def write(self, folder: str) -> None:
        names = list(self.arrays)
        document = {
            "input": self.input,
            "output": self.output,
            "nodes": [list(node) for node in self.nodes],
            "names": names,  # of the arrays, which stand under numbers: no name is the name of a file
            "trained": sorted(self.trained),
            "statistics": sorted(self.statistics),
            "channels_last": self.channels_last,
            "batch": self.batch,
            "notes": list(self.notes),
            "reference": list(self.reference),
        }
        for place, arrays in ((ARRAYS, self.arrays), (REFERENCE, self.reference)):
            np.savez(os.path.join(folder, place), **{f"a{i}": array for i, array in enumerate(arrays.values())})
        with open(os.path.join(folder, PROGRAM), "w", encoding="utf-8") as file:
            json.dump(document, file)

    @classmethod
    def read(cls, folder: str) -> "OnnxProgram":
        with open(os.path.join(folder, PROGRAM), encoding="utf-8") as file:
            document = json.load(file)
        nodes = tuple(OnnxNode(op, name, tuple(i), tuple(o), attrs) for op, name, i, o, attrs in document["nodes"])
        return cls(
            document["input"],
            document["output"],
            nodes,
            _numbered(os.path.join(folder, ARRAYS), document["names"]),
            frozenset(document["trained"]),
            frozenset(document["statistics"]),
            document["channels_last"],
            document["batch"],
            tuple(document["notes"]),
            _numbered(os.path.join(folder, REFERENCE), document["reference"]),
        )


def _numbered(path: str, names: List[str]) -> Dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[f"a{number}"] for number, name in enumerate(names)}


def decimal(value: float) -> float:
    """The number that was meant: ONNX keeps attributes in float32, 1e-5 as 9.99999975e-06; 1/6 has no short form."""
    short = float(str(np.float32(value)))
    return 1 / 6 if np.float32(short) == np.float32(1 / 6) else short
