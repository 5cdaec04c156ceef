"""Tests that need an NVIDIA GPU: `pytest tests/gpu --fc-python torch=/path/to/python --fc-python jax=/path/to/python`.

Frameworks are those that --fc-python names, so that nothing is downloaded on a machine that has them; tests of the
others are skipped.
"""

from pathlib import Path
from typing import Callable, Dict, Iterator

import pytest
from filelock import FileLock

from framework_compare import registry
from framework_compare.environments import gpu_builds
from framework_compare.samplers.nvml import describe_gpus

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list) -> None:
    found = describe_gpus()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("gpu")
            if not found or not found["devices"]:
                reason = "no NVIDIA GPU answers here; run tests/gpu on a machine with one"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def one_test_on_the_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The suite runs two tests at once; a GPU whose memory one of them fills is none for the other."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "gpu.lock"):
        yield


@pytest.fixture(scope="session")
def pythons(pytestconfig: pytest.Config) -> Dict[str, str]:
    given = pytestconfig.getoption("--fc-python") or []
    pairs = (pair.split("=", 1) for pair in given)
    return {registry.framework(name).name: path for name, path in pairs}


@pytest.fixture
def python_of(pythons: Dict[str, str]):
    """The interpreter of a framework as `python=` wants it; skips where none was named."""

    def find(framework: str) -> Dict[str, str]:
        if framework not in pythons:
            pytest.skip(f"name an interpreter that has {framework}: --fc-python {framework}=PATH")
        return {framework: pythons[framework]}

    return find


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], str]:
    """Why this GPU has no kernels for a precision, whatever the framework; "" where it has."""
    major, minor = gpu_builds.look("cuda").capability or (8, 0)

    def why(precision: str) -> str:
        needs = precision in ("tf32", "bf16") and major < 8
        return f"precision {precision!r} needs compute capability 8.0; this GPU has {major}.{minor}" if needs else ""

    return why
