"""From the evidence of a run's end to its status and reason."""

import dataclasses
import os
import re
from pathlib import Path

from framework_compare.launch.scratch import open_regular
from framework_compare.launch.supervised_worker import signal_name

# Statuses that a worker may report; any other word makes its outcome event malformed.
TOLD = ("ok", "unsupported", "out-of-memory", "diverged", "failed")
TAIL_BYTES = 8000
TAIL_LINES = 20
HOST_SHARE = 0.9
MAX_REASON = 2000

# What Python's faulthandler writes first, and what it writes last: every C extension there is, on one line.
FATAL = "Fatal Python error: "
EXTENSIONS = "Extension modules: "
READ_BYTES = 128_000
# The failed check of a library that logs by glog, which then aborts: "F0714 10:00:00.123456  17 tensor.cc:170] Check ..."
GLOG_FATAL = re.compile(r"F\d{4,8} [\d:.]+ +\d+ ([^\s\]]+:\d+\] .+)")

# How allocators say that there is no memory. Each was read in the source of the one named.
ALLOCATION_FAILURE = re.compile(
    "|".join(
        (
            r"std::bad_alloc",  # any C++ library
            r"DefaultCPUAllocator: (not enough|can't allocate) memory",  # torch, c10/core/impl/alloc_cpu.cpp
            r"OutOfMemoryError",  # torch.OutOfMemoryError, torch.cuda.OutOfMemoryError
            r"CUDA(?: error:)? out of memory",  # torch, mxnet
            r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED",
            r"cudaMalloc (retry )?failed: out of memory",  # mxnet, src/storage
            r"CUDNN_STATUS_(INTERNAL_ERROR_DEVICE_)?ALLOC(ATION)?_FAILED",
            r"ResourceExhaustedError|RESOURCE_EXHAUSTED",  # tensorflow, jax, paddle
            r"OOM when allocating",  # tensorflow
            r"Out of memory (while trying to allocate|error on GPU)|Failed to allocate \d+ bytes",  # XLA; paddle; XLA
            r"Fail to alloc memory of|Failed to allocate CPU Memory",  # paddle; mxnet
            r"MemoryError",  # Python and numpy (_ArrayMemoryError)
            r"\[Errno 12\]|Cannot allocate memory",  # the system, ENOMEM
        )
    )
)


# How loaders tell that the kernel killed one of their processes: PyTorch's, Grain's, Python's own pools.
KILLED_LOADER = re.compile(
    r"signal: Killed|terminated unexpectedly with exit code -9\b|in the process pool was terminated abruptly"
)

# The first line of an exception in a traceback, whatever module its class is of.
EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exhausted): .*", re.MULTILINE)


# What faulthandler writes of the main thread on SIGUSR1: its innermost call.
STUCK = re.compile(r'^Current thread .*\n  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Ending:
    """The end of a worker: a status and the sentence that goes with it."""

    status: str
    reason: str
    traceback: str | None = None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Facts that the parent knows about a worker that has ended."""

    returncode: int | None
    died_in: str | None = None
    log_tail: str = ""
    kernel_kills: int = 0  # by the out-of-memory killer, anywhere on the machine, during the run
    group_kills: int = 0  # by the same in the worker's own memory group
    peak_bytes: int | None = None
    memory_bytes: int | None = None  # of the cell's limit, else of the machine or container
    limit: str = ""  # that limit in words
    rank: int | None = None  # whose returncode it is, of several that train together
    node: str = ""  # on which that rank was, of several
    lost: bool = False  # that node has not said how it ended

    @property
    def where(self) -> str:
        return f"in phase {self.died_in}" if self.died_in else "between phases"

    @property
    def log_end(self) -> str:
        return f"the log ends: {self.last_words}" if self.last_words else "the log is empty"

    @property
    def last_words(self) -> str:
        """Return a library's failed check, or Python's account of a fatal error and the innermost call, or else the last
        line of the log."""
        lines = [line.strip() for line in self.log_tail.splitlines() if line.strip()]
        fatal = max((n for n, line in enumerate(lines) if line.startswith(FATAL)), default=None)
        if fatal is None:
            return lines[-1] if lines else ""
        calls = [line for line in lines[fatal:] if line.startswith("File ")]
        checks = [match[1] for match in map(GLOG_FATAL.match, lines[:fatal]) if match]
        return "; ".join([*checks[-1:], lines[fatal], *calls[:1]])

    @property
    def signal(self) -> str | None:
        return signal_name(-self.returncode) if self.returncode is not None and self.returncode < 0 else None


def judge(reported: Ending | None, seen: Evidence) -> Ending:
    """Return how a worker that nobody stopped has ended, from its own report, if any, and the evidence.

    Of several ranks it is the ending of the one that was first: what the others then report follows from that.
    """
    if reported is None or (seen.lost and reported.status != "ok"):
        ending = _unexplained(seen)
    else:
        ending = _failed(reported, seen) if reported.status == "failed" else reported
    if seen.rank is None or ending.status in ("ok", "unsupported"):
        return ending
    who = f"rank {seen.rank} ({seen.node})" if seen.node else f"rank {seen.rank}"
    return dataclasses.replace(ending, reason=f"{who}: {ending.reason}")


def _failed(reported: Ending, seen: Evidence) -> Ending:
    """An exception is a failure, unless it says, or the kernel does, that memory ran out."""
    if ALLOCATION_FAILURE.search(_first_line(reported.reason)):
        return dataclasses.replace(reported, status="out-of-memory")
    if seen.group_kills or (seen.kernel_kills and KILLED_LOADER.search(reported.reason)):
        reason = f"the kernel's out-of-memory killer ended a process of the worker {seen.where}; {reported.reason}"
        return dataclasses.replace(reported, status="out-of-memory", reason=reason)
    former = _allocation_failure(reported.traceback or "")
    if former:  # PyTorch's leaving a capture, say, in which memory ran out
        return dataclasses.replace(
            reported, status="out-of-memory", reason=f"{former}; then {reported.reason}"[:MAX_REASON]
        )
    return reported


def _allocation_failure(traceback: str) -> str | None:
    """Return what says so of the exceptions that led to the last one."""
    return next((line for line in EXCEPTION.findall(traceback) if ALLOCATION_FAILURE.search(line)), None)


def _first_line(reason: str) -> str:
    """The exception's own words; a C++ stack that frameworks append names functions such as `bad_alloc`."""
    return reason[:MAX_REASON].split("\n\n")[0]


def _unexplained(seen: Evidence) -> Ending:
    if seen.lost:  # not the framework's doing, whatever the batch system does next
        reason = f"the connection to its node was lost {seen.where}; {seen.log_end}"
        return Ending("interrupted", reason)
    if seen.returncode is None:
        reason = f"the process that supervises the worker was killed {seen.where}, and the worker with it"
        return Ending("crashed", reason)
    memory = _out_of_memory(seen)
    if memory:
        return Ending("out-of-memory", memory)
    if seen.signal == "SIGTERM":  # nothing here sends it: a batch system does to all processes of a job that it ends
        return Ending(
            "interrupted", f"ended {seen.where} by an external SIGTERM, such as from a batch system or the host"
        )
    how = f"killed by {seen.signal}" if seen.signal else f"exited with code {seen.returncode}"
    silent = "" if seen.signal else " without reporting an outcome"
    return Ending("crashed", f"{how} {seen.where}{silent}; {seen.log_end}")


def _out_of_memory(seen: Evidence) -> str | None:
    """Return why a death without a word was for want of memory; None where nothing says so."""
    if seen.group_kills:
        return f"killed by the kernel {seen.where} at the {seen.limit}"
    if seen.signal == "SIGKILL" and seen.kernel_kills:
        return f"killed by the kernel's out-of-memory killer {seen.where}"
    if seen.signal == "SIGKILL" and seen.peak_bytes and seen.peak_bytes >= HOST_SHARE * (seen.memory_bytes or 1 << 62):
        return (
            f"killed by SIGKILL {seen.where} with {seen.peak_bytes / 2**30:.2f} GiB in use, all memory of the machine"
        )
    said = ALLOCATION_FAILURE.search(seen.log_tail)
    if said and seen.signal in ("SIGABRT", "SIGSEGV", "SIGTRAP", None):
        how = seen.signal or f"code {seen.returncode}"
        return f"ended with {how} {seen.where} after its allocator failed; the log says: {_line_of(said)}"
    return None


def _line_of(match: "re.Match[str]") -> str:
    start = match.string.rfind("\n", 0, match.start()) + 1
    return match.string[start:].split("\n", 1)[0].strip()[:300]


def log_tail(log: Path) -> str:
    """The last lines of a log, without blank ones and the list of C extensions; "" if empty or not to be read."""
    return "\n".join(_last_lines(log)[-TAIL_LINES:])[-TAIL_BYTES:]


def stuck_at(log: Path) -> str:
    """Return the innermost call of the main thread, as its log has it, or ""."""
    found = STUCK.findall("\n".join(_last_lines(log)))
    return "at {0}:{1} in {2}".format(*found[-1]) if found else ""


def _last_lines(log: Path) -> list[str]:
    try:
        with open_regular(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES))
            lines = file.read(READ_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip() and not line.startswith(EXTENSIONS)]
