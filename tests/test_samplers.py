"""The process tree sampler: on real processes, and on such whose every reading is written down."""

import functools
import os
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import psutil
import pytest
from processes import is_running, wait_until

from framework_compare.samplers.process import ProcessTreeSampler, ProcfsProcess, Usage

pytestmark = pytest.mark.alone  # its figures are of processor time and of moments
MB = 1 << 20
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

SPIN = """
def spin(cpu_s):
    import time
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
"""


@pytest.fixture
def start():
    """Start a Python process that runs `code`; `.tell(line)` lets its next input() go, `.hear()` reads a line."""
    started = []

    def start_python(code):
        process = subprocess.Popen(
            [sys.executable, "-c", SPIN + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        started.append(process)
        process.hear = lambda: process.stdout.readline().strip()
        process.tell = lambda line="": process.stdin.write(line + "\n")
        assert process.hear() == "ready", "the test's own process did not start"
        return process

    yield start_python
    for process in started:
        for descendant in [*_descendants(process.pid), process]:
            descendant.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _descendants(pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def spent_s(pid):
    """CPU seconds of a process and its children by psutil, which has four counts of whole ticks."""
    return sum(psutil.Process(pid).cpu_times()[:4])


def cpu_seconds(readings):
    """CPU seconds between the first and the last of some readings."""
    pairs = zip(readings, readings[1:])
    return sum(now.cpu_percent / 100 * (now.t_ns - before.t_ns) / 1e9 for before, now in pairs)


def test_busy_loop_reads_what_its_own_cpu_times_say(start):
    process = start("print('ready'); input(); spin(60)")
    readings, spent = [], []
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        for place in range(6):
            spent.append(spent_s(process.pid))
            readings.append(sampler.read())
            spent.append(spent_s(process.pid))
            if place == 0:
                process.tell()
            time.sleep(0.2)
    least, most = spent[-2] - spent[1], spent[-1] - spent[0]
    assert least > 0.1, "the loop got no CPU, so this says nothing"
    assert least - 4 * TICK_S <= cpu_seconds(readings) <= most + 4 * TICK_S


def test_memory_of_a_child_shows_in_rss(start):
    child = "import sys; held = bytearray(b'x') * (64 << 20); print(len(held), flush=True); sys.stdin.read()"
    process = start(f"""
import subprocess, sys
print('ready'); input()
child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip()); input()
""")
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        before = sampler.read()
        process.tell()
        assert process.hear() == str(64 * MB)
        time.sleep(1.1)  # so that a thorough search for children is due
        after = sampler.read()
    assert before.processes == 1 and after.processes == 2
    assert after.rss_bytes - before.rss_bytes > 60 * MB


def test_cpu_of_children_that_come_and_go_between_readings_is_counted(start):
    process = start(f"""
import subprocess, sys, resource
print('ready'); input()
for _ in range(3):
    subprocess.run([sys.executable, '-c', {SPIN + "spin(0.2)"!r}], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime); input()
""")
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        before = sampler.read()
        process.tell()
        children_s = float(process.hear())
        after = sampler.read()
    assert children_s > 0.6
    assert children_s - 0.1 < cpu_seconds([before, after]) < children_s + 0.5


def test_ended_process_reads_none(start):
    process = start("print('ready'); input()")
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        assert sampler.read() is not None
        process.kill()
        wait_until(lambda: not is_running(process.pid), "the process to end")
        assert sampler.read() is None, "a zombie still reads as running"
        process.wait()
        assert sampler.read() is None
        assert sampler.pss_bytes() is None


def test_the_tree_is_the_one_that_psutil_sees(start):
    process = start(f"""
import subprocess, sys, threading
children = [subprocess.Popen([sys.executable, '-c', {SPIN + "print(spin(0.3), flush=True); input()"!r}],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
thread = threading.Thread(target=lambda: children.append(subprocess.Popen([sys.executable, '-c', 'input()'],
                          stdin=subprocess.PIPE)) or threading.Event().wait(), daemon=True)
thread.start()
for child in children[:2]:
    child.stdout.readline()
print('ready'); input()
""")
    wait_until(lambda: len(_descendants(process.pid)) == 3, "three children")
    time.sleep(0.5)  # the third is still importing
    seen = [psutil.Process(process.pid), *_descendants(process.pid)]
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        held, reading = [sum(one.memory_info().rss for one in seen)], sampler.read()
        held.append(sum(one.memory_info().rss for one in seen))
        assert set(sampler.pids()) == {one.pid for one in seen}
    assert (reading.processes, reading.threads) == (4, sum(one.num_threads() for one in seen)) == (4, 5)
    assert min(held) <= reading.rss_bytes <= max(held)
    for one in seen:
        procfs, before_s = ProcfsProcess(one.pid), spent_s(one.pid)
        assert before_s - 4 * TICK_S <= procfs.usage().cpu_ns / 1e9 <= spent_s(one.pid) + 4 * TICK_S
        procfs.close()


def test_pss_counts_shared_pages_once(start):
    process = start("""
import os, time
held = bytearray(b'x') * (64 << 20)
if os.fork():
    print('ready', flush=True); input()
else:
    time.sleep(600)
""")
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        assert sampler.read().rss_bytes > 2 * 60 * MB
        assert 60 * MB < sampler.pss_bytes() < 110 * MB


def test_rss_stands_for_a_pss_that_may_not_be_read(start, monkeypatch):
    process = start("print('ready'); input()")
    monkeypatch.setattr(ProcfsProcess, "pss_bytes", lambda self: None)
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        held = sampler.read().rss_bytes, sampler.pss_bytes(), sampler.read().rss_bytes
        assert min(held[0], held[2]) <= held[1] <= max(held[0], held[2])
        assert sampler.pss_bytes(without_root=True) is None


def test_closing_lets_go_of_every_file(start):
    process = start("""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)
print('ready'); input(); child.kill(); child.wait(); print('reaped'); input()
""")
    before = psutil.Process().num_fds()
    with closing(ProcessTreeSampler(process.pid)) as sampler:
        sampler.read()
        two = psutil.Process().num_fds()
        process.tell()
        assert process.hear() == "reaped"
        sampler.read()
        assert psutil.Process().num_fds() < two, "files of a child that has gone are still open"
    assert psutil.Process().num_fds() == before


def test_stat_of_a_process_with_an_awkward_name(start):
    process = start("print('ready')\nwhile True: open('/proc/self/comm', 'w').write(input()); print('named')")
    procfs = ProcfsProcess(process.pid)
    for name in ("plain", "a b", "a) R 1 (", "(((", "){}"):
        process.tell(name)
        assert process.hear() == "named" and procfs.usage().threads == 1
    procfs.close()


class ScriptedTree:
    """A source whose processes read what `script` says, tick by tick: {pid: [cpu seconds or None when gone]}."""

    def __init__(self, script, parents):
        self.script, self.parents, self.tick = script, parents, 0

    def __call__(self, pid):
        if self.script[pid][self.tick] is None:
            raise ProcessLookupError(pid)
        children = functools.partial(self._children, pid)
        return SimpleNamespace(pid=pid, usage=lambda: self._usage(pid), children=children, close=lambda: None)

    def _usage(self, pid):
        cpu_s = self.script[pid][self.tick]
        return None if cpu_s is None else Usage(round(cpu_s * 1e9), 1 << 20, 1)

    def _children(self, pid, *, thorough):
        return [child for child in self.parents.get(pid, ()) if self.script[child][self.tick] is not None]


@pytest.mark.parametrize(
    "script, spent_s, processes",
    [
        pytest.param({1: [1, 2, 3], 2: [1, 1, 2]}, [1, 2], [2, 2, 2], id="both-run"),
        pytest.param({1: [1, 6, 7], 2: [5, None, None]}, [0, 1], [2, 1, 1], id="reaped-by-its-parent"),
        pytest.param({1: [1, 2, 3], 2: [5, None, None]}, [0, 1], [2, 1, 1], id="reaped-by-nobody"),
        pytest.param({1: [1, 1, 1], 2: [None, 3, 4]}, [3, 1], [1, 2, 2], id="started-later"),
        pytest.param({1: [1, 1, 1], 2: [1, None, None], 3: [1, 2, 4]}, [0, 2], [3, 2, 2], id="left-by-its-parent"),
    ],
)
def test_cpu_is_never_negative_nor_counted_twice(script, spent_s, processes):
    tree = ScriptedTree(script, {1: [2], 2: [3] if 3 in script else []})
    sampler, readings = ProcessTreeSampler(1, source=tree), []
    for tree.tick in range(3):
        readings.append(sampler.read())
    spent = [cpu_seconds(pair) for pair in zip(readings, readings[1:])]
    assert spent == pytest.approx(spent_s) and [one.processes for one in readings] == processes
