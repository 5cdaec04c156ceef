"""Segments of shared memory outlive their processes: none of a worker's is left, however it ends."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from framework_compare.launch.supervised_worker import SupervisedWorker

SHARED = Path("/dev/shm")

TRACKED = """
import multiprocessing, os, signal, sys, time
from multiprocessing import shared_memory

def make(name, queue):
    queue.put(shared_memory.SharedMemory(create=True, name=name, size=1 << 20).name)
    time.sleep(600)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    context.Process(target=make, args=(sys.argv[1], queue), daemon=True).start()
    queue.get()
    open("made", "w").close()
    if sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[2] == "ends":
        os._exit(0)
    time.sleep(600)
"""

NAMED = """
import os, sys, time
open(f"/dev/shm/segment_{os.getpid()}_0", "w").close()
open("made", "w").write(str(os.getpid()))
time.sleep(600)
"""


def run(tmp_path, code, *arguments):
    script = tmp_path / "worker.py"
    script.write_text(code)
    command = [sys.executable, str(script), *arguments]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with SupervisedWorker(command, log=tmp_path / "log.txt", folder=tmp_path, environment=environment) as worker:
        end = time.monotonic() + 60
        while not (tmp_path / "made").exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert (tmp_path / "made").exists(), (tmp_path / "log.txt").read_text()
        time.sleep(0.2)
    return worker


@pytest.mark.parametrize("how", ["dies", "ends", "is killed"])
def test_no_segment_that_python_tracks_is_left(how, tmp_path):
    name = f"test{os.getpid()}{how.replace(' ', '')}"
    worker = run(tmp_path, TRACKED, name, how)
    assert worker.left == 0
    assert not (SHARED / name).exists()


def test_no_segment_with_a_workers_pid_is_left(tmp_path):
    run(tmp_path, NAMED)
    assert not (SHARED / f"segment_{(tmp_path / 'made').read_text()}_0").exists()


def test_segments_of_others_stay(tmp_path):
    others = SHARED / f"segment_{os.getpid()}_0"
    others.touch()
    try:
        run(tmp_path, NAMED)
        assert others.exists()
    finally:
        others.unlink()


def test_a_worker_cannot_have_itself_spared_for_long(tmp_path):
    code = "import time\nopen('made', 'w').close()\ntime.sleep(600)\n"
    start = time.monotonic()
    worker = run(tmp_path, code, "from multiprocessing.resource_tracker import main")
    assert worker.left == 0 and time.monotonic() - start < 30
