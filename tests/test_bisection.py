"""A search over releases, end to end: real workers, each release in an interpreter of its own."""

import json
import math
import re
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import run
from scipy import stats
from wheels import write_wheel

from framework_compare import bisection, duels, registry
from framework_compare.cli.root import app
from framework_compare.environments import managed
from framework_compare.errors import EnvironmentUnavailable, StudyError, UsageError
from framework_compare.plan.values import seconds
from framework_compare.registry import Framework
from framework_compare.results import version_search
from framework_compare.results.parity import Parity
from framework_compare.results.version_search import CHANGED, FAILED, INCONCLUSIVE, UNCHANGED, search
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
def releases(tmp_path_factory, asked_once):
    """A folder of wheels of four releases, and an interpreter for each by competitor."""
    place, python = tmp_path_factory.mktemp("releases"), {}
    (place / "links").mkdir()
    for version in VERSIONS:
        write_wheel(place / "links", version=version)
        folder = place / f"python-{version}"
        venv.create(folder, symlinks=True)
        (packages,) = folder.glob("lib/python3.*/site-packages")
        (packages / "parent.pth").write_text(str(Path(np.__file__).parents[1]))
        python[f"tiny@{version}"] = str(folder / "bin/python")
    asked_once.update(python.values())
    return place / "links", python


@pytest.fixture
def tiny_versions(monkeypatch, tmp_path, own_cache, tiny, releases):
    """Registers `tiny` with the releases; a function that says which are slow and gives their interpreters."""
    links, python = releases
    monkeypatch.setattr(bisection, "LOOKS", (2,))
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


def test_the_release_that_is_slower_is_found_and_a_search_resumes(tiny_versions, images, tmp_path, monkeypatch):
    python = tiny_versions("1.1", "1.2")
    monkeypatch.setattr(bisection, "LOOKS", (3, 6, 12))  # on a busy machine three blocks may scatter too widely
    asked = dict(threshold="20%", out=tmp_path / "s", python=python, **QUICK)
    found = bisection.bisect("tiny", "1.0..1.2", "linear", images, **asked)
    assert (found.outcome, found.release, found.versions) == ("changed", "1.1", VERSIONS[:3])
    assert "tiny 1.1 (not verified): epoch time has been slower since then: " in found.sentence
    assert [row.names[0] for row in found.table().rows] == [*VERSIONS[:3]]
    assert (tmp_path / "s/bisect.svg").read_text().startswith("<svg")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").glob("*/runs/*/log.txt")}
    assert bisection.bisect("tiny", "1.0..1.2", "linear", images, **asked).sentence == found.sentence
    assert before == {path: path.stat().st_mtime_ns for path in before}, "none ran again"
    with pytest.raises(StudyError, match="contains another search, with threshold 0.2 instead of 0.3"):
        bisection.bisect("tiny", "1.0..1.2", "linear", images, **{**asked, "threshold": "30%"})
    with pytest.raises(StudyError, match=r"contains another search, with sample 0\.3 instead of 0\.5; name"):
        bisection.bisect("tiny", "1.0..1.2", "linear", images, **{**asked, "sample": 0.5})


def test_the_command_says_what_it_would_take_and_how_a_search_of_memory_ended(tiny_versions, images, tmp_path):
    python = tiny_versions()
    words = ["bisect", "tiny", "1.0..2.0", "linear", images, "--threshold", "50%", "--out", tmp_path / "s"]
    words += ["--sample", "0.3s", "--batch-size", "1", "--threads", "1", "--loader-workers", "0", "--image-size", "32"]
    words += ["--pipeline", "memory", "--metric", "memory"]
    for name, path in python.items():
        words += ["--python", f"{name}={path}"]
    planned = run(*words, "--dry-run").stdout
    assert "4 releases: 1.0, 1.1, 1.2, 2.0" in planned and "at most 3 duels of 2 to 2 blocks" in planned
    done = run(*words, "--json", "--yes")
    assert "at most 3 duels" in done.stderr
    document = json.loads(done.stdout)
    assert document["outcome"] == "unchanged" and document["release"] is None
    assert [one["version"] for one in document["releases"]] == ["2.0"]


def test_a_range_has_two_releases_and_its_upper_end_is_a_prefix(tiny_versions, tmp_path):
    for versions, says in (
        ("1.0", "allowed: two, the older first"),
        ("2.0..1.0", "allowed: two, the older first"),
        ("1.0..new", "allowed: two, the older first"),
        ("3.0..4.0", "contains 0 releases, but two are needed; the nearest are 1.2, 2.0"),
        ("0.1..0.2", "contains 0 releases, but two are needed; the nearest are 1.0, 1.1"),
        ("1.2..1.3", "contains 1 release, but two are needed"),
    ):
        tiny_versions()
        with pytest.raises(UsageError, match=says):
            bisection.bisect("tiny", versions, "linear", out=tmp_path / "s", **QUICK)
        assert not (tmp_path / "s").exists()
    tiny_versions()
    assert bisection._between("tiny", "0.5..1.1", print) == ("1.0", "1.1")
    assert bisection._between("tiny", "1.1..2", print) == ("1.1", "1.2", "2.0")


def test_a_framework_with_a_version_an_interpreter_or_older_releases_than_it_supports_is_refused(
    tiny_versions, tmp_path
):
    tiny_versions()
    alone = "allowed: a framework without a version, such as tiny"
    older = r"versions is '1\.0\.\.2\.0'; allowed: keras-jax from 3\.0\.0 on$"
    for framework, says in (("tiny@1.1", alone), (f"tiny={sys.executable}", alone), ("keras-jax", older)):
        with pytest.raises(UsageError, match=says):
            bisection.bisect(framework, "1.0..2.0", "linear", out=tmp_path / "s", **QUICK)


@pytest.mark.parametrize(("command", "of"), [("bisect", bisection.bisect), ("duel", duels.duel)])
def test_the_command_measures_as_long_as_the_function(command, of):
    (sample,) = (option for option in typer.main.get_command(app).commands[command].params if option.name == "sample")
    assert seconds("sample", sample.default) == {"bisect": bisection.SAMPLE_S, "duel": duels.SAMPLE_S}[command]


def test_without_a_network_the_installed_releases_are_searched(tiny_versions, monkeypatch, tmp_path):
    tiny_versions()
    (tmp_path / "links").mkdir()
    for version in ("1.0", "1.2"):
        managed.ensure(f"tiny@{version}")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "https://nowhere.invalid/simple")
    said = []
    assert bisection._between("tiny", "1.0..1.9", said.append) == ("1.0", "1.2")
    assert len(said) == 1 and re.search("no index responds .*; searching the installed releases$", said[0])
    with pytest.raises(EnvironmentUnavailable, match="no index responds"):
        bisection._between("tiny", "1.0..1.1", said.append)
    write_wheel(tmp_path / "links", version="1.1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    said.clear()
    assert bisection._between("tiny", "1.0..1.9", said.append) == ("1.0", "1.1", "1.2"), "one of two indexes responds"
    assert len(said) == 1 and re.search("an index does not respond .*; installed releases are searched as", said[0])


@pytest.mark.parametrize(
    ("passed", "says"),
    [
        ({"1.0": True, "1.1": True, "1.2": False, "2.0": False}, "its parity check fails, that of 1.0 passes"),
        ({"1.0": False, "1.1": False, "1.2": True, "2.0": True}, "its parity check passes, that of 1.0 fails"),
    ],
    ids=["fails", "passes"],
)
def test_a_search_of_parity_says_who_passes(tiny_versions, monkeypatch, tmp_path, passed, says):
    def verify(names, models, **_):
        version = names[0].partition("@")[2]
        return [Parity(names[0], version, models[0], "default", "passed" if passed[version] else "failed")]

    tiny_versions()
    monkeypatch.setattr(bisection.verify, "verify", verify)
    found = bisection.bisect("tiny", "1.0..2.0", "linear", metric="parity", out=tmp_path / "s", watcher=Watcher())
    assert found.sentence == f"tiny 1.2: {says}."
    words = {True: "passed", False: "failed"}
    assert [row.values[0].text for row in found.table().rows] == [words[one] for one in passed.values()]
    assert "ratio" not in str(found.table()) and "confidence" not in found.table().caption
    figure = (tmp_path / "s/bisect.svg").read_text()
    assert "passed" in figure and "failed" in figure and "over that of" not in figure


def test_where_parity_is_as_it_was_nothing_is_named(tiny_versions, monkeypatch, tmp_path):
    tiny_versions()
    monkeypatch.setattr(
        bisection.verify, "verify", lambda names, models, **_: [Parity(names[0], "", models[0], "default", "passed")]
    )
    found = bisection.bisect("tiny", "1.0..2.0", "linear", metric="parity", out=tmp_path / "s", watcher=Watcher())
    assert found.sentence == "No change in parity between tiny 1.0 and 2.0."
    assert [row.values[0].text for row in found.table().rows] == ["passed", "not asked", "not asked", "passed"]


@pytest.mark.parametrize("broken", ["1.0", "2.0"])
@pytest.mark.parametrize("metric", ["time", "parity"])
def test_the_end_that_does_not_work_is_the_one_named(tiny_versions, monkeypatch, tmp_path, images, metric, broken):
    def verify(names, models, **_):
        status = "not-installed" if names[0].endswith(broken) else "passed"
        return [Parity(names[0], "", models[0], "default", status, "no such wheel")]

    python = tiny_versions()
    (tmp_path / "rival.py").write_text(
        (tmp_path / "rival.py").read_text()
        + f"\nimport sys\nif sys.prefix.endswith('-{broken}'):\n    raise ImportError('no such wheel')\n"
    )
    monkeypatch.setattr(bisection.verify, "verify", verify)
    asked = {**QUICK, "python": python, "metric": metric, "out": tmp_path / "s"}
    found = bisection.bisect("tiny", "1.0..2.0", "linear", images, **asked)
    assert found.outcome == FAILED and re.search(rf"tiny {broken} does not work: .*no such wheel", found.sentence)
    first, last = (found.table().rows[place].values[-1].text for place in (0, -1))
    if broken == "1.0":
        alone = {"time": "no answer, as 1.0 does not work beside it", "parity": "passed"}
        assert "does not work: " in first and last == alone[metric]
    else:
        assert (first == "the oldest" or metric == "parity") and "does not work: " in last


def test_a_threshold_is_said_as_it_is_given(tmp_path):
    one = version_search.Answer(1, 8, 1.01, 0.98, 1.04, UNCHANGED)
    found = version_search.Found(UNCHANGED, 0, 1, (one,))
    search = bisection.Bisection("tiny", "linear", "time", 0.05, ("1.0", "2.0"), found, {}, tmp_path)
    assert search.sentence == "No change of 5 % or more (1.010x [0.980, 1.040]) in epoch time between tiny 1.0 and 2.0."


SEARCHES = 2_000  # a rate of 1.3 times ALPHA shows


def synthetic(truth, noise, random, tail=math.inf):
    """Measures releases whose log ratios to the first are `truth`; blocks are looked at again, not drawn again."""
    drawn = {}

    def measure(place, blocks):
        if place not in drawn:
            most = version_search.LOOKS[-1]
            errors = random.standard_normal(most) if math.isinf(tail) else random.standard_t(tail, most)
            drawn[place] = (truth[place] + noise * errors).tolist()
        return drawn[place][:blocks]

    return measure


def share(count):
    """The highest rate that so many of SEARCHES could show (99.9 %)."""
    return stats.binomtest(count, SEARCHES).proportion_ci(0.998).low


def step(releases, at, size):
    return [size if place >= at else 0.0 for place in range(releases)]


@pytest.mark.parametrize(("noise", "tail"), [(0.01, math.inf), (0.05, math.inf), (0.05, 4.0)])
def test_where_nothing_changed_an_alarm_is_rarer_than_alpha(noise, tail):
    random, alarms = np.random.default_rng(1), 0
    for _ in range(SEARCHES):
        releases = int(random.integers(2, 40))
        found = search(releases, 0.05, synthetic([0.0] * releases, noise, random, tail))
        alarms += found.outcome == CHANGED
    assert share(alarms) <= version_search.ALPHA


@pytest.mark.parametrize(("size", "noise"), [(0.07, 0.01), (-0.07, 0.03), (0.25, 0.08)])
def test_the_release_that_changed_is_found_or_nothing_is_claimed(size, noise):
    random, wrong, right = np.random.default_rng(2), 0, 0
    for _ in range(SEARCHES):
        releases = int(random.integers(2, 40))
        at = int(random.integers(1, releases))
        found = search(releases, 0.05, synthetic(step(releases, at, math.log1p(size)), noise, random))
        hit = found.outcome == CHANGED and (found.before, found.after) == (at - 1, at)
        right += hit
        wrong += not hit and (found.outcome == UNCHANGED or (found.outcome == CHANGED and found.after != at))
        assert found.outcome in (CHANGED, UNCHANGED, INCONCLUSIVE)
        assert len(found.answers) <= version_search.most_duels(releases)
    assert share(wrong) <= version_search.ALPHA
    # what the bound leaves is doubt, not error: at a noise of 1 % none is left
    assert right >= (0.99 if noise == 0.01 else 0.5) * SEARCHES


def test_changes_are_found_in_all_but_noise():
    random = np.random.default_rng(4)
    inner = synthetic(step(8, 6, 0.3), 0.01, random)
    found = search(8, 0.05, lambda place, blocks: None if place in (3, 5) else inner(place, blocks))
    assert (found.outcome, found.before, found.after) == (CHANGED, 4, 6), "whether 5 or 6 changed it nobody knows"
    assert [one.outcome for one in found.answers if one.place in (3, 5)] == [FAILED, FAILED]
    assert search(3, 0.05, lambda place, blocks: None).outcome == FAILED
    truth = [0.0, 0.02, 0.02, 0.02, 0.12, 0.12]
    found = search(6, 0.05, synthetic(truth, 0.002, np.random.default_rng(5)))
    assert (found.outcome, found.before, found.after) == (CHANGED, 3, 4)
    found = search(6, 0.05, lambda place, blocks: [math.log(2.0) if place >= 2 else 0.0] * blocks)
    assert (found.outcome, found.before, found.after) == (CHANGED, 1, 2)
    assert {one.blocks for one in found.answers} == {version_search.LOOKS[0]}
    assert search(4, 0.05, lambda place, blocks: [0.5]).outcome == INCONCLUSIVE
    assert search(4, 0.05, lambda place, blocks: []).outcome == INCONCLUSIVE
    random = np.random.default_rng(3)
    found = search(9, 0.05, synthetic(step(9, 5, 0.07), 0.5, random))
    assert (found.outcome, found.before, found.after) == (INCONCLUSIVE, 0, 8)
    assert found.answers[0].blocks == version_search.LOOKS[-1]
