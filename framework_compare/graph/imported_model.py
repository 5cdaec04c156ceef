"""Models that users bring: what they are traced for, what a worker that traced one leaves for the parent, what is kept.

A model is kept as two files in a folder, graph.json and weights.npy, so that nothing of the user's is needed to train it
again.
"""

import dataclasses
import hashlib
import json
import os
import re
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.network import Graph
from framework_compare.graph.node import Node
from framework_compare.graph.task import Task, image_classification
from framework_compare.graph.weights import initial_values, pieces_of, weights_size
from framework_compare.json_types import Document, Fields

ANSWER, ARRAYS, EXACT = "trace.json", "weights.npz", "exact.npz"  # of a worker that traced a model
GRAPH, WEIGHTS = "graph.json", "weights.npy"  # of a model that is kept
VERSION = 1  # of graph.json
FROM_FILE, SEEDED = "file", "seeded"
STARTS = (FROM_FILE, SEEDED)
PLAIN = ("name", "source", "seeded", "notes", "written", "of_arrays")  # fields that stand in graph.json as they are
WIDTHS = {"Linear": "out_features", "Conv2d": "out_channels"}
# What may stand behind the last layer and leaves the number of classes as it is.
BEHIND = ("AdaptiveAvgPool2d", "AvgPool2d", "Dropout", "Flatten", "GlobalAvgPool", "MaxPool2d", "ReLU")


@dataclasses.dataclass(frozen=True)
class Asked:
    """Data that models are traced for: images of these sizes, or a user's arrays.

    tasks: for arrays, the tasks with these inputs, between which a model's output decides. output: the name of the
    output that is trained; "" for the first. loss: file and name of a loss function of the user's.
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
        """Read what `to_dict` gave, perhaps with more beside it."""
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


@dataclasses.dataclass(frozen=True)
class ImportLevel:
    """The user's own module in float64 against the reference: the worst relative error, and where it is."""

    passed: bool
    where: str
    error: float
    judge: str = ""  # what computed the model as the user wrote it: "torch 2.13.0"
    rounding: float = 0.0  # what a unit in the last place of the images does to the reference there; 0: not asked


@dataclasses.dataclass(frozen=True)
class ImportedModel:
    """Called as a function of models/ is: with a number of classes and an image size it returns a Graph.

    graphs: by image size, with the classes of the source. flat: its arrays, float32, in the order of the graph. seeded:
    what is trained starts from seeded values, as in registered models; constants are those of the source.
    """

    name: str
    source: str  # as the user named it
    graphs: Mapping[int, Graph]
    flat: np.ndarray
    seeded: bool = False
    level: Optional[ImportLevel] = None
    notes: Tuple[str, ...] = ()
    written: Mapping[str, str] = dataclasses.field(default_factory=dict)  # where it is, if another process can load it
    of_arrays: bool = False  # whether it is for a user's arrays; else for folders of images

    @classmethod
    def of(
        cls, stem: str, source: str, graphs: Mapping[int, Graph], flat: np.ndarray, seeded: bool = False, **known: Any
    ) -> "ImportedModel":
        """Named after the stem and its contents, so that two versions of a file are two models.

        UsageError where the arrays of two image sizes are not the same.
        """
        sizes = sorted(graphs)
        for size in sizes[1:]:
            if graphs[size].parameters() != graphs[sizes[0]].parameters():
                raise UsageError(
                    f"{source} has different arrays at {size} and at {sizes[0]} pixels; import it at one size"
                )
        bare = [dataclasses.replace(graphs[size], name="").to_dict() for size in sizes]
        digest = hashlib.sha256(json.dumps(bare, sort_keys=True).encode())
        if seeded:
            digest.update(b"seeded")
        else:
            for piece in pieces_of(flat):
                digest.update(np.ascontiguousarray(piece).data)
        plain = re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_") or "model"
        name = f"{plain}-{digest.hexdigest()[:8]}"
        named = {size: dataclasses.replace(graphs[size], name=name) for size in sizes}
        return cls(name, source, named, flat, seeded, **known)

    def __call__(self, num_classes: int = 0, image_size: int = 0) -> Graph:
        """The graph with a head for these classes (0: those of the source); UsageError at a size it was not traced at."""
        size = (0 if self.of_arrays else image_size) or min(self.graphs)
        if size not in self.graphs:
            known = ", ".join(map(str, sorted(self.graphs)))
            raise UsageError(f"{self.name} was imported for image_size {known}, not {size}; import it for that size")
        return with_head(self.graphs[size], num_classes or self.graphs[size].num_classes)

    def for_task(self, task: Task) -> Graph:
        """The graph for arrays with this task, whose inputs have the shapes that it was traced with.

        Of a classifier the head gets as many outputs as there are classes.
        """
        graph = self(image_size=task.image_size)
        if task.loss == "cross_entropy":
            graph = with_head(graph, task.outputs)
        if [one.shape for one in task.inputs] != [one.shape for one in graph.task.inputs]:
            shapes = ", ".join(str(one.shape) for one in graph.task.inputs)
            raise UsageError(f"{self.name} was imported for inputs of {shapes}; import it for these data")
        return dataclasses.replace(graph, task=task)

    def pieces(self, graph: Graph, seed: int) -> Iterator[np.ndarray]:
        """The weights that a graph of this model starts from, flat, in order, a few megabytes at a time.

        A head of other classes is seeded.
        """
        source = self(image_size=graph.image_size)
        changed = head_of(source) if self.replaced_head(graph.num_classes) else None
        places, start = {}, 0
        for parameter in source.parameters():
            places[parameter.name] = start
            start += parameter.size
        constants = [node for node in source.nodes if node.op == "Parameter" and not node.attrs.get("trained", True)]
        unchanged = constants if self.seeded else [node for node in source.nodes if node != changed]
        kept = {parameter.name for node in unchanged for parameter in source.parameters_of(node)}
        for parameter in graph.parameters():
            if parameter.name in kept:
                yield from pieces_of(self.flat, places[parameter.name], parameter.size)
            else:
                yield from initial_values(graph, parameter, seed)

    def replaced_head(self, num_classes: int) -> str:
        """Return what is to be said where the data have other classes than the source; "" where they have not."""
        graph = self()
        head = head_of(graph)
        if head is None or graph.num_classes == num_classes:
            return ""
        return (
            f"{self.name}: its last layer {head.name!r} for {graph.num_classes} classes is replaced by one for"
            f" {num_classes}, which starts from seeded values"
        )

    def write(self, folder: str) -> None:
        """graph.json and weights.npy, into a folder that is there."""
        document = {
            "version": VERSION,
            **{name: getattr(self, name) for name in PLAIN},
            "graphs": {str(size): graph.to_dict() for size, graph in self.graphs.items()},
            "level": None if self.level is None else dataclasses.asdict(self.level),
        }
        with open(os.path.join(folder, WEIGHTS), "wb") as weights:
            header = {"descr": "<f4", "fortran_order": False, "shape": self.flat.shape}
            np.lib.format.write_array_header_1_0(weights, header)
            weights.writelines(piece.data for piece in pieces_of(self.flat))
        with open(os.path.join(folder, GRAPH), "w", encoding="utf-8") as file:
            json.dump(document, file)

    @classmethod
    def read(cls, folder: str) -> "ImportedModel":
        """Return what `write` wrote; UsageError where that is damaged."""
        path = os.path.join(folder, GRAPH)
        try:
            with open(path, encoding="utf-8") as file:
                document: Fields = json.load(file)
            graphs = {int(size): Graph.from_dict(graph) for size, graph in document["graphs"].items()}
            flat = np.load(os.path.join(folder, WEIGHTS), mmap_mode="r", allow_pickle=False)
            level = None if document["level"] is None else ImportLevel(**document["level"])
            if flat.shape != (weights_size(next(iter(graphs.values()))),):
                raise ValueError(f"{WEIGHTS} has {flat.shape} numbers")
            # a part of names of files, and not that of a registered model
            names = {document["name"], *(graph.name for graph in graphs.values())}
            if len(names) > 1 or not re.fullmatch(r"[a-z0-9_]+-[0-9a-f]{8}", document["name"]):
                raise ValueError(f"it is called {', '.join(sorted(map(repr, names)))}")
            known = {name: document[name] for name in PLAIN}
            return cls(graphs=graphs, flat=flat, level=level, **{**known, "notes": tuple(known["notes"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise UsageError(
                f"the imported model in {folder} cannot be read: {type(error).__name__}: {error}"
            ) from None


def head_of(graph: Graph) -> Optional[Node]:
    """The Linear or Conv2d that gives the logits, perhaps with pooling behind it; None where another layer does."""
    nodes: Dict[str, Node] = {node.name: node for node in graph.nodes}
    node = graph.nodes[-1]
    while node.op in BEHIND and node.inputs[0] in nodes:
        node = nodes[node.inputs[0]]
    alone = sum(other.arrays == node.arrays for other in graph.nodes) == 1
    return node if alone and node.op in WIDTHS and node.attrs[WIDTHS[node.op]] == graph.num_classes else None


def with_head(graph: Graph, classes: int) -> Graph:
    """The same network for another number of classes: its head has that many outputs; UsageError without a head."""
    if classes == graph.num_classes:
        return graph
    head = head_of(graph)
    if head is None:
        raise UsageError(
            f"{graph.name} has {graph.num_classes} classes from a {graph.nodes[-1].op}, but the data have {classes};"
            f" give it {classes} outputs, or end it with a Linear layer, which can be replaced"
        )
    wide = dataclasses.replace(head, attrs={**head.attrs, WIDTHS[head.op]: classes})
    nodes = tuple(wide if node.name == head.name else node for node in graph.nodes)
    changed = dataclasses.replace(graph, nodes=nodes, task=dataclasses.replace(graph.task, outputs=classes))
    changed.shapes()
    return changed
