"""What models are traced for, and what a worker that traced one leaves in its folder for the parent."""

import dataclasses
import json
import os
from typing import Dict, Mapping, NamedTuple, Sequence

import numpy as np

from framework_compare.graph.network import Graph
from framework_compare.graph.task import Task, image_classification
from framework_compare.json_types import Document, Fields

ANSWER, ARRAYS, EXACT = "trace.json", "weights.npz", "exact.npz"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What models are traced for: images of these sizes, or a user's arrays.

    tasks: of arrays, those with these inputs of which a model's output decides. output: the name of the one that is
    trained of several; "" for the first. loss: file and name of a loss function of the user's.
    """

    sizes: Sequence[int] = ()
    tasks: Sequence[Task] = ()
    output: str = ""
    loss: Sequence[str] = ()

    @property
    def by_size(self) -> Dict[int, Sequence[Task]]:
        """The tasks that a model may be for, by image size: at each size of images as many classes as it gives."""
        if self.tasks:
            return {self.tasks[0].image_size: self.tasks}
        return {size: [image_classification(0, size)] for size in self.sizes}

    @property
    def words(self) -> str:
        shapes = " and ".join(f"{one.name} {one.shape}" for task in self.tasks[:1] for one in task.inputs)
        return f"for {shapes}" if shapes else f"at {', '.join(map(str, self.sizes))} pixels"

    def to_dict(self) -> Fields:
        tasks = [task.to_dict() for task in self.tasks]
        return {"sizes": list(self.sizes), "tasks": tasks, "output": self.output, "loss": list(self.loss)}

    @classmethod
    def from_dict(cls, document: Document) -> "Asked":
        """What `to_dict` gave, perhaps with more beside it."""
        tasks = [Task.from_dict(task) for task in document["tasks"]]
        return cls(document["sizes"], tasks, document["output"], document["loss"])


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
