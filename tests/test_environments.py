"""Environments are made once, reused, repaired and removed; every failure is a sentence. Offline, with real venvs."""

import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Callable

import filelock
import pytest
from environment_fixtures import leftovers

from framework_compare.environments import installer, managed, uv_command, venvs
from framework_compare.errors import EnvironmentUnavailable, UnknownNameError

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
def tiny(framework) -> managed.Environment:
    """A healthy environment of the framework `tiny`."""
    return managed.ensure(framework())


def test_a_healthy_environment_is_described_and_reused(tiny, framework):
    assert (tiny.framework, tiny.version, tiny.managed) == ("tiny", "1.0", True)
    assert tiny.packages["tinyfw"] == "1.0"
    assert tiny.size_bytes > 0
    assert re.fullmatch(r"tiny-[0-9a-f]{12}", tiny.folder.name)
    assert subprocess.run([tiny.python, "-c", "import tinyfw"], check=False).returncode == 0
    before = (tiny.folder / venvs.MARKER).stat()
    said = []
    assert managed.ensure("tiny", report=said.append) == tiny
    assert managed.find("tiny") == tiny
    assert said == []
    assert (tiny.folder / venvs.MARKER).stat() == before
    cache = venvs.site_packages(tiny.folder) / "tinyfw/__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "more.pyc").write_text("x")
    assert managed.find("tiny") == tiny
    plan = managed.plan_for("tiny")
    assert "https://host.invalid/cpu" in venvs.fault(plan, index="https://host.invalid/cpu")
    assert venvs.fault(plan) == ""
    framework("# a comment\ntinyfw==1.0  # another\n\n")
    assert managed.ensure("tiny") == tiny
    framework("tinyfw==1.0\nnot-there==2\n")
    assert managed.find("tiny") is None
    assert managed.plan_for("tiny").folder != tiny.folder


def change(name: str, text: str = "", add: str = "") -> Callable[[Path], None]:
    """Makes a damage: another text of a file of an environment, or more of it; none where neither is given."""

    def damage(folder: Path) -> None:
        path = folder / name if name == venvs.MARKER else venvs.site_packages(folder) / name
        whole = path.read_text()
        path.write_text(text or whole + add) if text or add else path.unlink()

    return damage


def break_python(folder: Path) -> None:
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to("gone")


delete_marker, delete_package_file = change(venvs.MARKER), change("tinyfw/__init__.py")
DAMAGE = {
    **{delete_marker: "has not finished", change(venvs.MARKER, "{"): "has not finished"},
    **dict.fromkeys((delete_package_file, change("tinyfw/__init__.py", add="# more\n")), "missing or changed"),
    break_python: "no longer runs",
}


def test_damage_is_noticed(tiny, tmp_path):
    shutil.copytree(tiny.folder, tmp_path / "whole", symlinks=True)
    for damage, reason in DAMAGE.items():
        damage(tiny.folder)
        assert reason in venvs.fault(managed.plan_for("tiny"))
        assert managed.find("tiny") is None
        shutil.rmtree(tiny.folder)
        shutil.copytree(tmp_path / "whole", tiny.folder, symlinks=True)
        assert managed.find("tiny") == tiny


def test_a_broken_environment_is_repaired_and_who_waits_for_that_is_told(tiny):
    delete_package_file(tiny.folder)
    said = []
    repaired = managed.ensure("tiny", report=said.append)
    assert repaired.python == tiny.python
    assert subprocess.run([repaired.python, "-c", "import tinyfw"], check=False).returncode == 0
    assert "tiny: repairing its environment (files of its packages are missing or changed)" in said[0]
    delete_marker(tiny.folder)
    other = filelock.FileLock(f"{tiny.folder}.lock", thread_local=False)
    other.acquire()
    said = []

    def hear(message: str) -> None:
        said.append(message)
        other.release()

    waiter = threading.Thread(target=managed.ensure, args=("tiny",), kwargs={"report": hear})
    waiter.start()
    waiter.join()
    assert "another process is creating its environment" in said[0]
    assert managed.find("tiny") is not None


TWO_AT_ONCE = """
import sys
from framework_compare import registry
from framework_compare.environments import managed
registry.FRAMEWORKS["tiny"] = registry.Framework("tiny", "tiny:T", sys.argv[1], "tinyfw", ((3, 10), (3, 99)))
print(managed.ensure("tiny", report=print).python)
"""


def test_two_processes_at_once_make_one_environment(framework, tmp_path):
    framework()
    command = [sys.executable, "-c", TWO_AT_ONCE, str(tmp_path / "tiny.txt")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(output.count("output goes to") for output in outputs) == 1, "made or repaired once"
    assert len({output.splitlines()[-1] for output in outputs}) == 1
    assert managed.find("tiny") is not None


def test_what_cannot_be_made_leaves_nothing_and_says_so(framework, tmp_path, monkeypatch):
    framework("tinyfw==1.0\nno-such-package==1.0\n")
    with pytest.raises(EnvironmentUnavailable) as caught:
        managed.ensure("tiny")
    message = str(caught.value)
    assert "tiny: uv could not install its requirements" in message
    assert "no-such-package was not found" in message and "find-links folder that has it" in message
    assert "--python tiny=/path/to/python" in message
    assert "\n" not in message
    assert leftovers(tmp_path) == []
    log = Path(message.rpartition(" ")[2])
    assert "no-such-package" in log.read_text()
    framework()

    def interrupted(plan: venvs.Plan, **options: object) -> None:
        (plan.folder / "bin").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(installer, "install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        managed.ensure("tiny")
    assert leftovers(tmp_path) == []
    framework()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentUnavailable, match=r"is not writable.*FRAMEWORK_COMPARE_CACHE"):
        managed.ensure("tiny")


def test_the_parents_modules_do_not_pass_for_installed_ones(framework, tmp_path, monkeypatch, wheels):
    with zipfile.ZipFile(wheels / "tinyfw-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path / "parent")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "parent"))
    framework()
    environment = managed.ensure("tiny")
    assert environment.version == "1.0"


def test_remove_deletes_environment_and_log(tiny):
    assert [one.folder for one in managed.installed()] == [tiny.folder]
    with filelock.FileLock(f"{tiny.folder}.lock"), pytest.raises(EnvironmentUnavailable, match="by another process"):
        managed.remove("tiny")
    other = tiny.folder.rename(tiny.folder.with_name("tiny-er-0123456789ab"))
    assert managed.remove("tiny") == [] and other.exists(), "a framework whose name begins alike"
    other.rename(tiny.folder)
    assert managed.remove("tiny") == [tiny.folder]
    assert not tiny.folder.exists() and not venvs.log_of(tiny.folder).exists()
    assert managed.installed() == managed.remove("tiny") == []


def test_a_known_name_an_interpreter_and_requirements_must_be_there(framework, tmp_path):
    with pytest.raises(UnknownNameError, match="torch"):
        managed.ensure("caffe")
    framework(python=((3, 98), (3, 99)))
    with pytest.raises(EnvironmentUnavailable, match=r"tiny needs Python 3\.98 to 3\.99"):
        managed.ensure("tiny")
    assert managed.find("tiny") is None
    framework()
    (tmp_path / "tiny.txt").unlink()
    with pytest.raises(EnvironmentUnavailable, match=r"tiny\.txt cannot be read"):
        managed.ensure("tiny")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["Resolved", "error: a", "  cause: b", "  cause: c", "  cause: an error: d", "hint: e"], "a: b: an error: d"),
        (["error: Failed to write", "  cause: No space left on", "         device (os error 28)"], "No space left on device"),
        (["something odd"], "something odd"),
        ([], "it printed nothing"),
    ],
    ids=["causes", "two-lines", "no-error-line", "silent"],
)  # fmt: skip
def test_reasons(said, reason):
    assert reason in uv_command.reason([f"{line}\n" for line in said])
