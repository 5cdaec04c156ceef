"""Models traced by a worker in their framework's environment, or, of a module in hand, by the process that holds it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import numpy as np

from framework_compare import registry
from framework_compare.environments import support
from framework_compare.errors import FrameworkCompareError, UsageError
from framework_compare.graph import Graph
from framework_compare.importing.sources import Source
from framework_compare.launch.jobs import run_job
from framework_compare.launch.limits import Limits
from framework_compare.protocol import Job, TrainConfig
from framework_compare.records import Run
from framework_compare.samplers.host import available_cores

TIMEOUT_S = 900.0  # the largest classifiers of torchvision take two minutes
ANSWER, WEIGHTS, EXACT = "trace.json", "weights.npz", "exact.npz"
FRAMEWORK = "torch"


@dataclasses.dataclass(frozen=True)
class Traced:
    """What was read off a model: graphs by image size, arrays by name, and what it computes itself in float64."""

    graphs: Mapping[int, Graph]
    arrays: Mapping[str, np.ndarray]
    exact: Optional[Mapping[str, np.ndarray]] = None
    notes: Sequence[str] = ()
    judge: str = ""


@dataclasses.dataclass(frozen=True)
class Tracer:
    """Starts workers that trace: with the interpreters, the index and the installer of a call."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installer: str = "pip"
    say: Callable[[str], None] = lambda message: None
    timeout_s: float = TIMEOUT_S

    def __call__(self, source: Source, sizes: Sequence[int]) -> Traced:
        """UsageError, in one line, where the model cannot be imported."""
        self.say(f"{source.text} is traced in {FRAMEWORK}'s environment, at {', '.join(map(str, sizes))} pixels")
        environment = support.ready(
            FRAMEWORK,
            "cpu",
            python=self.python.get(FRAMEWORK),
            index=self.index.get(FRAMEWORK),
            installer=self.installer,
            say=self.say,
        )
        if isinstance(environment, Run):
            raise UsageError(f"{source.text} cannot be traced without {FRAMEWORK}: {environment.reason}")
        config = TrainConfig(epochs=0, threads=available_cores())
        job = Job(config, kind="trace", tasks=({"source": source.to_dict(), "sizes": list(sizes)},))
        with tempfile.TemporaryDirectory(prefix="framework-compare-import-") as place:
            folder = Path(place) / "trace"
            run = run_job(
                registry.framework(FRAMEWORK), environment, job, folder, limits=Limits(timeout_s=self.timeout_s)
            )
            if run.status != "ok":
                raise UsageError(f"{source.text}: {' '.join(run.reason.split())}")
            return _read(folder, f"{FRAMEWORK} {environment.version}")


def _read(folder: Path, judge: str) -> Traced:
    document: Dict[str, Any] = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    graphs = {int(size): Graph.from_dict(graph) for size, graph in document["graphs"].items()}
    arrays, exact = (
        {name: array for name, array in np.load(folder / file, allow_pickle=False).items()} for file in (WEIGHTS, EXACT)
    )
    return Traced(graphs, arrays, exact, document["notes"], judge)


def trace_in_hand(module: Any, sizes: Sequence[int]) -> Traced:
    """An nn.Module that this process holds; torch is loaded here already."""
    tracing = importlib.import_module("framework_compare.adapters.torch.tracing")
    try:
        traced = tracing.trace_module(module, sizes)
    except FrameworkCompareError as error:
        raise UsageError(f"{type(module).__name__}: {error}") from error
    return Traced(traced.graphs, traced.arrays, traced.exact, traced.notes, f"{FRAMEWORK} {traced.version}")
