"""The judge of what a worker traced: a process of its own, as the reference in float64 takes many times the weights.

The comparing process gets the verdict and a file of the weights, and holds neither in its memory.
"""

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Optional, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportLevel
from framework_compare.graph.trace_answer import TraceAnswer
from framework_compare.importing import import_level
from framework_compare.parity.network.surgery import flat_weights

LEVEL, FLAT = "level.json", "flat.npy"
PR_SET_PDEATHSIG = 1


def judged(folder: Path, judge: str) -> Tuple[Optional[ImportLevel], np.ndarray]:
    """The level "import" of the TraceAnswer in a folder, None where it has nothing to judge by, and its flat weights.

    The weights stay in their file, also when that is deleted. judge: what computed the exact answers.
    """
    command = [sys.executable, "-m", "framework_compare.importing.judging", str(folder), judge]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        hint = "; use a machine with more memory" if done.returncode == -signal.SIGKILL or "MemoryError" in last else ""
        raise UsageError(f"the model could not be compared with its source: {last}{hint}")
    level = json.loads((folder / LEVEL).read_text(encoding="utf-8"))
    return level and ImportLevel(**level), np.load(folder / FLAT, mmap_mode="r")


def main(folder: Path, judge: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answer = TraceAnswer.read(str(folder))
    graph = next(iter(answer.graphs.values()))
    np.save(folder / FLAT, flat_weights(graph, answer.arrays))
    nothing = graph.task.loss == "cross_entropy" and graph.num_classes < 2  # which is refused
    level = None if nothing else import_level.judge(graph, answer.exact, judge)
    (folder / LEVEL).write_text(json.dumps(level and dataclasses.asdict(level)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
