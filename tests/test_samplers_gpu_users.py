"""Whose memory it is, and who else is on the GPU: process lists as drivers give them, on hosts and in containers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from framework_compare.samplers.gpu_users import BY_DIFFERENCE, BY_PROCESS, IDLE_BYTES, GpuProcess, GpuUsers

MIB = 1 << 20
WORKER, LOADER, OTHER = 100_000_001, 100_000_002, 100_000_003
TREE = (WORKER, LOADER)


def users(device=0, reserved=0, *processes):
    found = GpuUsers()
    found.note_baseline(device, reserved, processes)
    return found


def test_memory_is_that_of_the_workers_processes_where_the_driver_lists_them():
    found = users(600 * MIB)
    listed = [GpuProcess(WORKER, 300 * MIB), GpuProcess(LOADER, 20 * MIB), GpuProcess(OTHER, 900 * MIB)]
    assert found.own_bytes(listed, TREE, 2000 * MIB) == 320 * MIB
    assert found.memory_source == BY_PROCESS


def test_memory_that_the_worker_has_let_go_of_is_zero():
    found = users(600 * MIB)
    found.own_bytes([GpuProcess(WORKER, MIB)], TREE, 700 * MIB)
    assert found.own_bytes([], TREE, 650 * MIB) == 0


@pytest.mark.parametrize(
    "listed",
    [[], [GpuProcess(OTHER, 300 * MIB)], [GpuProcess(WORKER, None)], [GpuProcess(WORKER, 0)]],
    ids=["empty", "other-namespace", "no-memory", "zero-memory"],
)
def test_memory_is_the_devices_less_the_baseline_where_processes_are_hidden(listed):
    found = users(600 * MIB)
    assert found.own_bytes(listed, TREE, 950 * MIB) == 350 * MIB
    assert found.memory_source == BY_DIFFERENCE


def test_memory_is_none_without_list_and_baseline():
    found = GpuUsers()
    assert found.own_bytes([], TREE, 950 * MIB) is None
    assert users(600 * MIB).own_bytes([], TREE, None) is None
    assert found.memory_source is None


def test_nobody_else_is_no_warning():
    found = users(600 * MIB, 580 * MIB)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB)], TREE, 900 * MIB)
    assert found.warnings() == []


def test_another_worker_of_this_process_is_no_stranger():
    rival = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        listed = [GpuProcess(rival.pid, 900 * MIB), GpuProcess(os.getppid(), 800 * MIB)]
        found = users(1700 * MIB, 0, *listed)
        found.own_bytes([*listed, GpuProcess(WORKER, 300 * MIB)], TREE, 2000 * MIB)
        assert found.warnings() == [f"another process is on the GPU: pid {os.getppid()}, 0.78 GiB"]
    finally:
        rival.communicate()


def test_a_process_that_was_there_before_is_named_with_its_most_memory():
    found = users(800 * MIB, 0, GpuProcess(OTHER, 256 * MIB))
    found.own_bytes([GpuProcess(WORKER, 300 * MIB), GpuProcess(OTHER, 512 * MIB)], TREE, 1400 * MIB)
    found.own_bytes([GpuProcess(OTHER, 128 * MIB)], TREE, 1400 * MIB)
    assert found.warnings() == [f"another process is on the GPU: pid {OTHER}, 0.50 GiB"]


def test_a_process_that_comes_during_the_run_is_named():
    found = users(0)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB)], TREE, 300 * MIB)
    found.own_bytes([GpuProcess(WORKER, 300 * MIB), GpuProcess(OTHER, None)], TREE, 900 * MIB)
    assert found.warnings() == [f"another process is on the GPU: pid {OTHER}, memory unknown"]


def test_one_new_process_of_another_namespace_may_be_the_worker_but_two_may_not():
    found = users(0)
    found.own_bytes([GpuProcess(7, 300 * MIB)], TREE, 300 * MIB)
    assert found.warnings() == []
    found.own_bytes([GpuProcess(7, 300 * MIB), GpuProcess(8, 300 * MIB)], TREE, 600 * MIB)
    assert ["2 processes" in text and "1 was expected" in text for text in found.warnings()] == [True]


def test_memory_of_nobody_that_is_listed_is_told():
    held = users(IDLE_BYTES + 700 * MIB, 500 * MIB).warnings()
    assert held == ["0.70 GiB were in use on the GPU before the worker started, by processes that are not visible here"]
    assert users(IDLE_BYTES + 400 * MIB, 500 * MIB).warnings() == []


def test_a_thread_of_the_worker_is_the_worker():
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), done.wait()))
    thread.start()
    ready.wait()
    found = users(0)
    found.own_bytes([GpuProcess(thread.native_id, 0)], [os.getpid()], MIB)
    done.set()
    thread.join()
    assert found.warnings() == []
