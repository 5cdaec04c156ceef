"""Studies whose cells take turns, small enough for a test."""

from pathlib import Path
from typing import Any, Callable

import pytest

from framework_compare import Comparison, compare

QUICK = {
    **{"batch_size": 1, "epochs": 4, "threads": 1, "loader_workers": 0, "image_size": 32, "pipeline": "memory"},
    **{"verify": "off", "retries_when_disturbed": 0, "sampling_hz": 0},
}
SAMPLED = {"blocks": 2, "sample": 0.5, **{name: value for name, value in QUICK.items() if name != "epochs"}}
# A method of a paced framework that tells where its process is found.
TELLS = "def build(self, graph):\n    super().build(graph)\n    open({place!r}, 'w').write(str(os.getpid()))"


@pytest.fixture
def ask(images: Path, own_cache: Path, tmp_path: Path) -> Callable[..., Comparison]:
    def run(names: "list[str]", out: str = "s", **settings: Any) -> Comparison:
        return compare(names, "linear", out=tmp_path / out, **{"dataset": images, **QUICK, **settings})

    return run
