"""Real frameworks in their real environments; the environments are made once a machine and shared."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from framework_compare import registry
from framework_compare.datasets.folder import read_folder
from framework_compare.environments import managed
from framework_compare.graph import initial_weights, weights_size
from framework_compare.launch import staging
from framework_compare.launch.launcher import worker_environment
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import TrainConfig

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("real")


@pytest.fixture(scope="session")
def trainer_script(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs the body of a script in a framework's environment with a Trainer ready; what it returns is JSON.

    The body sees `trainer`, `graph`, `weights` (views by name), `config`, `pictures`, `np`, and sets `answer`.
    """

    def run(framework: str, model: str, body: str, *, pictures: Path, **config: Any) -> Any:
        folder = tmp_path_factory.mktemp(f"{framework}-{model}")
        script = folder / "script.py"
        script.write_text("def main():\n" + textwrap.indent(PREFACE + body + EPILOGUE, "    ") + GUARDED)
        job = write_job(folder, framework, model, pictures, TrainConfig(**{"threads": 2, "image_size": 64, **config}))
        python = managed.ensure(framework).python
        source = staging.stage(registry.framework(framework))
        command = [str(python), str(script), str(source), str(job), str(folder / "answer.json")]
        done = subprocess.run(command, capture_output=True, text=True, env=worker_environment(managed=True, temporary=folder), timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((folder / "answer.json").read_text())

    return run


def write_job(folder: Path, framework: str, model: str, pictures: Path, config: TrainConfig) -> Path:
    graph = build_graph(model, config)
    flat = np.empty(weights_size(graph), np.float32)
    initial_weights(graph, config.seed, flat)
    np.save(folder / "weights.npy", flat)
    listing = read_folder(pictures).pictures.__dict__
    document = {
        "config": config.to_dict(),
        "trainer": staging.trainer_target(registry.framework(framework)),
        "graph": graph.to_dict(),
        "pictures": listing,
        "weights": str(folder / "weights.npy"),
    }
    path = folder / "job.json"
    path.write_text(json.dumps(document))
    return path


PREFACE = '''
import importlib, json, os, sys
source, job_path, answer_path = sys.argv[1:]
sys.path.insert(0, source)
job = json.load(open(job_path))
from framework_compare.protocol import Pictures, TrainConfig
config = TrainConfig.from_dict(job["config"])
module, _, name = job["trainer"].partition(":")
trainer_class = getattr(importlib.import_module(module), name)
os.environ.update(trainer_class.environment(config))
import numpy as np
from framework_compare.graph import Graph, weight_views
graph = Graph.from_dict(job["graph"])
pictures = Pictures(**{key: tuple(value) for key, value in job["pictures"].items()})
weights = weight_views(graph, np.load(job["weights"]))
trainer = trainer_class(config)
trainer.build(graph)
trainer.load_weights(weights)
'''
EPILOGUE = '''
json.dump(answer, open(answer_path, "w"))
sys.stdout.flush()
os._exit(0)
'''
GUARDED = '''
if __name__ == "__main__":  # loader processes that are spawned import this
    main()
'''
