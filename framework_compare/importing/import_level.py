"""The level "import": the user's own module in float64, in its own framework, against the reference on the graph.

It is judged by a process of its own, as the reference in float64 takes many times the weights: the comparing process gets
the verdict and a file of the weights, and holds neither in its memory.
"""

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Mapping

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Graph
from framework_compare.graph.imported_model import ImportLevel, TraceAnswer
from framework_compare.parity.network.deviations import relative
from framework_compare.parity.network.oracle import Oracle
from framework_compare.parity.network.surgery import flat_weights, without_dropout

Arrays = Mapping[str, np.ndarray]
LEVEL, FLAT = "level.json", "flat.npy"
PR_SET_PDEATHSIG = 1
TOLERANCE = 1e-10  # both are float64; what differs is the order of sums
SMALL = 1e-3  # of the largest gradient: one that is zero by construction (a bias in front of BatchNorm) is noise
AMPLIFIED = 10.0  # times what a unit in the last place of the images does to the reference itself
MOST = 1e-8  # that is allowed for that: a tenth of what one rounding to float32 changes


def judged(folder: Path, judge_name: str) -> tuple[ImportLevel | None, np.ndarray]:
    """The level "import" of the TraceAnswer in a folder, None where it has nothing to judge by, and its flat weights.

    The weights stay in their file, also when that is deleted. judge_name: what computed the exact answers.
    """
    command = [sys.executable, "-m", __name__, str(folder), judge_name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        hint = "; use a machine with more memory" if done.returncode == -signal.SIGKILL or "MemoryError" in last else ""
        raise UsageError(f"the model could not be compared with its source: {last}{hint}")
    level = json.loads((folder / LEVEL).read_text(encoding="utf-8"))
    return level and ImportLevel(**level), np.load(folder / FLAT, mmap_mode="r")


def judge(graph: Graph, exact: Arrays, judge_name: str) -> ImportLevel:
    """Logits in evaluation and in training, every gradient, every running statistic; the worst of them.

    exact: what the module computes, as TraceAnswer has it. Where one differs by more than TOLERANCE it is allowed as much
    as rounding is amplified there, up to MOST: many BatchNorms over few values do that.
    """
    bare = without_dropout(graph)
    start = {parameter.name: exact[f"start:{parameter.name}"] for parameter in bare.parameters()}
    inputs, target = tuple(exact[f"input:{name}"] for name in bare.inputs), exact["target"]
    found = _answers(bare, start, inputs, target)
    errors = _errors(found, exact)
    where = max(errors, key=lambda name: errors[name])
    passed, rounding = errors[where] <= TOLERANCE, 0.0
    if not passed:
        moved = tuple(np.nextafter(one, np.inf) if one.dtype.kind == "f" else one for one in inputs)
        noise = _errors(_answers(bare, start, moved, target), found)
        rounding = noise[where]
        passed = all(error <= max(TOLERANCE, min(AMPLIFIED * noise[name], MOST)) for name, error in errors.items())
    return ImportLevel(bool(passed), where, float(errors[where]), judge_name, float(rounding))


def _answers(graph: Graph, start: Arrays, inputs: tuple[np.ndarray, ...], target: np.ndarray) -> dict[str, np.ndarray]:
    """The reference's, by the names that `exact` has."""
    oracle = Oracle(graph, start)
    _, training, gradients, statistics = oracle.gradients(inputs, target)
    return {
        "evaluation": oracle.forward(inputs),
        "training": training,
        **{f"after:{name}": value for name, value in statistics.items()},
        **{f"gradient:{name}": value for name, value in gradients.items()},
    }


def _errors(found: Arrays, exact: Arrays) -> dict[str, float]:
    """Relative errors; of small gradients relative to the largest. A gradient that is not there is zero."""
    theirs = {name: exact[name] if name in exact else np.zeros_like(value) for name, value in found.items()}
    sizes = {name: float(np.linalg.norm(theirs[name])) for name in found if name.startswith("gradient:")}
    smallest = SMALL * max(sizes.values())
    return {
        name: float(np.linalg.norm(value - theirs[name])) / max(sizes[name], smallest)
        if name in sizes
        else relative(value, theirs[name])
        for name, value in found.items()
    }


def main(folder: Path, judge_name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answer = TraceAnswer.read(str(folder))
    graph = next(iter(answer.graphs.values()))
    np.save(folder / FLAT, flat_weights(graph, answer.arrays))
    nothing = graph.task.loss == "cross_entropy" and graph.num_classes < 2  # which is refused
    level = None if nothing else judge(graph, answer.exact, judge_name)
    (folder / LEVEL).write_text(json.dumps(level and dataclasses.asdict(level)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
