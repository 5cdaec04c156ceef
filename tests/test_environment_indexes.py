"""Where an environment's packages come from: indexes, folders and caches, checksums, wheels of another Python, pip's settings."""

import dataclasses
import functools
import hashlib
import http.server
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from environment_fixtures import leftovers
from wheels import add_to_index, write_wheel

from framework_compare import registry
from framework_compare.environments import installer, managed, uv_command, venvs
from framework_compare.environments.interpreters import Unavailable
from framework_compare.errors import EnvironmentUnavailable

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Serves an index over HTTP that has tinyfw, as pip's settings say; returns what ends that."""
    add_to_index(tmp_path / "index", write_wheel(tmp_path))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            self.send_header("Cache-Control", "max-age=0")
            super().end_headers()

    handler = functools.partial(Handler, directory=str(tmp_path / "index"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for key in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:secret@127.0.0.1:{server.server_port}")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def stop() -> None:
        server.shutdown()
        server.server_close()

    yield stop
    stop()


def test_no_network_is_named_as_the_cause(framework, served, tmp_path):
    framework()
    served()
    with pytest.raises(EnvironmentUnavailable, match="Connection refused.*check the network") as caught:
        managed.ensure("tiny")
    assert leftovers(tmp_path) == []
    (log,) = (tmp_path / "cache/envs").glob("*.log")
    assert "secret" not in log.read_text() + str(caught.value)


def test_without_network_an_environment_is_made_from_the_cache_of_uv(framework, served, tmp_path):
    managed.ensure(framework())
    managed.remove("tiny")
    served()
    said: list[str] = []
    made = managed.ensure("tiny", report=said.append)
    assert made.version == "1.0" and any("trying uv's cache" in message for message in said)


@pytest.fixture
def cpu_builds(framework, monkeypatch, tmp_path):
    """Registers a framework with an index of CPU builds of its own, as PyTorch has; pip's index has the other build.

    Both are folders. Returns the URL of the CPU builds'.
    """
    urls = {}
    for name, version in (("pip", "1.0"), ("cpu", "1.0+cpu")):
        add_to_index(tmp_path / f"index-{name}", write_wheel(tmp_path, version=version))
        urls[name] = (tmp_path / f"index-{name}").as_uri()
    for key in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_INDEX_URL", urls["pip"])
    (tmp_path / "large.txt").write_text("tinyfw===1.0\n")
    entry = registry.FRAMEWORKS[framework("tinyfw==1.0+cpu\n")]
    entry = dataclasses.replace(entry, cpu_index=urls["cpu"], cuda_requirements=str(tmp_path / "large.txt"))
    monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
    return urls["cpu"]


LARGER = "tiny: no index has its CPU build; installing the GPU build, several GB"


def test_the_build_for_cpus_is_from_the_frameworks_own_index(cpu_builds):
    said: list[str] = []
    made = managed.ensure("tiny", report=said.append)
    assert made.version == "1.0+cpu"
    assert venvs.marker(made.folder)["index"] == cpu_builds
    assert len(said) == 2, "made, ready"
    assert managed.ensure("tiny", index=cpu_builds) == made, "it is not made again"


def test_a_folder_of_pips_settings_that_has_the_build_for_cpus_comes_first(cpu_builds, tmp_path, monkeypatch):
    (tmp_path / "links").mkdir()
    write_wheel(tmp_path / "links", version="1.0+cpu")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    made = managed.ensure("tiny")
    assert made.version == "1.0+cpu" and venvs.marker(made.folder)["index"] is None


def test_no_index_but_pips_own_is_used_where_that_is_asked_for(cpu_builds):
    said: list[str] = []
    made = managed.ensure("tiny", index=installer.NO_INDEX, report=said.append)
    assert made.version == "1.0" and venvs.marker(made.folder)["index"] is None and LARGER in said
    assert managed.ensure("tiny") == managed.ensure("tiny", index=installer.NO_INDEX) == made, "it is not made again"


def test_an_index_that_is_named_takes_the_place_of_the_others(cpu_builds, tmp_path):
    add_to_index(tmp_path / "index-own", write_wheel(tmp_path, version="1.0+cpu"))
    url = (tmp_path / "index-own").as_uri()
    assert venvs.marker(managed.ensure("tiny", index=url).folder)["index"] == url


def test_an_index_of_cpu_builds_that_cannot_be_reached_is_one_line(cpu_builds, tmp_path):
    shutil.rmtree(tmp_path / "index-cpu")
    said: list[str] = []
    made = managed.ensure("tiny", report=said.append)
    assert made.version == "1.0" and venvs.marker(made.folder)["index"] is None
    (line,) = [message for message in said if cpu_builds in message]
    assert "is not reachable" in line and LARGER in said


def test_an_index_of_cpu_builds_with_another_file_is_not_passed_over(cpu_builds, tmp_path):
    (tmp_path / "tiny.txt").write_text(f"tinyfw==1.0+cpu --hash=sha256:{'0' * 64}\n")
    with pytest.raises(EnvironmentUnavailable, match="Hash mismatch"):
        managed.ensure("tiny")


def test_no_package_is_looked_for_in_two_indexes(cpu_builds, tmp_path):
    """The framework's own index has a newer build of a package that is not its own, which the first index does not mean."""
    (tmp_path / "tiny.txt").write_text("tinyfw==1.0+cpu\ntinydep==1.0\n")
    for index, version in (("pip", "1.0"), ("cpu", "1.0+cpu")):
        add_to_index(tmp_path / f"index-{index}", write_wheel(tmp_path, version=version, name="tinydep"))
    made = managed.ensure("tiny")
    assert (made.version, made.packages["tinydep"]) == ("1.0+cpu", "1.0")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("tinyfw==1.0 --hash=sha256:{other} \\\n    --hash=sha256:{own}\n", ""),
        ("tinyfw==1.0 \\\n    --hash=sha256:{other}\n", "Hash mismatch for `tinyfw==1.0` .it has sha256:.{12}[.]{3}"),
        ("tinyfw==1.0 --hash=sha256:{own}\ntinydep==1.0\n", "all requirements must have a hash"),
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


@pytest.fixture
def two_indexes(monkeypatch, tmp_path):
    """pip's settings have an index with another version of tinydep, and behind it one with the version that is pinned."""
    for index, name, version in (("first", "tinydep", "2.0"), ("last", "tinydep", "1.0"), ("last", "tinyfw", "1.0")):
        add_to_index(tmp_path / index, write_wheel(tmp_path, name=name, version=version))
    for key in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (tmp_path / "first").as_uri())
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "last").as_uri())
    wheels = {name: next((tmp_path / "last" / name).glob("*.whl")) for name in ("tinyfw", "tinydep")}
    return lambda: "".join(f"{name}==1.0 --hash=sha256:{sha256(wheel)}\n" for name, wheel in wheels.items())


def test_each_hashed_package_is_from_the_first_index_that_has_its_file_and_from_no_other(two_indexes, framework):
    made = managed.ensure(framework(two_indexes()))
    assert (made.version, made.packages["tinydep"]) == ("1.0", "1.0")
    log = managed.plan_for("tiny").log.read_text()
    assert re.search(r"\ntinydep==1.0 is from file://\S+/last\n", log)
    assert not re.search(r"^\$ .* --index-strategy", log, re.MULTILINE)


def test_a_package_that_an_index_in_front_has_in_another_file_is_refused(two_indexes, framework, tmp_path):
    requirements = two_indexes()
    (tmp_path / "first/tinydep/tinydep-2.0-py3-none-any.whl").unlink()
    shutil.rmtree(tmp_path / "first/tinydep")
    add_to_index(tmp_path / "first", write_wheel(tmp_path, name="tinydep", tag="py2.py3-none-any"))
    with pytest.raises(EnvironmentUnavailable, match="Hash mismatch for `tinydep==1.0`"):
        managed.ensure(framework(requirements))
    assert leftovers(tmp_path) == []


def test_frameworks_without_a_checksum_and_packages_that_no_index_has_are_told(two_indexes, framework):
    said: list[str] = []
    own, dependency = two_indexes().splitlines()
    made = managed.ensure(framework(f"tinyfw==1.0\n{dependency}\n"), report=said.append)
    assert (made.version, made.packages["tinydep"]) == ("1.0", "1.0")
    assert "tiny: no checksum is known for tinyfw==1.0; they are installed as the index serves them" in said
    requirements = two_indexes().replace("tinydep==1.0", "tinydep==3.0")
    with pytest.raises(EnvironmentUnavailable, match="tinydep==3.0"):
        managed.ensure(framework(requirements))


def test_nothing_of_hashed_requirements_is_built_here(framework, tmp_path, monkeypatch):
    """A source distribution would run its setup.py."""
    (tmp_path / "tinyfw-1.0").mkdir()
    (tmp_path / "tinyfw-1.0/setup.py").write_text(f"open({str(tmp_path / 'was-executed')!r}, 'w')\n")
    (tmp_path / "tinyfw-1.0/PKG-INFO").write_text("Metadata-Version: 2.1\nName: tinyfw\nVersion: 1.0\n")
    source = Path(shutil.make_archive(str(tmp_path / "tinyfw-1.0"), "gztar", tmp_path, "tinyfw-1.0"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EnvironmentUnavailable, match="tinyfw==1.0 has no usable wheels"):
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
        folder.mkdir(exist_ok=True)
        wheel = write_wheel(folder, "cp36-cp36m-manylinux2014_x86_64")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
        digest = checksum or hashlib.sha256(wheel.read_bytes()).hexdigest()
        pins = tmp_path / "cp36.txt"
        pins.write_text(f"tinyfw==1.0 --hash=sha256:{digest}\n")
        wheels = registry.ForeignWheels(str(pins), "3.6", "manylinux2014_x86_64")
        entry = dataclasses.replace(registry.FRAMEWORKS[framework("")], foreign=wheels)
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
        return "tiny"

    return register


def test_a_wheel_of_another_python_is_installed_if_it_has_its_checksum(foreign, tmp_path, monkeypatch):
    with pytest.raises(EnvironmentUnavailable, match="Hash mismatch"):
        managed.ensure(foreign("0" * 64))
    assert leftovers(tmp_path) == []
    (tmp_path / "constraints.txt").write_text("tinyfw<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    made = managed.ensure(foreign())
    assert (made.version, made.packages["tinyfw"]) == ("1.0", "1.0")
    assert subprocess.run([made.python, "-c", "import tinyfw"], check=False).returncode == 0


@pytest.mark.parametrize("checksum", [False, True], ids=["plain", "hashed"])
def test_constraints_of_pip_hold(framework, checksum, wheels, tmp_path, monkeypatch):
    name = framework(f"tinyfw==1.0{f' --hash=sha256:{sha256(next(wheels.iterdir()))}' if checksum else ''}\n")
    (tmp_path / "constraints.txt").write_text("tinyfw<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    assert managed.ensure(name).version == "1.0"
    managed.remove(name)
    (tmp_path / "constraints.txt").write_text("tinyfw<1\n")
    with pytest.raises(EnvironmentUnavailable, match="tinyfw<1"):
        managed.ensure(name)


def test_pips_settings_are_handed_to_uv(tmp_path, monkeypatch):
    for folder, text in (
        ("etc/pip", "[global]\nindex-url = https://everyone.invalid/\n[install]\nproxy = p:1\n"),
        ("home/pip", "[global]\nindex_url = https://own.invalid/\ncert = own.pem\nfind-links =\n    one\n    two\n"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pip.conf").write_text(text)
    for key in ("PIP_CONFIG_FILE", "PIP_NO_INDEX", "PIP_FIND_LINKS", "SSL_CERT_FILE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "q:1")
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "etc"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.invalid https://b.invalid")
    monkeypatch.setenv("PIP_TIMEOUT", "7")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "9")
    handed = uv_command.read().environment()
    assert handed["UV_DEFAULT_INDEX"] == "https://own.invalid/" and handed["SSL_CERT_FILE"] == "own.pem"
    assert handed["UV_FIND_LINKS"] == "one,two"
    assert handed["UV_EXTRA_INDEX_URL"] == "https://a.invalid https://b.invalid"
    assert handed["UV_HTTP_TIMEOUT"] == "9", "a variable of uv's own stays"
    assert {handed[key] for key in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")} == {"p:1"}, "pip's option goes first"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert "UV_DEFAULT_INDEX" not in uv_command.read().environment()


def test_settings_of_pip_that_cannot_be_read_are_named(framework, tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text("index-url = x\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(EnvironmentUnavailable, match=r"pip's settings cannot be read.*pip\.conf"):
        managed.ensure(framework())
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("word", ["1", "ON", "t", "true", "y", "Yes"])
def test_indexes_are_not_asked_whatever_word_of_pips_forbids_them(word, two_indexes, framework, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", word)
    with pytest.raises(EnvironmentUnavailable, match="tinyfw"):
        managed.ensure(framework(two_indexes()))


def test_a_ban_of_indexes_holds_beside_an_empty_one_and_is_not_guessed(tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text("[global]\n--no-index = t\n[install]\nno-index =\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_NO_INDEX")
    assert uv_command.read().no_index
    monkeypatch.setenv("PIP_NO_INDEX", "n")
    assert not uv_command.read().no_index
    monkeypatch.setenv("PIP_NO_INDEX", "yess")
    with pytest.raises(Unavailable, match="no-index is 'yess'"):
        uv_command.read()


def test_homes_and_parts_of_a_second_are_as_pip_has_them(framework, wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(wheels.parent))
    monkeypatch.setenv("PIP_FIND_LINKS", f"~/{wheels.name}")
    monkeypatch.setenv("PIP_TIMEOUT", "12.5")
    (wheels.parent / "constraints.txt").write_text("tinyfw<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", "~/constraints.txt")
    for key in ("SSL_CERT_FILE", "SSL_CLIENT_CERT", "UV_HTTP_TIMEOUT"):
        monkeypatch.delenv(key, raising=False)
    assert managed.ensure(framework()).version == "1.0"
    monkeypatch.setenv("PIP_CERT", "~/own.pem")
    monkeypatch.setenv("PIP_CLIENT_CERT", "~/client.pem")
    monkeypatch.setenv("PIP_TIMEOUT", "0.2")
    handed = uv_command.read().environment()
    assert handed["UV_HTTP_TIMEOUT"] == "1" and handed["SSL_CERT_FILE"] == str(wheels.parent / "own.pem")
    assert handed["SSL_CLIENT_CERT"] == str(wheels.parent / "client.pem")
