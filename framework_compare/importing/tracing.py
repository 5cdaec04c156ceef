"""Models traced by a worker in their framework's environment, or, of a module in hand, by the process that holds it."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import psutil

from framework_compare import registry
from framework_compare.environments import support
from framework_compare.errors import FrameworkCompareError, UsageError
from framework_compare.graph import Graph
from framework_compare.graph.imported_model import Asked, ImportLevel, TraceAnswer
from framework_compare.importers.common.sources import one_line
from framework_compare.importing.import_level import judged
from framework_compare.importing.sources import KERAS, KERAS_FILE, ONNX, Source
from framework_compare.launch.jobs import run_job
from framework_compare.launch.limits import Limits
from framework_compare.launch.scratch import scratch
from framework_compare.protocol import Document, Job, TrainConfig
from framework_compare.records import Run
from framework_compare.samplers.host import available_cores

TIMEOUT_S = 900.0  # the largest classifiers of torchvision take two minutes
MEMORY_SHARE = 0.8  # of what is free: a file that needs more ends its worker and nothing else
FRAMEWORK, TENSORFLOW = "torch", "tensorflow"


@dataclasses.dataclass(frozen=True)
class Traced:
    """Result of tracing a model: graphs by image size, flat weights in their order, how it compares with its source."""

    graphs: Mapping[int, Graph]
    flat: np.ndarray
    level: ImportLevel | None = None
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Tracer:
    """Starts workers that trace: with the interpreters and the index of a call."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)
    say: Callable[[str], None] = lambda message: None
    timeout_s: float = TIMEOUT_S

    def __call__(self, source: Source, asked: Asked) -> Traced:
        """UsageError, in one line, where the model cannot be imported."""
        task = {"source": source.to_dict(), **asked.to_dict()}
        with scratch() as place:
            judges = []
            if source.kind == ONNX:  # read apart: what parses a file of others has neither this process nor a framework
                program = place / ONNX
                judges.append(f"{self._run(ONNX, task, program)} (logits)")
                task["program"] = str(program)
            framework = TENSORFLOW if source.kind in (KERAS, KERAS_FILE) else FRAMEWORK
            folder = place / framework
            judges.append(
                self._run(framework, task, folder)
                + (" (gradients and statistics of the same operators)" if judges else "")
            )
            return read_answer(folder, " and ".join(judges))

    def _run(self, name: str, task: Document, folder: Path) -> str:
        """Have a worker do one part; its framework or reader with the version."""
        text, what = task["source"]["text"], Asked.from_dict(task).words
        self.say(f"{text} is {'read' if name == ONNX else 'traced'} in {name}'s environment, {what}")
        environment = support.ready(name, "cpu", python=self.python.get(name), index=self.index.get(name), say=self.say)
        if isinstance(environment, Run):
            raise UsageError(f"{text} cannot be imported without {name}: {environment.reason}")
        job = Job(TrainConfig(epochs=0, threads=available_cores()), kind="trace", tasks=(task,))
        limits = Limits(timeout_s=self.timeout_s, memory_bytes=int(MEMORY_SHARE * psutil.virtual_memory().available))
        run = run_job(registry.IMPORTERS[name], environment, job, folder, limits=limits)
        if run.status != "ok":
            hint = "; use a machine with more memory" if run.status == "out-of-memory" else ""
            raise UsageError(f"{text}: {' '.join(run.reason.split())}{hint}")
        return f"{name} {environment.version}"


def read_answer(folder: Path, judge: str) -> Traced:
    """Return what a worker wrote into its folder; judge: what it computed the exact answers with."""
    answer = TraceAnswer.read(str(folder))
    level, flat = judged(folder, judge)
    return Traced(answer.graphs, flat, level, answer.notes)


def trace_in_hand(module: object, asked: Asked) -> Traced:
    """An nn.Module that this process holds; torch is loaded here already."""
    tracing = importlib.import_module("framework_compare.importers.torch.tracing")
    try:
        traced = tracing.trace_module(module, asked)
    except FrameworkCompareError as error:
        raise UsageError(f"{type(module).__name__}: {error}") from error
    with scratch() as place:
        traced.write(str(place))
        return read_answer(place, f"{FRAMEWORK} {traced.version}")


def trace_keras(model: Any, asked: Asked, tracer: Tracer) -> Traced:
    """A keras.Model that this process holds, whatever its backend: saved, and traced as a file."""
    name = type(model).__name__
    with scratch() as place:
        path = place / f"{name}.keras"
        try:
            model.save(path)
        except Exception as error:
            raise UsageError(f"{name} cannot be saved: {one_line(error)}") from error
        return tracer(Source(KERAS, name, name, path=str(path)), asked)
