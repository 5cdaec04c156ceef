"""Verdicts in the cache folder: levels are checked once per state of everything a verdict depends on."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from filelock import BaseFileLock, FileLock

from framework_compare.environments import gpu_builds, venvs
from framework_compare.environments.managed import Environment
from framework_compare.graph import Graph
from framework_compare.json_types import JSON
from framework_compare.launch import staging
from framework_compare.parity.network.questions import Questions
from framework_compare.paths import cache_dir, write_whole
from framework_compare.plan.settings import CODE_PATH, SIZES, of_verdict
from framework_compare.protocol import Document, Fields, TrainConfig
from framework_compare.registry import Framework, device_kind
from framework_compare.results.parity import Level, Parity
from framework_compare.worker import parity_answers

# The other settings do not change what function is trained.
PATHS = of_verdict(CODE_PATH)
# What every worker may compute with: its arrays, and what decodes and resizes images.
COMMON = ("numpy", "pillow", "simplejpeg")
Made = TypeVar("Made")


def network_key(framework: Framework, state: JSON, graph: Graph, config: TrainConfig, questions: Questions) -> str:
    """Return the name of the verdict on levels 0 to 3 and 5; `questions` is a dataclass."""
    sizes = {name: getattr(config, name) for name in of_verdict(SIZES)}
    sizes.update({"new_tokens": config.new_tokens} if config.mode == "generation" else {})
    asked = {"graph": graph.to_dict(), "questions": dataclasses.asdict(questions), **sizes}
    return _digest(framework, state, config, asked)


def pipeline_key(framework: Framework, state: JSON, config: TrainConfig) -> str:
    """Return that of level 4, the same for all networks; the number of loader workers chooses a path, too."""
    return _digest(framework, state, config, {"pipeline": True, "loader_workers": config.loader_workers})


def training_key(framework: Framework, state: JSON, config: TrainConfig) -> str:
    """Return that of the small network's training, the same for all networks."""
    fed = config.loader_workers if config.pipeline == "native" else config.pipeline
    return _digest(framework, state, config, {"training": True, "fed": fed})


def _digest(framework: Framework, state: JSON, config: TrainConfig, more: Document) -> str:
    paths = {name: getattr(config, name) for name in PATHS}
    document = {"ladder": ladder_checksum(), "framework": framework.name, "state": state, **paths, **more}
    return f"{framework.name}-{short_digest(document)}"


def short_digest(document: Document) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:24]


@functools.lru_cache(maxsize=1)
def ladder_checksum() -> str:
    """Return the checksum of the code that asks and judges; a change of it makes verdicts invalid."""
    own = Path(__file__).parent
    files = [Path(parity_answers.__file__), *sorted(own.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def state(framework: Framework, environment: Environment, device: str) -> Fields:
    """Return what else a verdict holds for: worker's source, packages, GPU; takes milliseconds and starts no worker."""
    return {
        "trainer": framework.trainer.rpartition(":")[2],
        "worker": staging.checksum(framework),
        "version": environment.version,
        "packages": dict(packages(framework, environment)),
        "gpu": gpu_name(device),
    }


def packages(framework: Framework, environment: Environment) -> Mapping[str, str]:
    """Return of a managed environment all packages, which are pinned; of another interpreter those that may compute.

    These are what its adapter's requirements name, the framework's own others, and CUDA's. Where no requirements are
    known, or no metadata has the framework's version, they are all that are there.
    """
    named = requirements(framework)
    if environment.managed or environment.version is None or not named:
        return environment.packages
    starts = (venvs.normal_name(framework.imports), "nvidia-")
    chosen = (name for name in environment.packages if name in named or name in COMMON or name.startswith(starts))
    return {name: environment.packages[name] for name in chosen}


def requirements(framework: Framework) -> set[str]:
    """Return the normalised names in the requirements files of a framework, whatever their device."""
    found: set[str] = set()
    for device in ("cpu", "cuda") if framework.requirements else ():
        if framework.requirements_on(device):
            try:
                pins = venvs.pins_of(framework, device)
            except OSError:
                return set()
            names = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", pin) for pin in pins)  # none in a line that is an option
            found.update(venvs.normal_name(name.group()) for name in names if name)
    return found


def gpu_name(device: str) -> str | None:
    """Return the name that NVML has; None for a CPU, and where nothing says it."""
    if device_kind(device) == "cpu":
        return None
    try:
        return gpu_builds.look(device).name
    except gpu_builds.NoGpu:
        return None


def load_network(key: str) -> Parity | None:
    return _made(Parity.from_dict, key)


def load_levels(key: str) -> list[Level] | None:
    return _made(lambda document: [Level(**level) for level in document["levels"]], key) or None


def load_curve(key: str) -> JSON:
    """Return what `parity.training.curves` keeps as {"value": ...}."""
    return _made(lambda document: document["value"], key)


def _made(make: Callable[[JSON], Made], key: str) -> Made | None:
    """Return what is made of the document under a key, None for none or one of another form: it is sought anew."""
    try:
        return make(load(key))
    except (TypeError, KeyError, ValueError):
        return None


def load(key: str) -> JSON:
    """Return the document stored under a key; None if it is absent or cannot be read."""
    try:
        return json.loads(_path(key).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def save(key: str, found: Parity | list[Level] | Document) -> None:
    """Keep a verdict, levels or a document, whole at any moment whoever else keeps one under this key."""
    if isinstance(found, list):
        found = {"levels": [dataclasses.asdict(level) for level in found]}
    write_whole(_path(key), json.dumps(found.to_dict() if isinstance(found, Parity) else found))


def lock(key: str) -> BaseFileLock:
    """Return the lock that is held while a verdict is sought: of calls side by side one seeks it."""
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_suffix(".lock"))


def _path(key: str) -> Path:
    return cache_dir() / "parity" / f"{key}.json"
