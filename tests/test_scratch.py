"""The temporary folder of a run and its shared memory: its own, and gone with it, however run or parent ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import wait_for

from framework_compare.launch import scratch as scratch_module
from framework_compare.launch.scratch import remove_abandoned, scratch
from framework_compare.launch.staging import worker_environment
from framework_compare.launch.supervised_worker import SupervisedWorker

# What a framework leaves: files, a folder, a link to something that is not its own.
LITTER = """
import os, sys, tempfile, time
folder = tempfile.mkdtemp()
tempfile.mkstemp(prefix="__autograph_generated_file")
os.symlink(sys.argv[1], os.path.join(folder, "link"))
open(sys.argv[1] + "/ready", "w").close()
time.sleep(float(sys.argv[2]))
"""
PARENT = """
import sys, time
from pathlib import Path
from framework_compare.launch.scratch import scratch
from framework_compare.launch.supervised_worker import SupervisedWorker
place = Path(sys.argv[1])
command = [sys.executable, "-c", sys.argv[2], str(place), "600"]
with scratch() as folder:
    Path(place, "folder").write_text(str(folder))
    environment = {"TMPDIR": str(folder), "PATH": ""}
    with SupervisedWorker(command, log=place / "log.txt", folder=place, environment=environment, temporary=folder):
        time.sleep(600)
"""


@pytest.fixture
def own_temporary(tmp_path, monkeypatch):
    """A temporary folder with a short path, as a user's is."""
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_what_a_worker_leaves_is_gone_and_what_it_linked_to_is_not(own_temporary, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    with scratch() as folder:
        environment = {"TMPDIR": str(folder)}
        command = [sys.executable, "-c", LITTER, str(kept), "0"]
        places = dict(log=tmp_path / "log", folder=tmp_path, environment=environment, temporary=folder)
        with SupervisedWorker(command, **places) as worker:
            assert wait_for(lambda: not worker.read_status(0.05)), (tmp_path / "log").read_text()
        assert (kept / "ready").exists(), (tmp_path / "log").read_text()
        assert not folder.exists(), "the supervisor removes it at the end of the worker"
    assert list(own_temporary.iterdir()) == [] and (kept / "file").exists()


def test_a_parent_that_is_killed_leaves_no_temporary_folder(own_temporary, tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path), LITTER]
    parent = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(own_temporary)})
    assert wait_for((tmp_path / "ready").exists)
    folder = Path((tmp_path / "folder").read_text())
    assert len(list(folder.iterdir())) == 3  # the lock, a folder, a file
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_for(lambda: not folder.exists())


def test_what_parent_and_supervisor_left_is_removed_at_the_next_start_and_no_live_one(own_temporary):
    abandoned = own_temporary / f"{scratch_module.PREFIX}gone"
    (abandoned / "pymp-x").mkdir(parents=True)
    (abandoned / scratch_module.LOCK).touch()
    with scratch() as live:
        remove_abandoned(own_temporary)
        assert live.exists() and not abandoned.exists()


def test_a_socket_has_room_under_the_folder(tmp_path, monkeypatch):
    import tempfile

    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with scratch() as folder:
        assert len(str(folder / "pymp-12345678" / "listener-12345678")) < 107


def test_a_worker_gets_its_folder_and_what_a_shared_host_needs(monkeypatch, tmp_path):
    needed = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
    for name, value in {**needed, "OMP_NUM_THREADS": "7"}.items():
        monkeypatch.setenv(name, value)
    environment = worker_environment(managed=True, temporary=tmp_path)
    assert needed.items() <= environment.items() and environment["TMPDIR"] == str(tmp_path)
    assert "OMP_NUM_THREADS" not in environment, "what changes a figure stays out"


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
        assert wait_for((tmp_path / "made").exists, 60), (tmp_path / "log.txt").read_text()
        time.sleep(0.2)
    return worker


@pytest.mark.parametrize("how", ["dies", "ends", "is killed"])
def test_no_segment_that_python_tracks_is_left(how, tmp_path):
    name = f"test{os.getpid()}{how.replace(' ', '')}"
    worker = run(tmp_path, TRACKED, name, how)
    assert worker.left == 0
    assert not (SHARED / name).exists()


def test_no_segment_with_a_workers_pid_is_left_and_those_of_others_stay(tmp_path):
    others = SHARED / f"segment_{os.getpid()}_0"
    others.touch()
    try:
        run(tmp_path, NAMED)
        assert others.exists() and not (SHARED / f"segment_{(tmp_path / 'made').read_text()}_0").exists()
    finally:
        others.unlink()


def test_a_worker_cannot_have_itself_spared_for_long(tmp_path):
    code = "import time\nopen('made', 'w').close()\ntime.sleep(600)\n"
    start = time.monotonic()
    worker = run(tmp_path, code, "from multiprocessing.resource_tracker import main")
    assert worker.left == 0 and time.monotonic() - start < 30
