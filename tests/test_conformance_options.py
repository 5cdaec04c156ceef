"""The options of the conformance suite, and its account of a worker's threads."""

import os
import sys
import threading
import time

import pytest
from reference_adapter import write_adapter

from framework_compare.worker import processes

SUITE = ("-p", "no:cacheprovider", "--pyargs", "framework_compare.conformance")


def test_without_a_framework_it_says_so_and_nothing_else(pytester):
    result = pytester.runpytest_subprocess(*SUITE)
    lines = [line for line in result.outlines + result.errlines if "ERROR" in line or "framework is given" in line]
    assert lines == [
        "ERROR: no framework is given; say which adapter to test: --frameworks NAME for a registered one,"
        " or --frameworks path/to/adapter.py:Class"
    ]


@pytest.mark.parametrize(
    "given, words",
    [
        ("caffe", "unknown framework 'caffe'; allowed: torch"),
        ("mine.py", "names no class; write it as mine.py:Class"),
        ("mine.py:Mine", "there is no file"),
    ],
)
def test_an_adapter_that_is_not_there_is_a_usage_error(pytester, given, words):
    result = pytester.runpytest_subprocess(*SUITE, "--frameworks", given)
    assert words in result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_the_options_are_there_only_where_the_suite_is_asked_for(pytester):
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--device')")
    pytester.makepyfile("def test_device(request): assert request.config.getoption('--device') == 'mine'")
    pytester.runpytest_subprocess("--device", "mine").assert_outcomes(passed=1)


def test_options_name_models_and_an_interpreter(pytester, own_cache):
    write_adapter(pytester.path / "mine")
    given = ("--frameworks", "mine:ReferenceTrainer", "--models", "alexnet", "--python", f"mine={sys.executable}")
    text = pytester.runpytest_subprocess(*SUITE, *given, "--collect-only", "-q").stdout.str()
    assert "test_parity.py::test_level[mine-alexnet-level3]" in text


def test_time_of_threads_that_have_ended_is_counted():
    before = processes.thread_times()
    thread = threading.Thread(target=lambda: sum(range(3_000_000)))
    thread.start()
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # joined in Python, not gone from the kernel yet
        time.sleep(0.01)
    found = {times.name: times.cpu_ns for times in processes.gained(before, processes.thread_times())}
    assert found["threads that have ended"] > 5_000_000
