"""Levels 0 to 3 and 5: the questions to a worker about one network, as tasks of the probe."""

import dataclasses
from pathlib import Path

import numpy as np

from framework_compare.graph import Graph, weight_views
from framework_compare.parity.network import surgery
from framework_compare.parity.network.reference import Reference
from framework_compare.protocol import Fields, TrainConfig

PASSES = {"Dropout": 4, "StochasticDepth": 32}  # one number a value says more than one a sample


FULL = " at full size"  # of the answers to levels 1 and 2 about a batch of the cell's own size


def build_task(name: str, graph: Graph, weights: Path) -> Fields:
    """The task of building a network, with the weights in a file."""
    return {"ask": "build", "name": name, "graph": graph.to_dict(), "weights": str(weights)}


def network_tasks(found: Reference, full: Reference, folder: Path) -> list[Fields]:
    """Levels 0 to 3 as tasks of the probe; `folder` holds what `Reference.write` wrote, for `full`, too."""
    batches = str(folder / "batches.npz")
    evaluation = {"ask": "forward", "name": "evaluation", "training": False, "batches": batches}
    training = {"ask": "forward", "name": "training", "training": True, "batches": batches}
    gradients = {"ask": "gradients", "name": "gradients", "batches": batches}

    def at_full_size(task: Fields) -> Fields:
        return {**task, "name": task["name"] + FULL, "samples": full.samples.tolist()}

    return [
        build_task("build", found.graph, folder / "weights.npy"),
        {"ask": "weights", "name": "weights"},
        *(evaluation, training, at_full_size(evaluation), at_full_size(training)),
        build_task("build smooth", found.graph, folder / "smooth.npy"),
        *(gradients, at_full_size(gradients)),
        {"ask": "steps", "name": "steps", "batches": batches},
        {"ask": "steps", "name": "again", "batches": batches, "count": 1},
    ]


def generation_tasks(config: TrainConfig, found: Reference, folder: Path) -> list[Fields]:
    """Return what a cell generates behind the prompts of the first batch, at the weights of level 1; else none."""
    if config.mode != "generation":
        return []
    prompt = found.graph.input_shape[0] - config.new_tokens
    return [
        build_task("build to generate", found.graph, folder / "weights.npy"),
        {"ask": "generate", "name": "generated", "batches": str(folder / "batches.npz"), "prompt": prompt},
    ]


def dropout_tasks(graph: Graph, found: Reference, folder: Path) -> list[Fields]:
    """Level 5: each Dropout at the end of the network up to it, once with it and once without; and the whole one."""
    tasks, graph = [], surgery.asked_dropout(graph)
    pairs = [(f"dropout {i}", surgery.up_to(graph, n.name), True) for i, n in enumerate(surgery.dropout_nodes(graph))]
    if pairs:
        pairs.append(("dropout off", graph, False))
    for name, cut, training in pairs:
        for kind, network in (("with", _only_last_dropout(cut) if training else cut), ("without", cut)):
            network = surgery.without_dropout(network) if kind == "without" else network
            path = folder / f"{name.replace(' ', '-')}.npy"
            if not path.exists():
                np.save(path, surgery.flat_weights(network, weight_views(found.graph, found.flat)))
            ask = {"ask": "forward", "training": training, "batches": str(folder / "batches.npz")}
            times = PASSES[cut.nodes[-1].op] if training and kind == "with" else 1
            tasks.append(build_task(f"{name} {kind} build", network, path))
            tasks.append({**ask, "name": f"{name} {kind}", "times": times})
    return tasks + _in_steps_tasks(graph, folder) if pairs else tasks


def _in_steps_tasks(graph: Graph, folder: Path) -> list[Fields]:
    """Gradients as a training step has them, with the network's dropout and without."""
    tasks = []
    for kind, network in (("with", graph), ("without", surgery.without_dropout(graph))):
        name = f"dropout in steps {kind}"
        tasks.append(build_task(f"{name} build", network, folder / "weights.npy"))
        tasks.append({"ask": "gradients", "name": name, "batches": str(folder / "batches.npz")})
    return tasks


def _only_last_dropout(cut: Graph) -> Graph:
    last = cut.nodes[-1]
    rest = surgery.without_dropout(dataclasses.replace(cut, nodes=cut.nodes[:-1]))
    source = rest.nodes[-1].name
    return dataclasses.replace(cut, nodes=(*rest.nodes, dataclasses.replace(last, inputs=(source,))))
