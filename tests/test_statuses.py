"""From evidence to status."""

import pytest

from framework_compare.launch.statuses import Ending, Evidence, judge, log_tail

GIB = 1 << 30
SAYS = {
    "torch": "RuntimeError: [enforce fail at alloc_cpu.cpp:128] data. DefaultCPUAllocator: not enough memory: you tried"
    " to allocate 411041792 bytes.",
    "torch-older": "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 411041792 bytes. Error code 12 (Cannot allocate memory)",
    "torch-cuda": "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139 GiB",
    "tensorflow": "ResourceExhaustedError: {{function_node __wrapped__Conv2D}} OOM when allocating tensor with shape[100,64]",
    "mxnet": "MXNetError: Failed to allocate CPU Memory",
    "mxnet-cuda": "MXNetError: cudaMalloc retry failed: out of memory",
    "paddle": "MemoryError: ResourceExhaustedError: Fail to alloc memory of 411041792 size, error code is 12.",
    "jax": "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 411041792 bytes.",
    "numpy": "_ArrayMemoryError: Unable to allocate 3.06 GiB for an array with shape (100, 3, 1168, 1168)",
    "fork": "OSError: [Errno 12] Cannot allocate memory",
    "c++": "RuntimeError: std::bad_alloc",
    "cudnn": "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "xla-constant": "XlaRuntimeError: INTERNAL: Failed to allocate 4194304 bytes for new constant",
    "cublas": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
}


@pytest.mark.parametrize("framework", SAYS)
def test_an_exception_of_an_allocator_is_out_of_memory(framework):
    told = Ending("failed", SAYS[framework], traceback="kept")
    verdict = judge(told, Evidence(0))
    assert (verdict.status, verdict.reason, verdict.traceback) == ("out-of-memory", SAYS[framework], "kept")


@pytest.mark.parametrize(
    "reason",
    [
        "ValueError: shapes (3, 4) and (5, 6) do not match",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: Attempted to set memory format on 3-d tensor",
        "InvalidArgumentError: a memory layout that is not supported",
        "RuntimeError: wrong\n\nC++ Traceback:\n0 std::bad_alloc::what()",
    ],
)
def test_an_exception_that_only_mentions_memory_is_a_failure(reason):
    assert judge(Ending("failed", reason), Evidence(0)).status == "failed"


def test_other_outcomes_stand_as_told():
    for status in ("ok", "unsupported", "diverged", "out-of-memory"):
        told = Ending(status, "DefaultCPUAllocator: not enough memory")
        assert judge(told, Evidence(-9, kernel_kills=1)) == told


@pytest.mark.parametrize(
    ("seen", "status", "said"),
    [
        (Evidence(-11, "epochs", "one\n\nlast line\n"), "crashed", "SIGSEGV in phase epochs; the log ends: last line"),
        (Evidence(-9, "epochs"), "crashed", "killed by SIGKILL in phase epochs; the log is empty"),
        (Evidence(3, None), "crashed", "exited with code 3 between phases"),
        (Evidence(-34 - 6, "build"), "crashed", "killed by signal 40"),
        (Evidence(None, "build"), "crashed", "the process that supervises the worker was killed"),
        (Evidence(-9, "epochs", kernel_kills=1), "out-of-memory", "the kernel's out-of-memory killer in phase epochs"),
        (Evidence(-11, "epochs", kernel_kills=1), "crashed", "SIGSEGV"),
        (
            Evidence(-9, "build", group_kills=1, limit="memory_limit of 2 GiB"),
            "out-of-memory",
            "at the memory_limit of 2 GiB",
        ),
        (Evidence(-9, "epochs", peak_bytes=15 * GIB, memory_bytes=16 * GIB), "out-of-memory", "with 15.00 GiB in use"),
        (Evidence(-9, "epochs", peak_bytes=8 * GIB, memory_bytes=16 * GIB), "crashed", "SIGKILL"),
        (
            Evidence(-6, "build", "terminate called\n  what():  std::bad_alloc\nAborted"),
            "out-of-memory",
            "std::bad_alloc",
        ),
        (Evidence(1, "import", "ImportError: cannot allocate memory in static TLS block"), "crashed", "code 1"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_death_without_a_word_is_judged_by_what_was_seen(seen, status, said):
    verdict = judge(None, seen)
    assert verdict.status == status and said in verdict.reason


IN_A_CAPTURE = """Traceback (most recent call last):
  File "adapters/torch.py", line 377, in _capture
    loss = self._step(images, labels)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "torch/cuda/graphs.py", line 98, in capture_end
torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture
"""


def test_memory_that_ran_out_before_the_last_exception_is_out_of_memory_and_source_lines_are_none():
    last = "AcceleratorError: CUDA error: operation failed due to a previous error during capture"
    verdict = judge(Ending("failed", last, IN_A_CAPTURE), Evidence(0))
    assert verdict.status == "out-of-memory"
    assert verdict.reason.startswith("torch.OutOfMemoryError: CUDA out of memory.") and verdict.reason.endswith(last)
    traceback = (
        'Traceback (most recent call last):\n  File "a.py", line 1\n'
        '    raise MemoryError("no") if full else ValueError\nValueError: 3'
    )
    assert judge(Ending("failed", "ValueError: 3", traceback), Evidence(0)).status == "failed"


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
        "RuntimeError: Worker process was terminated unexpectedly with exit code -9. Search the logs above",
        "BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
    ],
    ids=["torch", "grain", "pool"],
)
def test_a_loader_worker_killed_by_the_kernel_is_out_of_memory(said):
    told = Ending("failed", said)
    assert judge(told, Evidence(0)).status == "failed"
    verdict = judge(told, Evidence(0, "epochs", kernel_kills=1))
    assert verdict.status == "out-of-memory" and said in verdict.reason


FAULT = """made 3 batches
Fatal Python error: Segmentation fault

Current thread 0x00007f08a91fbb80 (most recent call first):
  File "ctypes/__init__.py", line 519 in string_at
  File "adapters/faulty.py", line 178 in build

Extension modules: """ + ", ".join(f"torch._C._{n}" for n in range(2000))


def test_the_end_of_a_log_tells_where_a_segfault_was_and_what_a_library_checked(tmp_path):
    (tmp_path / "log.txt").write_text(FAULT)
    tail = log_tail(tmp_path / "log.txt")
    assert "Extension modules" not in tail and tail.startswith("made 3 batches")
    assert judge(None, Evidence(-11, "build", tail)).reason.endswith(
        'the log ends: Fatal Python error: Segmentation fault; File "ctypes/__init__.py", line 519 in string_at'
    )
    (tmp_path / "log.txt").write_text(CHECK)
    assert judge(None, Evidence(-6, "epochs", log_tail(tmp_path / "log.txt"))).reason == (
        "killed by SIGABRT in phase epochs; the log ends: tensor.cc:1293] Check failed: A.shape(1) == B.shape(0)"
        ' (3 vs. 4); Fatal Python error: Aborted; File "singa/autograd.py", line 603 in forward'
    )
    log = tmp_path / "log.txt"
    log.write_bytes(b"\xff\xfe\n" * 5000 + b"\n \nline a\n\nline b\n")
    lines = log_tail(log).splitlines()
    assert len(lines) == 20 and lines[-2:] == ["line a", "line b"]
    assert log_tail(tmp_path / "absent") == ""


CHECK = """W1122 12:00:00.000001    17 logging.cc:10] slow
F1122 12:00:00.123456    17 tensor.cc:1293] Check failed: A.shape(1) == B.shape(0) (3 vs. 4)
*** Check failure stack trace: ***
Fatal Python error: Aborted

Current thread 0x00007f08a91fbb80 (most recent call first):
  File "singa/autograd.py", line 603 in forward
"""
