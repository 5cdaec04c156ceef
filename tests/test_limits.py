"""Limits of a run: how they are given, held and recorded. Control groups stand in plain folders here."""

import os
import subprocess
import sys
import time

import pytest

from framework_compare.errors import UsageError
from framework_compare.launch import limits, memory_limit
from framework_compare.launch.limits import KEPT_LOG_BYTES, MAX_LOG_BYTES, Clock, Limits, parse_bytes, shorten_if_long
from framework_compare.launch.memory_limit import ControlGroup, MemoryLimit, Watchdog, writable_groups

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *((text, 2 << 30) for text in (2 << 30, "2147483648", "2GiB", "2G", "2 gib")),
        *((None, None), ("1.5GiB", 3 << 29), ("2GB", 2_000_000_000), ("1500MB", 1_500_000_000)),
    ],
)
def test_a_memory_limit_is_bytes_or_a_size(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1", "2 GiB of it", 0, -5, True, 1.5, "1e9", "nan", "3"])
def test_another_memory_limit_is_refused(text):
    alone = "at least 1 MiB; a number alone is bytes" if text == "3" else ""
    with pytest.raises(UsageError, match=f"memory_limit is .*; allowed: {alone}"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "given",
    [
        *(dict(timeout_s=wrong) for wrong in (0, -1, float("nan"), True)),
        *(dict(phase_timeout_s=wrong) for wrong in (0, {"import": 0}, {"imports": 10})),
        dict(silence_timeout_s="10"),
    ],
    ids=str,
)
def test_another_time_limit_is_refused(given):
    with pytest.raises(UsageError, match="allowed: "):
        limits.check(**given)


def test_limits_of_phases_and_silence_begin_anew(tmp_path):
    assert Limits(phase_timeout_s=5).phase_s("import") == 5 and Limits(phase_timeout_s=5).phase_s("epochs") is None
    by_name = Limits(phase_timeout_s={"epochs": 7})
    assert by_name.phase_s("epochs") == 7 and by_name.phase_s("import") is None
    log = tmp_path / "log.txt"
    log.touch()
    clock = Clock(Limits(silence_timeout_s=0.2, phase_timeout_s=10), log)
    time.sleep(0.25)
    log.write_text("still here")
    assert clock.ending() is None
    time.sleep(0.25)
    assert "silent for 0.2 s in phase spawn" in clock.ending().reason
    clock.hear("build")
    assert clock.ending() is None and 0 < clock.wait_s() <= 0.2


def test_a_long_log_keeps_both_ends(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(b"begin" + b"x" * MAX_LOG_BYTES + b"end")
    assert shorten_if_long(log) == log.stat().st_size < 2 * KEPT_LOG_BYTES + 100
    content = log.read_bytes()
    assert content.startswith(b"begin") and content.endswith(b"end") and b"bytes of this log were left out" in content
    assert shorten_if_long(log) == len(content)


@pytest.fixture
def groups(tmp_path):
    """A mount of cgroup v2 in plain files: app.slice hands memory down, the own group in it does not."""
    own = tmp_path / "app.slice" / "own.scope"
    own.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    for folder, controllers in ((tmp_path, "cpu memory"), (tmp_path / "app.slice", "memory"), (own, "")):
        (folder / "cgroup.subtree_control").write_text(controllers)
        (folder / "cgroup.procs").touch()
    membership = tmp_path / "membership"
    membership.write_text("0::/app.slice/own.scope\n")
    return {"mount": tmp_path, "membership": membership}


def test_the_nearest_group_that_hands_memory_down_is_used_else_a_watchdog(groups):
    assert next(writable_groups(**groups)) == groups["mount"] / "app.slice"
    holder = memory_limit.limit(64 * MIB, **groups)
    made = groups["mount"] / "app.slice" / holder.group.rpartition("/")[2]
    assert holder.by == "cgroup" and (made / "memory.max").read_text() == str(64 * MIB)
    (groups["mount"] / "app.slice" / "cgroup.subtree_control").write_text("cpu")
    (groups["mount"] / "cgroup.subtree_control").write_text("cpu")
    membership, controllers = groups["membership"], groups["mount"] / "cgroup.controllers"
    for lacks in (lambda: None, lambda: membership.write_text("9:memory:/own\n"), controllers.unlink):
        lacks()
        assert isinstance(memory_limit.limit(64 * MIB, **groups), Watchdog)
    assert type(memory_limit.limit(None, **groups)) is MemoryLimit


def test_a_control_group_tells_its_kills_and_its_peak(tmp_path):
    group = ControlGroup(64 * MIB, tmp_path / "group")
    assert (group.kills(), group.peak_bytes(), group.ending()) == (0, None, None)
    (tmp_path / "group" / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n")
    (tmp_path / "group" / "memory.peak").write_text("67108864\n")
    assert (group.kills(), group.peak_bytes()) == (3, 64 * MIB)
    assert group.words == "memory_limit of 0.06 GiB (cgroup)"


def watched(code: str, limit_bytes: int, until_bytes: int) -> "tuple[str | None, int | None]":
    """What a watchdog says of a child of a process that runs `code`, once that has taken so much, and the peak."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    watchdog = Watchdog(limit_bytes)
    try:
        watchdog.watch(process.pid)
        end, ending = time.monotonic() + 60, None
        while ending is None and time.monotonic() < end and (watchdog.peak_bytes() or 0) < until_bytes:
            time.sleep(watchdog.wait_s())
            ending = watchdog.ending()
        return ending and ending.status, watchdog.peak_bytes()
    finally:
        watchdog.close()
        os.killpg(process.pid, 9)
        process.wait()


def test_a_watchdog_has_nothing_to_say_of_a_supervisor_that_has_ended():
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from now on
    for _ in ("a zombie", "reaped"):
        watchdog = Watchdog(1)
        watchdog.watch(process.pid)
        assert (watchdog.ending(), watchdog.peak_bytes()) == (None, None)
        watchdog.close()
        process.wait()


@pytest.mark.alone
def test_a_watchdog_sees_a_tree_grow_and_counts_what_it_shares_once():
    status, peak = watched("import time; held = b'x' * (200 << 20); time.sleep(60)", 100 * MIB, 1000 * MIB)
    assert status == "out-of-memory" and peak > 100 * MIB
    code = "import os, time; held = b'x' * (60 << 20)\nfor _ in range(4):\n  if os.fork() == 0: break\ntime.sleep(60)"
    # The sum of RSS is about 350 MiB, and the peak that is told the limit where PSS shows that it is kept.
    status, peak = watched(code, 150 * MIB, 100 * MIB)
    assert status is None and peak <= 150 * MIB
