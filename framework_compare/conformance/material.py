"""Material that the suite gives to a worker: images, weights, batches, and the questions asked with them."""

import dataclasses
import json
from pathlib import Path
from typing import Collection, List, Mapping, Tuple

import numpy as np

from framework_compare.conformance import graphs
from framework_compare.graph import Graph, initial_flat, weight_views
from framework_compare.parity.network.reference import save_batches
from framework_compare.parity.network.surgery import without_dropout
from framework_compare.parity.network.tasks import build_task
from framework_compare.parity.pipeline import scenes
from framework_compare.protocol import Fields, TrainConfig

CLASSES = len(scenes.KINDS)  # each image is a class of its own, to know it by
EVEN, FEW = 8, 3  # images: whole batches of 4; fewer than one
STEPS = 4
THREADS_S = 1.0  # of steps over which threads are watched
STRANGE = "no-such-thing"


@dataclasses.dataclass(frozen=True)
class Material:
    """Paths of the files written. `images` has 11 images: two batches of 4 and one of 3."""

    folder: Path
    graph: Graph  # with dropout, if that is declared
    replacing: Graph
    busy: Graph
    config: TrainConfig

    @property
    def smooth(self) -> Graph:
        """Without dropout, so that the same steps have the same losses."""
        return without_dropout(self.graph)

    @property
    def smooth_weights(self) -> Mapping[str, np.ndarray]:
        return weight_views(self.smooth, np.load(self.folder / "build-smooth.npy"))

    @property
    def images(self) -> Path:
        return self.folder / "all" / "images.json"

    @property
    def weights(self) -> Path:
        return self.folder / "weights.npy"

    def conduct_tasks(self) -> List[Fields]:
        """Losses before other questions draw from generators; threads before a loader is open; what ends all, last."""
        batches = str(self.folder / "batches.npz")
        return [
            *self.repeated_tasks()[:-1],
            self._build("build heavy", self.busy),
            {"ask": "threads", "batches": str(self.folder / "large.npz"), "seconds": THREADS_S},
            self._build("build", self.graph),
            {"ask": "interface"},
            {"ask": "arrays", "batches": batches},
            {"ask": "copies", "batches": batches},
            self._build("build smooth", self.smooth),
            {"ask": "steps", "name": "first", "batches": batches},
            {"ask": "steps", "name": "repeated", "batches": batches},
            self._build("other", self.replacing),
            {"ask": "weights", "name": "replaced"},
            self._build("build smooth", self.smooth),
            {"ask": "steps", "name": "rebuilt", "batches": batches},
            self._build("build", self.graph),
            self._source("native"),
            self._source("even", "native", "even"),
            self._source("few", "native", "few"),
            self._source("shared"),
            self._source("memory"),
            {"ask": "release", "images": str(self.images)},
        ]

    def repeated_tasks(self) -> List[Fields]:
        """The questions repeated to a fresh worker with the same seed."""
        return [
            self._build("build", self.graph),
            {"ask": "shared", "name": "losses", "images": str(self.images), "steps": 6},
            self._source("native"),
        ]

    @property
    def broken(self) -> Tuple[str, str]:
        """A layer of the network and what of it the broken one lacks: of BatchNorm its channels, else of the last its inputs."""
        found = [node.name for node in self.graph.nodes if "channels" in node.attrs]
        return (found[0], "channels") if found else (self.graph.nodes[-1].name, "in_features")

    def broken_graph(self) -> Fields:
        """The network with a layer in it that does not say how large it is."""
        document, (layer, attribute) = self.graph.to_dict(), self.broken
        (node,) = (node for node in document["nodes"] if node["name"] == layer)
        del node["attrs"][attribute]
        return document

    def strange_graph(self) -> Fields:
        """The network with an op in it that no adapter has."""
        document = self.graph.to_dict()
        document["nodes"][1]["op"] = STRANGE
        return document

    def unreadable_images(self) -> Path:
        """The list with one file in it that is not an image."""
        path = self.folder / "unreadable" / "images.json"
        if not path.exists():
            path.parent.mkdir()
            broken = path.with_name("broken.jpeg")
            broken.write_bytes(b"this is not an image\n" * 100)
            document = json.loads(self.images.read_text(encoding="utf-8"))
            document["paths"][-1], document["formats"][-1] = str(broken), "JPEG"
            path.write_text(json.dumps(document), encoding="utf-8")
        return path

    def _build(self, name: str, graph: Graph) -> Fields:
        path = self.folder / f"{name.replace(' ', '-')}.npy"
        if not path.exists():
            np.save(path, initial_flat(graph, 0))
        return build_task(name, graph, path)

    def _source(self, name: str, pipeline: str = "", listed: str = "all") -> Fields:
        path = self.folder / listed / "images.json"
        return {"ask": "source", "name": name, "pipeline": pipeline or name, "images": str(path)}


def write(folder: Path, config: TrainConfig, ops: Collection[str]) -> Material:
    """All files of the suite but the ladder's own; the networks in them have only these ops."""
    every = scenes.write_scenes(folder / "all")
    for name, count in (("even", EVEN), ("few", FEW)):
        (folder / name).mkdir()
        scenes.listed(folder / name, [Path(path) for path in every.paths[:count]], every.formats[:count])
    graph = graphs.questioned(ops, config.num_classes, config.image_size)
    np.save(folder / "weights.npy", initial_flat(graph, config.seed))
    rng = np.random.default_rng(0)
    small = (config.batch_size, 3, config.image_size, config.image_size)
    for name, count, shape in (("batches.npz", STEPS, small), ("large.npz", 1, (8, 3, 64, 64))):
        images = [rng.standard_normal(shape, dtype=np.float32) for _ in range(count)]
        save_batches(folder / name, [(one, rng.integers(0, CLASSES, len(one))) for one in images])
    replacing, busy = graphs.replacing(ops, 5, config.image_size), graphs.busy(ops, config.num_classes)
    return Material(folder, graph, replacing, busy, config)
