"""A user's own interpreter stands in for an environment of ours, once it has been looked at."""

import json
import os
import sys
from pathlib import Path

import pytest
from environment_fixtures import ANY_PYTHON
from processes import write_script

from framework_compare import registry
from framework_compare.environments import interpreters, managed
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.registry import Framework


def test_a_users_interpreter_or_its_folder_is_used_as_it_is(framework, tmp_path):
    framework(imports="pytest")  # whatever the parent surely has stands for a framework
    environment = managed.ensure("tiny", python=sys.executable)
    assert (environment.managed, environment.python) == (False, Path(sys.executable))
    assert environment.version == pytest.__version__
    assert environment.packages["pytest"] == pytest.__version__
    assert managed.find("tiny", python=sys.executable) == environment
    (tmp_path / "own/bin").mkdir(parents=True)
    script = write_script(tmp_path / "own/bin/python", f'exec "{sys.executable}" "$@"')
    assert managed.ensure("tiny", python=tmp_path / "own").python == script


def test_a_users_interpreter_that_lacks_the_framework(framework, tmp_path, monkeypatch):
    framework(imports="no_such_framework")
    (tmp_path / "no_such_framework.py").write_text("")  # in the current folder: not the framework
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentUnavailable, match="lacks no_such_framework; install it there"):
        managed.ensure("tiny", python=sys.executable)
    assert managed.find("tiny", python=sys.executable) is None


def test_folders_without_an_init_are_not_the_framework(framework, tmp_path, monkeypatch):
    framework(imports="no_such_framework")
    (tmp_path / "no_such_framework").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EnvironmentUnavailable, match="lacks no_such_framework"):
        managed.ensure("tiny", python=sys.executable)


def test_what_an_interpreter_lacks_is_named_as_it_is_installed_and_simplejpeg_is_noted(framework, tmp_path):
    framework(imports="pytest")
    said = {"python": "3.9.0", "packages": {}, "version": None, "there": []}
    script = write_script(tmp_path / "python", f"echo '{json.dumps(said)}'")
    with pytest.raises(EnvironmentUnavailable, match="lacks pytest, numpy, Pillow"):
        managed.ensure("tiny", python=script)
    said["there"] = ["pytest", "numpy", "PIL"]
    script = write_script(tmp_path / "another-python", f"echo 'a banner'\necho '{json.dumps(said)}'")
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


RUNNING = (sys.version_info[0], sys.version_info[1])


@pytest.fixture
def fake_python(tmp_path, monkeypatch):
    """Makes programs that answer like Pythons of any version; all made so far are listed for `choose`."""
    made = []

    def make(*version: int, answer: str = "", name: str = "") -> Path:
        path = tmp_path / (name or "python" + "-".join(map(str, version)))
        write_script(path, f"echo started >> {path}.calls\necho '{answer or '.'.join(map(str, version))}'")
        made.append(str(path))
        monkeypatch.setenv(interpreters.PYTHONS_VARIABLE, os.pathsep.join(made))
        return path

    return make


def test_the_running_version_then_the_newest_in_the_range_is_chosen(fake_python):
    fake_python(3, 98, 0)
    assert interpreters.choose(((3, 8), (3, 99))).minor == RUNNING
    fake_python(3, 96, 5)
    newest = fake_python(3, 97, 1)
    fake_python(3, 98, 0)
    assert interpreters.choose(((3, 96), (3, 97))) == interpreters.Interpreter(newest, "3.97.1")


def test_pythons_without_gil_and_other_programs_are_passed_over(fake_python, tmp_path, monkeypatch):
    fake_python(3, 98, 0, answer=" ")
    sound = fake_python(3, 97, 0)
    assert interpreters.choose(((3, 97), (3, 98))).path == sound
    broken = write_script(tmp_path / "python3.97", "exit 3")
    sound = fake_python(3, 97, 0)
    monkeypatch.setenv(interpreters.PYTHONS_VARIABLE, f"{broken}{os.pathsep}{tmp_path / 'absent'}{os.pathsep}{sound}")
    assert interpreters.choose(((3, 97), (3, 97))).path == sound


def test_versions_of_pyenv_and_uv_are_found(fake_python, tmp_path, monkeypatch):
    for root, variable, minor in (("pyenv/versions", "PYENV_ROOT", 96), ("uv", "UV_PYTHON_INSTALL_DIR", 97)):
        folder = tmp_path / root / f"3.{minor}.0/bin"
        folder.mkdir(parents=True)
        fake_python(3, minor, 0, name=f"{root}/3.{minor}.0/bin/python3.{minor}")
        monkeypatch.setenv(variable, str(tmp_path / root.partition("/")[0]))
    monkeypatch.delenv(interpreters.PYTHONS_VARIABLE)
    for minor in (96, 97):
        assert interpreters.choose(((3, minor), (3, minor))).version == f"3.{minor}.0"


def test_a_python_is_asked_once_and_one_named_after_another_version_never(fake_python):
    path = fake_python(3, 97, 0)
    for _ in range(3):
        interpreters.choose(((3, 97), (3, 97)))
    assert Path(f"{path}.calls").read_text().count("started") == 1
    fake_python(3, 97, 0)
    other = fake_python(3, 98, 0, name="python3.98")
    interpreters.choose(((3, 97), (3, 97)))
    assert not Path(f"{other}.calls").exists()


def test_no_python_in_range_names_range_findings_and_remedies(fake_python):
    other = fake_python(3, 98, 2)
    with pytest.raises(EnvironmentUnavailable) as caught:
        interpreters.choose(((3, 96), (3, 97)), framework="mxnet")
    message = str(caught.value)
    assert "mxnet needs Python 3.96 to 3.97" in message
    assert f"3.98.2 ({other})" in message
    assert "{}.{}.{}".format(*sys.version_info[:3]) in message
    assert "uv python install 3.97" in message and "--python mxnet=/path/to/python" in message
    assert interpreters.range_text(((3, 11), (3, 11))) == "3.11"
