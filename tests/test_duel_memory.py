"""Workers that the memory of a real control group does not hold together: each is measured, and says how."""

import collections
import contextlib
import os
import subprocess
import sys
import time

import pytest
from duel_fixtures import script
from stored_study import selected

from framework_compare import Comparison
from framework_compare.launch import memory_limit
from framework_compare.samplers import host

MIB = 1 << 20
NO_ROOM = "memory cannot hold it together with its rivals"
BEFORE = """
with open({group!r} + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
print(memory_limit.free_bytes())
"""
HOLDS = "def build(self, graph):\n    super().build(graph)\n    self.held = np.ones({mib} << 17)"
GROWS = "def on_step(self):\n    if self.steps == 30:\n        self.held = np.ones({mib} << 17)"


def parents():
    """Folders of memory groups in which this process may perhaps make one, with the name of their limit's file."""
    for line in host.text_of(host.MEMBERSHIP).splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield host.CGROUPS / "memory" / path.strip("/"), "memory.limit_in_bytes"
    for folder in memory_limit.writable_groups():
        yield folder, "memory.max"


@pytest.fixture
def group():
    """Makes a control group of so many bytes; its folder."""
    made = []

    def make(limit_bytes):
        tried = []
        for parent, name in parents():
            folder = parent / f"framework-compare-test-{os.getpid()}"
            try:
                folder.mkdir()
                made.append(folder)
                (folder / name).write_text(str(limit_bytes))
            except OSError as error:
                tried.append(str(error))
                continue
            return folder
        pytest.skip(f"no memory group can be made here: {'; '.join(tried) or 'there is no memory controller'}")

    yield make
    for folder in made:
        for _ in range(100):  # its processes may take a moment to leave it
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.05)


@pytest.fixture
def within(group, paced, images, own_cache, tmp_path):
    """Runs a study of paced frameworks in a process within a group of so much memory."""

    def run(limit_mib, methods, repeats=1):
        names = [paced(f"f{number}", method, pace_s=0.002 * (number + 1)) for number, method in enumerate(methods)]
        before = BEFORE.format(group=str(group(limit_mib * MIB)))
        code = script(names, tmp_path, before, dataset=images, out=tmp_path / "s", sampling_hz=20, repeats=repeats)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < limit_mib * MIB, "the group decides what is free"
        return Comparison.load(tmp_path / "s")

    return run


def test_two_workers_that_a_group_does_not_hold_together_run_alone_and_say_so(within):
    study = within(650, [HOLDS.format(mib=250)] * 2, repeats=2)
    assert study.frame.status.tolist() == ["ok", "ok"] and study.slices.empty
    assert set(selected(study.folder, "SELECT alone_why FROM run")) == {(NO_ROOM,)}
    assert study.verdicts()[0].blocks == 2


@pytest.mark.nightly  # by day test_duels.py has it, where a room for two is pretended
def test_a_third_worker_that_a_group_does_not_hold_takes_turns_with_the_fastest(within):
    study = within(780, [HOLDS.format(mib=200)] * 3)
    assert study.frame.status.eq("ok").all() and study.frame.runs_ok.tolist() == [2, 1, 1]
    duels = collections.Counter(duel for (duel,) in selected(study.folder, "SELECT duel FROM run"))
    assert sorted(duels.values()) == [2, 2] and None not in duels


def test_a_worker_that_the_kernel_kills_beside_its_rival_is_measured_alone(within):
    """Both seem to fit when they start, and grow later."""
    study = within(800, [GROWS.format(mib=420)] * 2)
    assert study.frame.status.tolist() == ["ok", "ok"]
    assert "out of memory together with its rivals" in study.frame.alone_why.tolist()
