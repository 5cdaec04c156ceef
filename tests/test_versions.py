"""Versions of a framework beside each other: names, lock files, environments, what happens without a network."""

import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from command_line import run
from environment_fixtures import ANY_PYTHON
from packaging.version import Version
from wheels import write_wheel

from framework_compare import registry
from framework_compare.environments import locks, managed, releases, venvs
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.plan import competitors
from framework_compare.registry import Framework
from framework_compare.report.names import in_order, title

VERSIONS = ("0.9", "1.0", "1.1", "2.0", "3.0rc1")


@pytest.fixture
def wheels(tmp_path):
    """Five releases of tinyfw for any Python, and one for another."""
    folder = tmp_path / "links"
    folder.mkdir()
    for version in VERSIONS:
        write_wheel(folder, version=version)
    write_wheel(folder, tag="cp30-cp30-any", version="9.0")
    return folder


@pytest.fixture(autouse=True)
def links(wheels, offline, framework, monkeypatch):
    """The one folder of wheels that pip's settings know; `tiny` pins tinyfw 1.0, `bare` nothing."""
    framework()
    monkeypatch.setitem(registry.FRAMEWORKS, "bare", Framework("bare", "bare:T", "", "numpy", ANY_PYTHON))
    return wheels


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["tiny"], ["tiny"]),
        (["tiny@1.1"], ["tiny@1.1"]),
        (["tiny", "tiny@1.1"], ["tiny@1.0", "tiny@1.1"]),
        (["tiny@2.0", "tiny@0.9", "bare"], ["tiny@2.0", "tiny@0.9", "bare"]),
        (["tiny", "tiny@latest"], ["tiny@1.0", "tiny@2.0"]),
        (["tiny@1.1.0"], ["tiny@1.1"]),
        (["tiny@v1.1"], ["tiny@1.1"]),
        (["tiny", "tiny@b"], ["tiny@1.0", "tiny@1.0-b"]),
        ("TINY", ["tiny"]),
    ],
)
def test_a_name_carries_the_version_where_it_was_given_or_where_two_compete(wanted, names):
    found = competitors.read(wanted)
    assert found.names == names
    assert competitors.read(found.names).names == names, "names that cells have are names that users may give"
    assert title("torch@2.12.0") == "PyTorch 2.12.0"
    assert in_order(["jax@0.9.2", "torch", "jax@0.10.2", "x"]) == ["torch", "jax@0.9.2", "jax@0.10.2", "x"]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("tiny@1.2", r"no release 1\.2 .*the nearest are 1\.0, 1\.1, 2\.0$"),
        ("tiny@9.0", r"no release 9\.0 .*the nearest are 1\.1, 2\.0$"),
        ("tiny@new", "not a version; allowed: torch, torch@2.12.0, torch@latest"),
        ("tiny@", "allowed: torch, torch@2.12.0"),
        ({"tiny": "1.1"}, "allowed: a name or a list of names"),
        ("tiny==1.1", r"for a version, name tiny@1\.1$"),
        ("tiny=1.1", r"for a version, name tiny@1\.1$"),
        ("tiny@1.0+cpu", r"name the version without its build: tiny@1\.0$"),
        ("bare@1.0", "no version is pinned for bare, allowed: bare, or bare=/path/to/python"),
        (["tiny", "tiny@1.0"], "given twice"),
        ("keras-jax@2.15.0", r"allowed: keras-jax@3\.0\.0 or later$"),
        ("caffe@1.0", "unknown framework 'caffe'"),
    ],
)
def test_a_version_that_is_not_there_is_one_sentence(wanted, says):
    with pytest.raises(UsageError, match=says):
        competitors.find_frameworks(competitors.read(wanted).names)


def test_an_interpreter_is_a_competitor_of_its_own():
    says = f"python of bare@latest is '{sys.executable}', which has one version; allowed: bare={sys.executable}"
    with pytest.raises(UsageError, match=re.escape(says) + "$"):
        competitors.read("bare@latest", {"bare@latest": sys.executable})
    found = competitors.read(["bare", f"bare={sys.executable}"])
    name = found.names[1]
    assert found.names[0] == "bare" and re.fullmatch(r"bare@[\d.]+", name)
    assert found.python == {name: sys.executable}
    assert competitors.read(found.names, found.python).names == found.names
    found = competitors.read(["tiny", "tiny@1.1"], {}, {"tiny": "https://host/simple"})
    assert found.index["tiny@1.1"] == found.index["tiny@1.0"] == "https://host/simple", "the framework's index"
    alone = competitors.read(f"bare={sys.executable}")
    assert (alone.names, alone.python) == (["bare"], {"bare": sys.executable})
    for one, python in (("bare", {"bare": sys.executable}), (f"bare={sys.executable}", {})):
        found = competitors.read(list(competitors.twice(one, one)), python)
        first, second = found.names
        assert re.fullmatch(r"bare@[\d.]+", first) and second == f"{first}-b"
        assert [found.python[name] for name in found.names] == [sys.executable] * 2


def test_an_interpreter_that_is_not_what_a_name_says_is_said(framework):
    said: list[str] = []
    competitors.read(["bare@0.1"], {"bare@0.1": sys.executable}, say=said.append)
    assert re.fullmatch(rf"{sys.executable}: bare@0\.1 runs bare [\d.]+, not the version of its name", said.pop())
    assert competitors.read(["tiny@1.1"], {"tiny": sys.executable}, say=said.append).python == {}
    assert said.pop() == "python of tiny is not used, since each tiny here names a version"
    assert competitors.read(["tiny"], {"tiny@1.1": sys.executable}, say=said.append).names == ["tiny"]
    assert said.pop() == "python of tiny@1.1 is not used, since the competitors are tiny"
    framework(imports="numpy")
    for wanted, python in ((["tiny@1.1.0"], "tiny@1.1"), (["tiny", "tiny@1.1"], "tiny@1.0")):
        competitors.read(wanted, {python: sys.executable}, say=said.append)
        assert said.pop() == f"{sys.executable}: {python} runs tiny {np.__version__}, not the version of its name"
    assert competitors.misnamed("tiny@1.0-b-b", "1.0") == ""
    found = competitors.read(["bare", f"bare={sys.executable}"], say=said.append)
    competitors.read(found.names, found.python, say=said.append)
    assert said == [], "names that were made from interpreters are right"


def test_a_version_is_made_from_a_lock_with_checksums_and_shared():
    said: list[str] = []
    made = managed.ensure("tiny@1.1", report=said.append)
    assert (made.framework, made.version) == ("tiny@1.1", "1.1")
    lock = locks.find(managed.locks_dir(), "tiny@1.1", "cpu")
    assert re.search(r"^tinyfw==1\.1 \\\n    --hash=sha256:\w{64}$", lock.path.read_text(), re.MULTILINE)
    assert "resolving" in said[0] and managed.find("tiny@1.1") == made
    assert managed.ensure("tiny@1.1-b").folder == made.folder, "the same version again has the same environment"
    assert managed.ensure("tiny@1.0").folder == managed.ensure("tiny").folder, "the pinned one has the shipped lock"
    assert made.folder != managed.ensure("tiny").folder


def test_a_wheel_that_was_changed_since_is_refused(links):
    managed.ensure("tiny@1.1")
    managed.remove("tiny")
    (folder,) = managed._root().glob("tiny@1.1-*[0-9a-f]")
    managed.delete(folder, "tiny@1.1")
    (links / "tinyfw-1.1-py3-none-any.whl").unlink()
    write_wheel(links, version="1.1").write_bytes((links / "tinyfw-2.0-py3-none-any.whl").read_bytes())
    os.environ["UV_CACHE_DIR"] += "-fresh"
    with pytest.raises(EnvironmentUnavailable, match="Hash mismatch"):
        managed.ensure("tiny@1.1")


def test_what_is_there_serves_without_a_network(links, monkeypatch):
    managed.ensure("tiny@1.1")
    for wheel in links.iterdir():
        wheel.unlink()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "https://nowhere.invalid/simple")
    said: list[str] = []
    assert competitors.read(["tiny@1.1"], say=said.append).names == ["tiny@1.1"] and not said
    assert managed.ensure("tiny@1.1").version == "1.1"
    assert competitors.read(["tiny@latest"], say=said.append).names == ["tiny@1.1"]
    assert "no index responds" in said[-1] and "using the newest installed version, 1.1" in said[-1]
    assert competitors.read(["tiny@2.0"], say=said.append).names == ["tiny@2.0"], "its cells say why they did not run"
    with pytest.raises(EnvironmentUnavailable, match="no index responds"):
        managed.ensure("tiny@2.0")
    assert competitors.read(["tiny@v1.1.0"]).names == ["tiny@1.1"], "not a second environment of the same release"
    write_wheel(links, version="1.0")
    said.clear()
    assert competitors.read(["tiny@2.0"], say=said.append).names == ["tiny@2.0"], "another index may have it"
    assert re.search(r"no index that responds has tinyfw 2.0 \(.*nowhere.invalid", said[-1])
    with pytest.raises(EnvironmentUnavailable, match="no index that responds"):
        managed.ensure("tiny@2.0")
    assert competitors.read(["tiny@latest"], say=said.append).names == ["tiny@1.0"]
    assert re.search(r"an index does not respond \(https://nowhere.invalid/simple/tinyfw/: .*only releases", said[-1])


def test_a_version_that_was_pinned_stays_as_it_was_when_the_pin_moves(framework, links):
    before = managed.ensure("tiny")
    for wheel in links.iterdir():
        wheel.unlink()
    framework("tinyfw==2.0\n")
    assert competitors.read(["tiny@1.0", "tiny"]).names == ["tiny@1.0", "tiny@2.0"]
    after = managed.ensure("tiny@1.0")
    assert (after.framework, after.version, after.folder) == ("tiny@1.0", "1.0", before.folder)
    assert managed.versions_here("tiny") == [Version("1.0")]
    with pytest.raises(EnvironmentUnavailable):
        managed.ensure("tiny")
    write_wheel(links, version="2.0")
    after = managed.ensure("tiny")
    assert f"removed {before.folder}" in run("env", "remove", "tiny@1.0").stdout
    assert managed.installed() == [after]


@pytest.mark.parametrize("shared", ["", "tiny"])
def test_a_version_of_a_library_is_not_that_of_the_framework_below_it(shared, links, monkeypatch, tmp_path):
    for version in ("1.0", "1.1", "1.2"):
        write_wheel(links, version=version, name="tinylib")
    pins = tmp_path / "tiny.txt"
    pins.write_text("tinyfw==1.0\ntinylib==1.1\n")
    more = {"library": "tinylib", "backend": "tiny", "environment": shared}
    monkeypatch.setitem(registry.FRAMEWORKS, "top", Framework("top", "top:T", str(pins), "tinylib", ANY_PYTHON, **more))
    assert competitors.read(["top", "top@1.2"]).names == ["top@1.1", "top@1.2"]
    assert competitors.read("top@latest").names == ["top@1.2"]
    with pytest.raises(UsageError, match=r"top@2\.0; tinylib has no release 2\.0 .*the nearest are 1\.1, 1\.2$"):
        competitors.read("top@2.0")
    old, new = managed.ensure("top@1.1"), managed.ensure("top@1.2")
    for made, version in ((old, "1.1"), (new, "1.2")):
        assert made.version == made.packages["tinylib"] == version and made.packages["tinyfw"] == "1.0"
    assert managed.read(new.folder).version == "1.2"


def test_without_any_index_the_newest_is_the_newest_installed(monkeypatch):
    managed.ensure("tiny@2.0")
    monkeypatch.delenv("PIP_FIND_LINKS")
    said: list[str] = []
    assert competitors.read(["tiny@latest"], say=said.append).names == ["tiny@2.0"]
    assert "name no index and no folder" in said[-1] and "using the newest installed version, 2.0" in said[-1]
    marker = managed.ensure("tiny@2.0").folder / venvs.MARKER
    marker.write_text(marker.read_text().replace(sys.version.split()[0], "3.4.10"))
    assert competitors.read(["tiny@latest"]).names == ["tiny@1.0"], "that has another Python"


def test_constraints_of_pip_bound_what_is_newest(monkeypatch, tmp_path):
    (tmp_path / "limits.txt").write_text("# of this house\ntinyfw<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "limits.txt"))
    assert competitors.read("tiny@latest").names == ["tiny@1.1"]
    with pytest.raises(UsageError, match="no release 2.0"):
        competitors.read("tiny@2.0")


def test_releases_are_those_with_a_wheel_for_this_python(tmp_path, monkeypatch):
    page = tmp_path / "index" / "tinyfw"
    page.mkdir(parents=True)
    lines = [
        '<a href="tinyfw-5.0-py3-none-any.whl#sha256=0">x</a>',
        '<a href="tinyfw-6.0-py3-none-any.whl" data-requires-python="&lt;3.5">x</a>',
        '<a href="tinyfw-7.0-py3-none-any.whl" data-yanked="broken">x</a>',
        '<a href="tinyfw-8.0.tar.gz">x</a>',
    ]
    (page / "index.html").write_text("\n".join(lines))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    assert [str(one) for one in releases.released("TinyFW", sys.version_info[:2])] == [*VERSIONS, "5.0"]


def test_pruning_takes_the_oldest_first_and_never_one_in_use(monkeypatch):
    names = ["tiny", "tiny@1.1", "tiny@2.0"]
    made = {name: managed.ensure(name) for name in names}
    for days, name in zip((40, 20, 10), names):
        stamp = time.time() - days * 86400
        for file in (managed.USED, venvs.MARKER):
            os.utime(made[name].folder / file, (stamp, stamp))
    found, size = managed.installed(), made["tiny"].size_bytes
    shown = lambda *asked: [one.folder for one in managed.choose(found, time.time(), *asked)]  # noqa: E731
    assert shown(30 * 86400, None) == [made["tiny"].folder]
    assert shown(None, 2.5 * size) == [made["tiny"].folder]
    assert shown(None, 1.5 * size) == [made["tiny"].folder, made["tiny@1.1"].folder]
    assert shown(30 * 86400, 10 * size) == [made["tiny"].folder]
    monkeypatch.setattr(managed, "in_use", lambda: {made["tiny"].folder})
    assert shown(30 * 86400, None) == []


def test_the_commands_list_and_prune():
    run("env", "create", "tiny,tiny@1.1")
    listed = run("env", "list").stdout
    for line in (r"^tiny +1\.0 .* 0 d ago ", r"^tiny@1\.1 +1\.1 "):
        assert re.search(line, listed, re.MULTILINE)
    for words in ((), ("--older-than", "soon"), ("--older-than", "0.001s")):  # the last: nobody said yes
        run("env", "prune", *words, check=2)
    assert "2 environments" in run("env", "prune", "--older-than", "0.001s", "--dry-run").stdout
    assert len(managed.installed()) == 2
    run("env", "prune", "--older-than", "0.001s", "--yes")
    assert managed.installed() == [] and locks.find(managed.locks_dir(), "tiny@1.1", "cpu"), "its lock stays"
    assert managed.ensure("tiny@1.1").version == "1.1"
    run("env", "remove", "tiny@1.1")
    assert locks.find(managed.locks_dir(), "tiny@1.1", "cpu") is None


def test_removing_takes_only_the_environment_that_is_named():
    run("env", "create", "tiny,tiny@1.1")
    there = lambda: sorted(one.framework for one in managed.installed())  # noqa: E731
    refused = run("env", "remove", "tiny=/x", check=2).stderr
    assert "tiny=/x names no environment; allowed: torch, torch@2.12.0" in refused
    assert there() == ["tiny", "tiny@1.1"], "an interpreter is not the framework's own environment"
    run("env", "remove", "tiny@v1.1.0")
    assert there() == ["tiny"]
    run("env", "remove", "tiny@1.0")  # the pinned one, by its number
    assert there() == [] and locks.find(managed.locks_dir(), "tiny@1.0", "cpu"), "its lock was shipped"


def test_removing_refuses_what_is_no_version():
    made = [managed.ensure(name) for name in ("tiny", "tiny@1.1")]
    for named in ("tiny@", "tiny@b", "tiny@new", "tiny@latest", "tiny@*", "tiny@1.*"):
        assert f"{named} names no environment; allowed: " in run("env", "remove", named, check=2).stderr
        assert managed.installed() == made
        assert locks.find(managed.locks_dir(), "tiny@1.1", "cpu"), "a pattern takes no lock"


def test_an_environment_in_which_a_process_runs_is_not_removed_however_its_path_is_written(tmp_path, monkeypatch):
    made = managed.ensure("tiny@1.1")
    (tmp_path / "other").symlink_to(made.folder.parent)
    python = tmp_path / "other" / made.folder.name / "bin/python"
    with subprocess.Popen([str(python), "-c", "input()"], stdin=subprocess.PIPE):
        assert "tiny@1.1: a process runs in " in run("env", "remove", "tiny@1.1", check=1).stderr
        assert managed.choose([made], time.time() + 1, 0.5, None) == []
        monkeypatch.setattr(managed, "choose", lambda found, *asked: found)  # before the process began
        said = run("env", "prune", "--older-than", "0.001s", "--yes").stdout
    assert f"kept {made.folder}: a process runs in it\ndeleted 0 environments, 0.0 GB" in said
    assert managed.installed() == [made] and managed.find("tiny@1.1") == made, "its lock is still there, too"
    run("env", "remove", "tiny@1.1")
    assert managed.find("tiny@1.1") is None


def test_a_lock_that_was_emptied_is_a_sentence():
    managed.ensure("tiny@1.1")
    locks.find(managed.locks_dir(), "tiny@1.1", "cpu").path.write_text("")
    refused = run("env", "create", "tiny@1.1", check=1).stderr
    assert "name no package; `framework-compare env remove tiny@1.1`" in refused
    run("env", "remove", "tiny@1.1")
    assert managed.ensure("tiny@1.1").version == "1.1"
