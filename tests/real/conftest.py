"""Real frameworks in their real environments; the environments are made once a machine and shared."""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import numpy as np
import pytest
import tracing_together

from framework_compare import registry
from framework_compare.datasets.folder import read_folder
from framework_compare.environments import managed
from framework_compare.graph import initial_weights, weights_size
from framework_compare.importing.tracing import Tracer
from framework_compare.launch import staging
from framework_compare.launch.staging import worker_environment
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import TrainConfig

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax", "singa")
HERE = Path(__file__).parent
THREADS = 1  # of each of the processes that run side by side


def pytest_collection_modifyitems(items: list) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("real")


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """Registers the test model `small`, for tests to which the size of a network does not matter; its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MODELS, "small", registry.Model("small:build"))
        yield "small"


@pytest.fixture(scope="session")
def tracing_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tracing_together.Workers]:
    workers = tracing_together.Workers(tmp_path_factory.mktemp("tracing"))
    yield workers
    workers.close()


@pytest.fixture
def together(tracing_workers: tracing_together.Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are traced by processes that stay, one after the other, instead of a worker each."""
    monkeypatch.setattr(Tracer, "_run", lambda tracer, *asked: tracing_workers.run(tracer, *asked))


@pytest.fixture(scope="session")
def trainer_script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Runs the body of a script in a framework's environment with a Trainer ready; what it returns is JSON.

    The body sees `trainer`, `graph`, `weights` (views by name), `config`, `images`, `np`, and sets `answer`. One
    process of a framework answers one script after the other, each with a network of its own; with `build=False`
    without one.
    """
    running: Dict[str, Scripts] = {}
    numbers = itertools.count()

    def run(
        framework: str,
        model: str,
        body: str,
        *,
        images: Path,
        build: bool = True,
        timeout_s: float = 300,
        **config: Any,
    ) -> Any:
        if framework not in running:
            running[framework] = Scripts(framework, tmp_path_factory.mktemp(framework))
        scripts = running[framework]
        folder = scripts.folder / f"{next(numbers)}-{model}"
        folder.mkdir()
        settings = TrainConfig(**{"threads": THREADS, "image_size": 64, **config})
        job = write_job(folder, framework, model, images, settings, build)
        try:
            return scripts.run(folder, job, body, timeout_s)
        except BaseException:
            scripts.close()
            del running[framework]
            raise

    yield run
    for scripts in running.values():
        scripts.close()


class Scripts:
    """A process in a framework's environment that runs scripts, one after the other."""

    def __init__(self, framework: str, folder: Path) -> None:
        self.folder = folder
        script = folder / "scripts.py"
        script.write_text(SERVER)
        source = staging.stage(registry.framework(framework))
        trainer = staging.trainer_target(registry.framework(framework))
        command = [str(managed.ensure(framework).python), str(script), str(source), trainer, str(THREADS)]
        self._answered, answered = os.pipe()
        with open(folder / "log.txt", "wb") as log:
            self._process = subprocess.Popen(
                [*command, str(answered)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[answered],
                env=worker_environment(managed=True, temporary=folder),
                text=True,
                start_new_session=True,
            )
        os.close(answered)

    def run(self, folder: Path, job: Path, body: str, timeout_s: float) -> Any:
        (folder / "body.py").write_text(body)
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._answered], [], [], timeout_s)
        said = os.read(self._answered, 1) if ready else b"nothing"
        assert said == b"1", f"{said!r}: " + (self.folder / "log.txt").read_text(errors="replace")[-3000:]
        return json.loads((folder / "answer.json").read_text())

    def close(self) -> None:
        """End the process and the loader processes that a script may have left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        os.close(self._answered)


def write_job(folder: Path, framework: str, model: str, images: Path, config: TrainConfig, build: bool) -> Path:
    graph = build_graph(model, config)
    if build:
        flat = np.empty(weights_size(graph), np.float32)
        initial_weights(graph, config.seed, flat)
        np.save(folder / "weights.npy", flat)
    document = {
        "config": config.to_dict(),
        "graph": graph.to_dict(),
        "images": read_folder(images).files.__dict__,
        "weights": str(folder / "weights.npy") if build else None,
    }
    path = folder / "job.json"
    path.write_text(json.dumps(document))
    return path


# One Trainer a process: some frameworks take their number of threads once. Each script has a copy of it, with its config.
SERVER = """
import gc, importlib, json, os, sys, traceback

def main():
    source, target, threads, answered = sys.argv[1:]
    sys.path.insert(0, source)
    from framework_compare.protocol import TrainConfig
    module, _, name = target.partition(":")
    trainer_class = getattr(importlib.import_module(module), name)
    config = TrainConfig(threads=int(threads))
    os.environ.update(trainer_class.environment(config))
    for line in sys.stdin:
        try:
            run(trainer_class, line.strip())
            told = b"1"
        except Exception:
            traceback.print_exc()
            told = b"0"
        sys.stdout.flush()
        gc.collect()
        os.write(int(answered), told)
    os._exit(0)

def run(trainer_class, path):
    import numpy as np
    from framework_compare.graph import Graph, weight_views
    from framework_compare.protocol import ImageFiles, TrainConfig
    with open(path) as file:
        job = json.load(file)
    config = TrainConfig.from_dict(job["config"])
    trainer = trainer_class(config)
    graph = Graph.from_dict(job["graph"])
    images = ImageFiles(**{key: tuple(value) for key, value in job["images"].items()})
    names = dict(np=np, trainer=trainer, graph=graph, images=images, config=config)
    if job["weights"]:
        names["weights"] = weight_views(graph, np.load(job["weights"]))
        trainer.build(graph)
        trainer.load_weights(names["weights"])
    place = os.path.dirname(path)
    with open(os.path.join(place, "body.py")) as file:
        exec(compile(file.read(), "body.py", "exec"), names)
    with open(os.path.join(place, "answer.json"), "w") as file:
        json.dump(names["answer"], file)

if __name__ == "__main__":  # loader processes that are spawned import this
    main()
"""
