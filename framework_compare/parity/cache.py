"""Verdicts in the cache folder: levels are checked once per state of everything a verdict depends on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, TypeVar

from filelock import BaseFileLock, FileLock

from framework_compare.graph import Graph
from framework_compare.paths import cache_dir
from framework_compare.plan.settings import CODE_PATH, SIZES, of_verdict
from framework_compare.protocol import TrainConfig
from framework_compare.registry import Framework
from framework_compare.results.parity import FAILED, PASSED, Level, Parity
from framework_compare.worker import parity_answers

# The other settings do not change what function is trained.
PATHS = of_verdict(CODE_PATH)
Made = TypeVar("Made")
State = Any  # of framework and environment, as `parity.state` describes it


def network_key(framework: Framework, state: State, graph: Graph, config: TrainConfig, questions: Any) -> str:
    """Name of the verdict on levels 0 to 3 and 5; `questions` is a dataclass."""
    sizes = {name: getattr(config, name) for name in of_verdict(SIZES)}
    asked = {"graph": graph.to_dict(), "questions": dataclasses.asdict(questions), **sizes}
    return _digest(framework, state, config, asked)


def pipeline_key(framework: Framework, state: State, config: TrainConfig) -> str:
    """Name of the verdict on level 4, the same for all networks; the number of loader workers chooses a path, too."""
    return _digest(framework, state, config, {"pipeline": True, "loader_workers": config.loader_workers})


def practice_key(framework: Framework, state: State, config: TrainConfig) -> str:
    """Name of the verdict on the small network's training, the same for all networks."""
    fed = config.loader_workers if config.pipeline == "native" else config.pipeline
    return _digest(framework, state, config, {"practice": True, "fed": fed})


def _digest(framework: Framework, state: State, config: TrainConfig, more: Mapping[str, Any]) -> str:
    document = {
        "ladder": ladder_checksum(),
        "framework": framework.name,
        "state": state,
        **{name: getattr(config, name) for name in PATHS},
        **more,
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return f"{framework.name}-{digest[:24]}"


@functools.lru_cache(maxsize=1)
def ladder_checksum() -> str:
    """Checksum of the code that asks and judges; a change of it makes verdicts invalid."""
    own = Path(__file__).parent
    files = [Path(parity_answers.__file__), *sorted(own.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def load_network(key: str) -> Optional[Parity]:
    return _made(Parity.from_dict, load(key))


def load_pipeline(key: str) -> Optional[Level]:
    return _made(lambda document: Level(**document), load(key))


def load_levels(key: str) -> Optional[List[Level]]:
    return _made(lambda document: [Level(**level) for level in document["levels"]], load(key))


def load_curve(key: str) -> Optional[Mapping[str, Any]]:
    """What `parity.curves` keeps: {"value": ...}."""
    document = load(key)
    return document if isinstance(document, dict) and "value" in document else None


def _made(make: Callable[[Any], Made], document: Any) -> Optional[Made]:
    """What a document describes, None for one of another form: it is sought anew."""
    try:
        found = make(document)
    except (TypeError, KeyError, ValueError):
        return None
    return found if _is_sound(found) else None


def _is_sound(found: Any) -> bool:
    if isinstance(found, list):
        return all(map(_is_sound, found))
    if isinstance(found, Parity):
        words = (found.framework, found.version, found.model, found.execution, found.reason, found.diverges)
        known = found.status in (PASSED, FAILED) and all(isinstance(word, str) for word in words)
        return known and all(map(_is_sound, found.levels))
    kinds = {"number": int, "passed": bool, "where": str, "asked": bool}
    numbers = (found.error, found.ratio)
    return all(type(getattr(found, name)) is kind for name, kind in kinds.items()) and all(
        number is None or isinstance(number, (int, float)) for number in numbers
    )


def load(key: str) -> Any:
    """The document stored under a key; None if it is absent or cannot be read."""
    try:
        return json.loads(_path(key).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def save(key: str, document: Mapping[str, Any]) -> None:
    """Keep a document, whole at any moment whoever else keeps one under this key."""
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".half-", dir=path.parent) as place:
        half = Path(place, path.name)
        half.write_text(json.dumps(document), encoding="utf-8")
        half.replace(path)


def lock(key: str) -> BaseFileLock:
    """Held while a verdict is sought that others may be waiting for: of calls side by side one seeks it."""
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_suffix(".lock"))


def _path(key: str) -> Path:
    return cache_dir() / "parity" / f"{key}.json"
