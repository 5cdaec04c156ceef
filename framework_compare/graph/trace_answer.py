"""What a worker that traced a model leaves in its folder for the parent: graphs, arrays, and exact values to check them by."""

import json
import os
from typing import Mapping, NamedTuple, Sequence

import numpy as np

from framework_compare.graph.network import Graph
from framework_compare.json_types import Fields

ANSWER, ARRAYS, EXACT = "trace.json", "weights.npz", "exact.npz"


class TraceAnswer(NamedTuple):
    """Graphs by image size, float32 arrays by their names there, what the model computes in float64, and remarks.

    exact: input:<name in the graph>, target, start:<array> (where it starts), evaluation and training (what the output is
    then), gradient:<array>, after:<statistic>.
    """

    graphs: Mapping[int, Graph]
    arrays: Mapping[str, np.ndarray]
    exact: Mapping[str, np.ndarray]
    notes: Sequence[str]
    version: str  # of the framework that traced

    def write(self, folder: str) -> None:
        for name, arrays in ((ARRAYS, self.arrays), (EXACT, self.exact)):
            np.savez(os.path.join(folder, name), **arrays)  # type: ignore[arg-type]  # beside names, an option of numpy's
        graphs = {size: graph.to_dict() for size, graph in self.graphs.items()}
        with open(os.path.join(folder, ANSWER), "w", encoding="utf-8") as file:
            json.dump({"graphs": graphs, "notes": list(self.notes), "version": self.version}, file)

    @classmethod
    def read(cls, folder: str) -> "TraceAnswer":
        """Return what `write` wrote; an array is read each time it is asked for."""
        with open(os.path.join(folder, ANSWER), encoding="utf-8") as file:
            document: Fields = json.load(file)
        graphs = {int(size): Graph.from_dict(graph) for size, graph in document["graphs"].items()}
        arrays, exact = (np.load(os.path.join(folder, name), allow_pickle=False) for name in (ARRAYS, EXACT))
        return cls(graphs, arrays, exact, document["notes"], document["version"])
