"""A search over releases, end to end: real workers, each release in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command_line import run
from wheels import write_wheel

from framework_compare import bisection, registry
from framework_compare.errors import StudyError, UsageError
from framework_compare.registry import Framework
from framework_compare.study.progress import Watcher

HERE = Path(__file__).parent
VERSIONS = ("1.0", "1.1", "1.2", "2.0")
QUICK = {
    **{"batch_size": 1, "threads": 1, "loader_workers": 0, "image_size": 32, "pipeline": "memory", "sample": 0.3},
    **{"verify": "off", "retries_when_disturbed": 0, "sampling_hz": 0, "watcher": Watcher()},
}
SINCE_1_2 = """

class Rival(TinyTrainer):
    name = "tiny"

    def train_step(self, batch):
        import sys, time
        time.sleep(0.02 if sys.prefix.rpartition("-")[2] in {slow!r} else 0.004)
        return super().train_step(batch)
"""


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A folder of wheels of four releases, and an interpreter for each by competitor."""
    place, python = tmp_path_factory.mktemp("releases"), {}
    (place / "links").mkdir()
    for version in VERSIONS:
        write_wheel(place / "links", version=version)
        folder = place / f"python-{version}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = folder.glob("lib/python3.*/site-packages")
        (packages / "parent.pth").write_text(sysconfig.get_path("purelib"))
        python[f"tiny@{version}"] = str(folder / "bin/python")
    return place / "links", python


@pytest.fixture
def tiny_versions(monkeypatch, tmp_path, own_cache, tiny, releases):
    """Registers `tiny` with the releases; a function that says which are slow and gives their interpreters."""
    links, python = releases
    monkeypatch.setattr(bisection, "LOOKS", (3,))
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(key, value)
    (tmp_path / "tiny.txt").write_text("tinyfw==1.0\n")

    def register(*slow):
        adapter = tmp_path / "rival.py"
        adapter.write_text((HERE / "plugins" / "tiny.py").read_text() + SINCE_1_2.format(slow=set(slow)))
        entry = Framework("tiny", f"{adapter}:Rival", str(tmp_path / "tiny.txt"), "numpy", ((3, 8), (3, 99)))
        monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
        return python

    return register


def test_the_release_that_is_slower_is_found_and_a_search_resumes(tiny_versions, images, tmp_path):
    python = tiny_versions("1.2", "2.0")
    asked = dict(threshold="20%", out=tmp_path / "s", python=python, **QUICK)
    found = bisection.bisect("tiny", "1.0..2.0", "linear", images, **asked)
    assert (found.outcome, found.release, found.versions) == ("changed", "1.2", VERSIONS)
    assert "tiny 1.2 (not verified): epoch time has been slower since then: " in found.sentence
    assert [row.names[0] for row in found.table().rows] == [*VERSIONS]
    assert (tmp_path / "s/bisect.svg").read_text().startswith("<svg")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").glob("*/runs/*/log.txt")}
    assert bisection.bisect("tiny", "1.0..2.0", "linear", images, **asked).sentence == found.sentence
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "s").glob("*/runs/*/log.txt")}, (
        "none ran again"
    )
    with pytest.raises(StudyError, match="contains another search, with threshold 0.2 instead of 0.3"):
        bisection.bisect("tiny", "1.0..2.0", "linear", images, **{**asked, "threshold": "30%"})


def test_the_command_says_what_it_would_take_and_how_a_search_of_memory_ended(tiny_versions, images, tmp_path):
    python = tiny_versions()
    words = ["bisect", "tiny", "1.0..2.0", "linear", images, "--threshold", "50%", "--out", tmp_path / "s"]
    words += ["--sample", "0.3s", "--batch-size", "1", "--threads", "1", "--loader-workers", "0", "--image-size", "32"]
    words += ["--pipeline", "memory", "--metric", "memory"]
    for name, path in python.items():
        words += ["--python", f"{name}={path}"]
    planned = run(*words, "--dry-run").stdout
    assert "4 releases: 1.0, 1.1, 1.2, 2.0" in planned and "at most 3 duels of 3 to 3 blocks" in planned
    done = run(*words, "--json", "--yes")
    assert "at most 3 duels" in done.stderr
    document = json.loads(done.stdout)
    assert document["outcome"] == "unchanged" and document["release"] is None
    assert [one["version"] for one in document["releases"]] == ["2.0"]


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ("1.0", "allowed: two, the older first"),
        ("2.0..1.0", "allowed: two, the older first"),
        ("1.0..new", "allowed: two, the older first"),
        ("3.0..4.0", "contains 0 releases, but two are needed; available: 1.0, 1.1, 1.2, 2.0"),
        ("1.2..1.3", "contains 1 release, but two are needed"),
    ],
)
def test_a_range_without_two_releases_is_refused(tiny_versions, versions, says, tmp_path):
    tiny_versions()
    with pytest.raises(UsageError, match=says):
        bisection.bisect("tiny", versions, "linear", out=tmp_path / "s", **QUICK)
    assert not (tmp_path / "s").exists()


def test_an_upper_end_is_a_prefix(tiny_versions):
    tiny_versions()
    assert bisection._between("tiny", "0.5..1.1", print) == ("1.0", "1.1")
    assert bisection._between("tiny", "1.1..2", print) == ("1.1", "1.2", "2.0")
