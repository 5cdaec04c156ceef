"""Environments are made once, reused, repaired and removed; every failure is a sentence. Offline, with real venvs."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import filelock
import pytest

from framework_compare import registry
from framework_compare.environments import installers, managed, venvs
from framework_compare.errors import EnvironmentUnavailable, UnknownNameError, UsageError
from framework_compare.registry import Framework

ANY_PYTHON = ((3, 10), (3, 99))


def write_wheel(folder: Path, tag: str = "py3-none-any", version: str = "1.0", name: str = "tinyfw") -> Path:
    """tinyfw, a framework of one line."""
    meta = f"{name}-{version}.dist-info/"
    files = {
        f"{name}/__init__.py": f"__version__ = '{version}'\n",
        meta + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        meta + "WHEEL": f"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, meta + "RECORD"])
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, meta + "RECORD": record}.items():
            wheel.writestr(file, text)
    return path


def add_to_index(index: Path, wheel: Path) -> None:
    """A package of one file."""
    page = index / wheel.name.partition("-")[0]
    page.mkdir(parents=True)
    wheel.rename(page / wheel.name)
    (page / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder)
    return folder


@pytest.fixture(autouse=True)
def offline(monkeypatch, wheels, tmp_path, copied_venvs):
    """pip sees our wheel and nothing else, whatever its configuration; the cache is this test's own."""
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
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


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("finished") / "envs"


@pytest.fixture
def tiny(framework, finished, tmp_path) -> managed.Environment:
    """A healthy environment of the framework `tiny`, made by pip once a session and copied for each test."""
    name, envs = framework(), tmp_path / "cache/envs"
    if finished.exists():
        shutil.copytree(finished, envs, symlinks=True)
    environment = managed.ensure(name)
    if not finished.exists():
        shutil.copytree(envs, finished, symlinks=True)
    return environment


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache/envs").iterdir() if path.is_dir()]


def test_an_environment_is_made_and_described(tiny):
    assert (tiny.framework, tiny.version, tiny.managed) == ("tiny", "1.0", True)
    assert tiny.packages["tinyfw"] == "1.0"
    assert tiny.size_bytes > 0
    assert re.fullmatch(r"tiny-[0-9a-f]{12}", tiny.folder.name)
    assert subprocess.run([tiny.python, "-c", "import tinyfw"], check=False).returncode == 0


def test_a_healthy_environment_is_reused(tiny):
    before = (tiny.folder / venvs.MARKER).stat()
    said = []
    assert managed.ensure("tiny", report=said.append) == tiny
    assert managed.find("tiny") == tiny
    assert said == []
    assert (tiny.folder / venvs.MARKER).stat() == before


def test_comments_and_the_installer_do_not_change_the_environment(tiny, framework):
    framework("# a comment\ntinyfw==1.0  # another\n\n")
    assert managed.ensure("tiny", installer="uv") == tiny


def test_other_requirements_are_another_environment(tiny, framework):
    framework("tinyfw==1.0\nnot-there==2\n")
    assert managed.find("tiny") is None
    assert managed.plan_for("tiny").folder != tiny.folder


def delete_marker(folder: Path) -> None:
    (folder / venvs.MARKER).unlink()


def cut_marker(folder: Path) -> None:
    (folder / venvs.MARKER).write_text("{")


def delete_package_file(folder: Path) -> None:
    (venvs.site_packages(folder) / "tinyfw/__init__.py").unlink()


def lengthen_package_file(folder: Path) -> None:
    with (venvs.site_packages(folder) / "tinyfw/__init__.py").open("a") as file:
        file.write("# more\n")


def break_python(folder: Path) -> None:
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to("gone")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (delete_marker, "has not finished"),
        (cut_marker, "has not finished"),
        (delete_package_file, "missing or changed"),
        (lengthen_package_file, "missing or changed"),
        (break_python, "no longer runs"),
    ],
)
def test_damage_is_noticed(tiny, damage, reason):
    damage(tiny.folder)
    assert reason in venvs.fault(managed.plan_for("tiny"))
    assert managed.find("tiny") is None


def test_bytecode_is_not_damage(tiny):
    cache = venvs.site_packages(tiny.folder) / "tinyfw/__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "more.pyc").write_text("x")
    assert managed.find("tiny") == tiny


def test_a_broken_environment_is_repaired(tiny):
    delete_package_file(tiny.folder)
    said = []
    repaired = managed.ensure("tiny", report=said.append)
    assert repaired.python == tiny.python
    assert subprocess.run([repaired.python, "-c", "import tinyfw"], check=False).returncode == 0
    assert "tiny: repairing its environment (files of its packages are missing or changed)" in said[0]


def test_an_environment_made_without_the_index_asked_for_is_faulty(tiny):
    plan = managed.plan_for("tiny")
    assert "https://host.invalid/cpu" in venvs.fault(plan, index="https://me:secret@host.invalid/cpu")
    assert "secret" not in venvs.fault(plan, index="https://me:secret@host.invalid/cpu")
    assert venvs.fault(plan) == ""


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


def test_waiting_for_another_process_is_told(tiny):
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
    assert "another process is making its environment" in said[0]
    assert managed.find("tiny") is not None


def test_a_package_nobody_has_leaves_nothing_and_says_so(framework, tmp_path):
    framework("tinyfw==1.0\nno-such-package==1.0\n")
    with pytest.raises(EnvironmentUnavailable) as caught:
        managed.ensure("tiny")
    message = str(caught.value)
    assert "tiny: pip could not install its requirements" in message
    assert "No matching distribution found for no-such-package==1.0" in message
    assert "--python tiny=/path/to/python" in message
    assert "\n" not in message
    assert leftovers(tmp_path) == []
    log = Path(message.rpartition(" ")[2])
    assert "no-such-package" in log.read_text()


def test_no_network_is_named_as_the_cause(framework, tmp_path, monkeypatch):
    framework()
    for key in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(EnvironmentUnavailable, match="no package index could be reached.*check the network"):
        managed.ensure("tiny")
    assert leftovers(tmp_path) == []


def test_an_interrupted_install_leaves_nothing(framework, tmp_path, monkeypatch):
    framework()

    def interrupted(order: installers.Order) -> None:
        (order.folder / "bin").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(installers, "install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        managed.ensure("tiny")
    assert leftovers(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_named(framework, tmp_path, monkeypatch):
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


def test_no_interpreter_in_range(framework):
    framework(python=((3, 98), (3, 99)))
    with pytest.raises(EnvironmentUnavailable, match=r"tiny needs Python 3\.98 to 3\.99"):
        managed.ensure("tiny")
    assert managed.find("tiny") is None


def test_missing_requirements_file(framework, tmp_path):
    framework()
    (tmp_path / "tiny.txt").unlink()
    with pytest.raises(EnvironmentUnavailable, match=r"tiny\.txt cannot be read"):
        managed.ensure("tiny")


def test_remove_deletes_environment_and_log(tiny):
    assert [one.folder for one in managed.installed()] == [tiny.folder]
    assert managed.remove("tiny") == [tiny.folder]
    assert not tiny.folder.exists() and not venvs.log_of(tiny.folder).exists()
    assert managed.installed() == []
    assert managed.remove("tiny") == []


def test_remove_spares_a_framework_whose_name_begins_alike(tiny):
    other = tiny.folder.rename(tiny.folder.with_name("tiny-er-0123456789ab"))
    assert managed.remove("tiny") == []
    assert other.exists()


def test_remove_refuses_while_another_process_makes_it(tiny):
    with filelock.FileLock(f"{tiny.folder}.lock"), pytest.raises(EnvironmentUnavailable, match="by another process"):
        managed.remove("tiny")
    assert tiny.folder.exists()


def test_unknown_names_list_what_is_allowed():
    with pytest.raises(UnknownNameError, match="torch"):
        managed.ensure("caffe")
    with pytest.raises(UsageError, match="pip, uv"):
        managed.ensure("torch", installer="poetry")


def test_uv_that_is_not_there(framework, tmp_path, monkeypatch):
    framework()
    monkeypatch.setattr(installers.shutil, "which", lambda name, path=None: None)
    with pytest.raises(EnvironmentUnavailable, match="no uv is on PATH.*pip install uv"):
        managed.ensure("tiny", installer="uv")
    assert leftovers(tmp_path) == []


def test_uv_is_told_the_python_the_requirements_and_the_index(framework, tmp_path, monkeypatch):
    framework()
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    environment = managed.ensure("tiny", installer="uv", index="https://me:secret@host.invalid/cpu")
    own, every = (tmp_path / "told").read_text().splitlines()
    assert f"--python {environment.python}" in own and f"-r {tmp_path / 'tiny.txt'}" in every
    assert "--no-deps" in own and "--index-url https://me:secret@host.invalid/cpu" in own and "index" not in every
    kept = (environment.folder / venvs.MARKER).read_text() + venvs.log_of(environment.folder).read_text()
    assert "https://host.invalid/cpu" in kept and "secret" not in kept


@pytest.fixture
def cpu_builds(framework, monkeypatch, tmp_path):
    """Registers tinyfw with an index of CPU builds of its own, as PyTorch has; pip's index has the other build.

    Returns the URL of pip's index. Both are folders; `reachable` says whether the CPU builds' is there.
    """

    def register(reachable: bool = True) -> str:
        urls = {}
        for name, version in (("pip", "1.0"), ("cpu", "1.0+cpu")):
            add_to_index(tmp_path / f"index-{name}", write_wheel(tmp_path, version=version))
            urls[name] = (tmp_path / f"index-{name}").as_uri()
        if not reachable:
            shutil.rmtree(tmp_path / "index-cpu")
        for key in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
            monkeypatch.delenv(key)
        monkeypatch.setenv("PIP_INDEX_URL", urls["pip"])
        entry = dataclasses.replace(registry.FRAMEWORKS[framework()], cpu_index=urls["cpu"])
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
        return urls["pip"]

    return register


def test_the_build_for_cpus_is_installed_by_itself(cpu_builds):
    cpu_builds()
    said: list[str] = []
    made = managed.ensure("tiny", report=said.append)
    assert made.version == "1.0+cpu"
    assert not any("cannot be reached" in message for message in said)
    assert venvs.marker(made.folder)["index"] == registry.FRAMEWORKS["tiny"].cpu_index
    assert managed.ensure("tiny", index=registry.FRAMEWORKS["tiny"].cpu_index) == made, "it is not made again"


def test_no_index_but_pips_own_is_used_where_that_is_asked_for(cpu_builds):
    cpu_builds()
    made = managed.ensure("tiny", index=installers.NO_INDEX)
    assert made.version == "1.0" and venvs.marker(made.folder)["index"] is None
    assert managed.ensure("tiny") == managed.ensure("tiny", index=installers.NO_INDEX) == made, "it is not made again"


def test_an_index_that_is_named_takes_the_place_of_the_default_one(cpu_builds):
    assert managed.ensure("tiny", index=cpu_builds()).version == "1.0"


def test_an_index_of_cpu_builds_that_cannot_be_reached_is_one_line(cpu_builds):
    cpu_builds(reachable=False)
    said: list[str] = []
    made = managed.ensure("tiny", report=said.append)
    assert made.version == "1.0" and venvs.marker(made.folder)["index"] is None
    (line,) = [message for message in said if "cannot be reached" in message]
    assert (
        registry.FRAMEWORKS["tiny"].cpu_index in line
        and "neither a file nor" in line
        and "settings of pip alone" in line
    )


def test_a_host_that_does_not_answer_is_asked_once(cpu_builds, monkeypatch):
    cpu_builds()
    entry = dataclasses.replace(registry.FRAMEWORKS["tiny"], cpu_index="http://127.0.0.1:9/cpu")
    monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    said: list[str] = []
    made = managed.ensure("tiny", report=said.append)
    assert made.version == "1.0"
    assert sum("Connection refused" in message for message in said) == 1
    assert "install --no-input --disable-pip-version-check --no-deps" not in venvs.log_of(made.folder).read_text()


def test_uv_asks_the_index_of_cpu_builds_before_it_installs_from_it(cpu_builds, tmp_path, monkeypatch):
    cpu_builds()
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    managed.ensure("tiny", installer="uv")
    index = registry.FRAMEWORKS["tiny"].cpu_index
    asked, own, every = (tmp_path / "told").read_text().splitlines()
    assert "--dry-run" in asked and f"--index-url {index} tinyfw" in asked
    assert f"--index-url {index}" in own and index not in every


def test_no_package_is_looked_for_in_two_indexes(cpu_builds, tmp_path, framework):
    """The framework's own index has a newer build of a package that is not its own, which the first index does not mean."""
    cpu_builds()
    (tmp_path / "tiny.txt").write_text("tinyfw==1.0\ntinydep==1.0\n")
    for index, version in (("pip", "1.0"), ("cpu", "1.0+cpu")):
        add_to_index(tmp_path / f"index-{index}", write_wheel(tmp_path, version=version, name="tinydep"))
    made = managed.ensure("tiny")
    assert (made.version, made.packages["tinydep"]) == ("1.0+cpu", "1.0")


def test_a_build_for_gpus_is_installed_where_no_index_has_one_for_cpus(cpu_builds, tmp_path, monkeypatch):
    cpu_builds(reachable=False)
    (tmp_path / "tiny.txt").write_text("tinyfw==1.0+cpu\n")
    (tmp_path / "large.txt").write_text("tinyfw===1.0\n")
    entry = dataclasses.replace(registry.FRAMEWORKS["tiny"], cuda_requirements=str(tmp_path / "large.txt"))
    monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
    said: list[str] = []
    assert managed.ensure("tiny", report=said.append).version == "1.0"
    assert "tiny: no index has its build for CPUs; installing the one for GPUs, several GB" in said


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("tinyfw==1.0 --hash=sha256:{other} \\\n    --hash=sha256:{own}\n", ""),
        ("tinyfw==1.0 \\\n    --hash=sha256:{other}\n", "another file than the one that is pinned"),
        ("tinyfw==1.0 --hash=sha256:{own}\ntinydep==1.0\n", "require-hashes mode"),
    ],
    ids=["one-of-two", "another-file", "one-without"],
)
def test_files_of_hashed_requirements_are_checked(lines, reason, framework, tmp_path, monkeypatch):
    wheel = write_wheel(tmp_path)
    write_wheel(tmp_path, name="tinydep")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    name = framework(lines.format(own=sha256(wheel), other="0" * 64))
    assert venvs.pins_of(registry.framework(name))[0] == "tinyfw==1.0"
    if not reason:
        assert managed.ensure(name).version == "1.0"
        return
    with pytest.raises(EnvironmentUnavailable, match=reason):
        managed.ensure(name)
    assert leftovers(tmp_path) == []


def test_nothing_of_hashed_requirements_is_built_here(framework, tmp_path, monkeypatch):
    """A source distribution would run its setup.py."""
    (tmp_path / "tinyfw-1.0").mkdir()
    (tmp_path / "tinyfw-1.0/setup.py").write_text(f"open({str(tmp_path / 'was-executed')!r}, 'w')\n")
    (tmp_path / "tinyfw-1.0/PKG-INFO").write_text("Metadata-Version: 2.1\nName: tinyfw\nVersion: 1.0\n")
    source = Path(shutil.make_archive(str(tmp_path / "tinyfw-1.0"), "gztar", tmp_path, "tinyfw-1.0"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EnvironmentUnavailable, match="No matching distribution found for tinyfw"):
        managed.ensure(framework(f"tinyfw==1.0 --hash=sha256:{sha256(source)}\n"))
    assert not (tmp_path / "was-executed").exists()


def test_torch_has_an_index_of_cpu_builds_for_its_cpu_environment_only():
    assert venvs.plan(registry.framework("torch"), Path()).default_index.startswith("https://download.pytorch.org/")
    assert venvs.plan(registry.framework("torch"), Path(), "cuda").default_index == ""


@pytest.fixture
def foreign(framework, tmp_path, monkeypatch):
    """Registers tinyfw, whose only wheel is named after CPython 3.6, with the checksum that is given, or its own."""

    def register(checksum: str = "") -> str:
        folder = tmp_path / "foreign"
        folder.mkdir()
        wheel = write_wheel(folder, "cp36-cp36m-manylinux2014_x86_64")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
        digest = checksum or hashlib.sha256(wheel.read_bytes()).hexdigest()
        pins = tmp_path / "cp36.txt"
        pins.write_text(f"tinyfw==1.0 --hash=sha256:{digest}\n")
        wheels = registry.ForeignWheels(str(pins), "3.6", "cp36m", "manylinux2014_x86_64")
        entry = dataclasses.replace(registry.FRAMEWORKS[framework("")], foreign=wheels)
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
        return "tiny"

    return register


def test_a_wheel_of_another_python_is_installed(foreign):
    made = managed.ensure(foreign())
    assert (made.version, made.packages["tinyfw"]) == ("1.0", "1.0")
    assert subprocess.run([made.python, "-c", "import tinyfw"], check=False).returncode == 0


def test_a_wheel_of_another_python_with_another_checksum_is_not(foreign, tmp_path):
    with pytest.raises(EnvironmentUnavailable, match="another file than the one that is pinned by its sha256 .{12}"):
        managed.ensure(foreign("0" * 64))
    assert leftovers(tmp_path) == []


def test_uv_is_told_the_python_that_a_wheel_is_named_after(foreign, tmp_path, monkeypatch):
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    made = managed.ensure(foreign(), installer="uv")
    told = (tmp_path / "told").read_text().splitlines()[1]
    assert f"--target {venvs.site_packages(made.folder)}" in told and f"-r {tmp_path / 'cp36.txt'}" in told
    assert "--python-version 3.6 --python-platform x86_64-manylinux2014" in told and "--require-hashes" in told


@pytest.mark.parametrize(
    ("installer", "said", "reason"),
    [
        (
            "pip",
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
            "No space",
        ),
        ("pip", ["Collecting x", "ERROR: Failed building wheel for x", "ERROR: Could not build wheels for x"], "build"),
        ("pip", ["something odd"], "something odd"),
        ("pip", [], "it printed nothing"),
        (
            "uv",
            ["  × No solution found when resolving dependencies:", "  ╰─▶ Because x was not found", "      we stop."],
            "No solution found when resolving dependencies: Because x was not found we stop",
        ),
    ],
    ids=["no-space", "build", "no-error-line", "silent", "uv-no-solution"],
)
def test_reasons(installer, said, reason):
    order = installers.Order("tiny", Path("e"), Path("p"), Path("r"), Path("l"), installer)
    assert reason in installers.diagnose(order, said)[0]
