"""The temporary folder of a run: short, its own, and gone with it, however the run or its parent ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_for

from framework_compare.launch import scratch as scratch_module
from framework_compare.launch.scratch import remove_abandoned, scratch
from framework_compare.launch.supervised_worker import SupervisedWorker
from framework_compare.launch.worker_environment import worker_environment

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
        with SupervisedWorker(
            command, log=tmp_path / "log", folder=tmp_path, environment=environment, temporary=folder
        ) as worker:
            assert wait_for(lambda: not worker.read_status(0.05)), (tmp_path / "log").read_text()
        assert (kept / "ready").exists(), (tmp_path / "log").read_text()
        assert not folder.exists(), "the supervisor removes it at the end of the worker"
    assert list(own_temporary.iterdir()) == [] and (kept / "file").exists()


def test_a_parent_that_is_killed_leaves_no_temporary_folder(own_temporary, tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), LITTER], env={**os.environ, "TMPDIR": str(own_temporary)}
    )
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
