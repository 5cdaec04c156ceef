"""A framework of one wheel, whose environments are made offline; both caches are each test's own."""

import os
from pathlib import Path

import pytest
from wheels import write_wheel

from framework_compare import registry
from framework_compare.registry import Framework

ANY_PYTHON = ((3, 10), (3, 99))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder)
    return folder


@pytest.fixture
def offline(monkeypatch, wheels, tmp_path):
    """uv sees our wheel and nothing else, whatever pip's configuration; both caches are this test's own."""
    for key in [key for key in os.environ if key.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def framework(monkeypatch, tmp_path):
    """Registers a framework whose environment is made from the given requirements; returns its name."""

    def register(requirements: str = "tinyfw==1.0\n", *, imports: str = "tinyfw", python=ANY_PYTHON) -> str:
        path = tmp_path / "tiny.txt"
        path.write_text(requirements)
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", Framework("tiny", "tiny:T", str(path), imports, python))
        return "tiny"

    return register


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache/envs").iterdir() if path.is_dir()]
