"""A user's own interpreter stands in for an environment of ours, once it has been looked at."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from framework_compare import registry
from framework_compare.environments import managed
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.registry import Framework

ANY_PYTHON = ((3, 10), (3, 99))


@pytest.fixture
def framework(monkeypatch):
    def register(*, imports: str = "tinyfw") -> str:
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", Framework("tiny", "tiny:T", "tiny.txt", imports, ANY_PYTHON))
        return "tiny"

    return register


def test_a_users_interpreter_is_used_as_it_is(framework):
    framework(imports="pytest")  # whatever the parent surely has stands for a framework
    environment = managed.ensure("tiny", python=sys.executable)
    assert (environment.managed, environment.python) == (False, Path(sys.executable))
    assert environment.version == pytest.__version__
    assert environment.packages["pytest"] == pytest.__version__
    assert managed.find("tiny", python=sys.executable) == environment


def test_a_folder_stands_for_its_python(framework, tmp_path):
    framework(imports="pytest")
    (tmp_path / "own/bin").mkdir(parents=True)
    script = tmp_path / "own/bin/python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    assert managed.ensure("tiny", python=tmp_path / "own").python == script


def test_a_users_interpreter_that_lacks_the_framework(framework, tmp_path, monkeypatch):
    framework(imports="no_such_framework")
    (tmp_path / "no_such_framework.py").write_text("")  # in the current folder: not the framework
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentUnavailable, match="has no no_such_framework; install it there"):
        managed.ensure("tiny", python=sys.executable)
    assert managed.find("tiny", python=sys.executable) is None


def test_folders_without_an_init_are_not_the_framework(framework, tmp_path, monkeypatch):
    framework(imports="no_such_framework")
    (tmp_path / "no_such_framework").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EnvironmentUnavailable, match="has no no_such_framework"):
        managed.ensure("tiny", python=sys.executable)


def test_what_an_interpreter_lacks_is_named_as_it_is_installed(framework, tmp_path):
    framework(imports="pytest")
    said = {"python": "3.9.0", "packages": {}, "version": None, "there": []}
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
    script.chmod(0o755)
    with pytest.raises(EnvironmentUnavailable, match="has no pytest and no numpy and no Pillow"):
        managed.ensure("tiny", python=script)


def test_a_users_interpreter_without_simplejpeg_is_noted(framework, tmp_path):
    framework(imports="pytest")
    said = {"python": "3.9.0", "packages": {}, "version": None, "there": ["pytest", "numpy", "PIL"]}
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho 'a banner'\necho '{json.dumps(said)}'\n")
    script.chmod(0o755)
    environment = managed.ensure("tiny", python=script)
    assert environment.interpreter == "3.9.0"
    assert "simplejpeg is not in" in environment.notes[0]


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "does not exist"),
        ("not a program", 0o644, "is not an executable file"),
        ("#!/bin/sh\necho it broke >&2\nexit 3\n", 0o755, "does not run as Python.*it broke"),
    ],
    ids=["absent", "not-executable", "broken"],
)
def test_a_users_interpreter_that_is_none(framework, tmp_path, content, mode, reason):
    framework()
    path = tmp_path / "python"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(EnvironmentUnavailable, match=f"tiny: .*{reason}"):
        managed.ensure("tiny", python=path)


def test_a_framework_without_requirements_runs_on_the_parents_python(monkeypatch):
    monkeypatch.setitem(registry.FRAMEWORKS, "own", Framework("own", "own:T", "", "pytest", ANY_PYTHON))
    environment = managed.ensure("own")
    assert (environment.python, environment.managed) == (Path(sys.executable), False)
    assert environment.version == pytest.__version__
