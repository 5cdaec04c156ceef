"""Studies whose cells take turns, small enough for a test."""

from pathlib import Path
from typing import Any, Callable

import pytest

from framework_compare import Comparison, compare

QUICK = {
    **{"batch_size": 1, "epochs": 4, "threads": 1, "loader_workers": 0, "image_size": 32, "pipeline": "memory"},
    **{"verify": "off", "retries_when_disturbed": 0, "sampling_hz": 0},
}
SAMPLED = {"blocks": 2, "sample": 0.25, **{name: value for name, value in QUICK.items() if name != "epochs"}}
# A study of paced frameworks for a process of its own: with what it does before, the paths by name, and the request.
SCRIPT = """
import os, sys
sys.path[:0] = [{plugins!r}]
from framework_compare import compare, registry
from framework_compare.launch import memory_limit
{before}
for name, path in {paths!r}.items():
    registry.FRAMEWORKS[name] = registry.Framework(name, path + ":Paced", "", "numpy", ((3, 8), (3, 99)))
registry.MODELS["linear"] = registry.Model("linear:build")
compare({names!r}, "linear", **{request!r})
"""
# A method of a paced framework that tells where its process is found.
TELLS = "def build(self, graph):\n    super().build(graph)\n    open({place!r}, 'w').write(str(os.getpid()))"


@pytest.fixture
def ask(images: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Comparison]:
    """Runs a study of paced frameworks, all on this Python."""

    def run(names: "list[str]", out: str = "s", **settings: Any) -> Comparison:
        return compare(names, "linear", out=tmp_path / out, **{"dataset": images, **QUICK, **settings})

    return run


def script(names: "list[str]", folder: Path, before: str = "", **request: Any) -> str:
    """SCRIPT for frameworks that `paced` wrote into a folder."""
    request = {name: str(value) if isinstance(value, Path) else value for name, value in {**QUICK, **request}.items()}
    paths = {name: str(folder / f"{name}.py") for name in names}
    plugins = str(Path(__file__).parent)
    return SCRIPT.format(plugins=plugins, before=before, paths=paths, names=names, request=request)
