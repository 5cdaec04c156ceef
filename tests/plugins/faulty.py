"""A test framework that trains nothing and fails as the model's name says: `segfault`, `hang-silent`, ...

Every process it starts, itself included, is in pids.txt of the run's folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from framework_compare.graph import Graph
from framework_compare.protocol import (
    EXECUTIONS,
    PRECISIONS,
    Batch,
    Declared,
    DeviceTimes,
    ImageFiles,
    ProfileRow,
    TrainConfig,
)

LEAK_CAP_BYTES = 3 << 30  # a leak that nothing stops must not take the machine along
HOSTILE_TEXT = "deliberate; DROP TABLE run; -- <b>bold</b> \x1b[31m \ud800 'quoted' \"twice\"\nand a second line"


def note_pid(pid: int) -> None:
    with open("pids.txt", "a", encoding="ascii") as file:
        file.write(f"{pid}\n")


def pids(study: Path) -> List[int]:
    """Every process that the workers of a study started."""
    return [int(line) for file in study.glob("runs/*/pids.txt") for line in file.read_text().split()]


def to_events(content: bytes) -> None:
    os.write(int(sys.argv[2]), content)


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"event": kind, "t_ns": time.monotonic_ns(), **fields}).encode() + b"\n"


def epoch(number: Any, **changed: Any) -> bytes:
    end_ns = time.monotonic_ns()
    fields = dict(start_ns=end_ns - 2, end_ns=end_ns, data_wait_ns=0, images=1, steps=1, loss=1.0, step_ns=[1, 1, 1])
    return event("epoch", **{"number": number, **fields, **changed})


def hang() -> None:
    while True:
        time.sleep(3600)


def hang_printing() -> None:
    while True:
        print("still here")
        time.sleep(0.05)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def leak() -> None:
    held = []
    while len(held) < LEAK_CAP_BYTES >> 25:
        held.append(np.ones(1 << 22))
        time.sleep(0.02)


def leak_in_a_daemon() -> None:
    if not daemonise():
        leak()
        hang()
    hang()


def daemonise() -> int:
    """A process in a session of its own whose parent has gone: 0 in it, its pid here."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note_pid(os.getpid())
            os.write(write_end, b"%d\n" % os.getpid())
            return 0
        os._exit(0)
    return int(os.read(read_end, 32))


def daemon() -> None:
    if not daemonise():
        hang()


def daemon_without_environment() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], env={}, start_new_session=True)
    note_pid(child.pid)


def fork_and_leave() -> None:
    """The worker is gone, a loader worker holds its pipe."""
    if os.fork() == 0:
        note_pid(os.getpid())
        hang()
    time.sleep(0.1)
    os._exit(4)


def garbage() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            os.write(int(name), os.urandom(5000) + b"\n")
        except OSError:
            pass
    hang()


def flood() -> None:
    for _ in range(40):
        os.write(1, b"x" * (1 << 20) + b"\n")
    print("the end of the flood")


def interleaved() -> None:
    """Two processes write their events a few bytes at a time."""
    line = event("warning", message="w" * 200)
    for _ in range(2):
        if os.fork() == 0:
            note_pid(os.getpid())
            for _ in range(20):
                for start in range(0, len(line), 7):
                    to_events(line[start : start + 7])
                    time.sleep(0.0001)
            os._exit(0)
    hang()


def forged_success() -> None:
    to_events(event("outcome", status="ok", reason=""))
    os._exit(0)


def bad_alloc() -> None:
    print("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", file=sys.stderr)
    os.abort()


def recurse() -> None:
    recurse()


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


TORCH_SAYS = (
    "[enforce fail at alloc_cpu.cpp:128] data. DefaultCPUAllocator: not enough memory: you tried to allocate 411041792"
    " bytes. Error code 12 (Cannot allocate memory)"
)
TENSORFLOW_SAYS = (
    "Graph execution error:\n\nDetected at node Relu_5 defined at (most recent call last):\n"
    '  File "run_worker.py", line 6, in <module>\n\n  File "network.py", line 345, in <lambda>\n\n'
    "OOM when allocating tensor with shape[13,256,112,112] by allocator GPU_0_bfc\n\t [[{{node Relu_5}}]]"
)
HALF = "half \ud800 of a pair"


def halves_of_pairs() -> None:
    to_events(event("phase", name=HALF, edge="start") + event("phase", name=HALF, edge="end"))
    to_events(event("warning", message=HALF))
    to_events(event("framework", version=HALF, settings={HALF: HALF}))


def replace_log(make: Callable[[str], Any]) -> Callable[[], None]:
    def replace_it() -> None:
        os.rename("log.txt", "before.txt")
        make("log.txt")
        os._exit(3)

    return replace_it


FAULTS: Dict[str, Callable[[], None]] = {
    "fine": lambda: None,
    "segfault": lambda: ctypes.string_at(0),  # type: ignore[dict-item,return-value]
    "bus-error": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit-0": lambda: os._exit(0),
    "exit-3": lambda: os._exit(3),
    "sys-exit": lambda: sys.exit("sys.exit was called"),
    "raise": fail(ValueError(HOSTILE_TEXT)),
    "raise-long": fail(ValueError("long " * 1_000_000)),
    "raise-interrupt": fail(KeyboardInterrupt()),
    "recurse": recurse,
    "hang-silent": hang,
    "hang-printing": hang_printing,
    "hang-stopped": stop,
    "leak": leak,
    "leak-in-a-daemon": leak_in_a_daemon,
    "daemon": daemon,
    "daemon-without-environment": daemon_without_environment,
    "daemon-then-segfault": lambda: (daemon(), ctypes.string_at(0)),  # type: ignore[dict-item,return-value]
    "fork-and-leave": fork_and_leave,
    "kill-the-supervisor": lambda: (os.kill(os.getppid(), signal.SIGKILL), hang()),  # type: ignore[dict-item,return-value]
    "garbage": garbage,
    "flood": flood,
    "malformed-events": lambda: to_events(b"this is no JSON\n"),
    "json-but-no-event": lambda: to_events(b'["epoch"]\n'),
    "huge-event": lambda: to_events(b"x" * (8 << 20)),
    "deep-event": lambda: to_events(b"[" * 500_000 + b"\n"),
    "huge-number": lambda: to_events(
        epoch(1, extra=10**3000) + epoch(1).replace(b'"images": 1', b'"images": 1' + b"0" * 40)
    ),
    "nan-in-event": lambda: to_events(epoch(1).replace(b'"loss": 1.0', b'"loss": NaN')),
    "log-is-a-pipe": replace_log(os.mkfifo),
    "log-is-a-folder": replace_log(os.mkdir),
    "log-is-a-link": replace_log(lambda name: os.symlink("../../precious.txt", name)),
    "halves-of-pairs": halves_of_pairs,
    "epoch-without-length": lambda: to_events(
        epoch(1, **dict.fromkeys(("start_ns", "end_ns"), time.monotonic_ns()), step_ns=[0, 0, 0])
    ),
    "epoch-twice": lambda: to_events(epoch(1) + epoch(1)),
    "unknown-status": lambda: to_events(event("outcome", status="<script>", reason="")),
    "settings-no-object": lambda: to_events(event("framework", version=1, settings="x")),
    "phase-twice": lambda: to_events(event("phase", name="build", edge="start")),
    "interleaved": interleaved,
    "forged-success": forged_success,
    "memoryerror": fail(MemoryError("no more")),
    "numpy-allocation": lambda: np.empty(1 << 58),  # type: ignore[dict-item,return-value]
    "torch-allocation": fail(RuntimeError(TORCH_SAYS)),
    "tensorflow-allocation": fail(type("ResourceExhaustedError", (Exception,), {})(TENSORFLOW_SAYS)),
    "bad-alloc": bad_alloc,
    "nan": lambda: None,
    "unsupported": lambda: None,
    "slow": lambda: None,
    "at-most-25": lambda: None,
    "crash-in-epoch-2": lambda: None,
}


PROFILE_FAULTS: Dict[str, Callable[[], None]] = {
    "profile-raise": fail(RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")),
    "profile-segfault": lambda: ctypes.string_at(0),  # type: ignore[dict-item,return-value]
    "profile-hang": hang,
    "profile-malformed": lambda: to_events(event("profile", steps=1, rows=[["operator", "x", -1, 1]])),
    "profile-unknown-kind": lambda: to_events(event("profile", steps=1, rows=[["<b>", "x", 1, 1]])),
    "profile-endless": lambda: to_events(event("profile", steps=1, rows=[["kernel", "x", 1, 1]] * 301)),
    "profile-hostile": lambda: to_events(event("profile", steps=1, rows=[["kernel", HOSTILE_TEXT * 99, 1, 1]])),
}
FAULTS.update(dict.fromkeys(PROFILE_FAULTS, lambda: None))


class FaultyTrainer:
    name = "faulty"
    layout = "NCHW"
    declared = Declared(
        ops=frozenset({"GlobalAvgPool", "Linear"}),
        losses=frozenset({"cross_entropy"}),
        optimizers=frozenset({"sgd"}),
        executions=dict.fromkeys(("cpu", "cuda"), frozenset(EXECUTIONS)),
        precisions=dict.fromkeys(("cpu", "cuda"), frozenset(PRECISIONS)),
    )

    @staticmethod
    def environment(config: TrainConfig) -> Dict[str, str]:
        return {}

    def __init__(self, config: TrainConfig) -> None:
        note_pid(os.getpid())
        self.fault = ""
        self.config = config

    def version(self) -> str:
        return "1.0"

    def unsupported(self) -> Optional[str]:
        with open(sys.argv[1], encoding="utf-8") as file:
            self.fault = json.load(file)["graph"]["name"]
        return "faulty was told so" if self.fault == "unsupported" else None

    def settings(self) -> Dict[str, Any]:
        return {}

    def build(self, graph: Graph) -> None:
        FAULTS[graph.name]()
        if graph.name == "at-most-25" and self.config.batch_size > 25:
            raise MemoryError(f"batch {self.config.batch_size} is more than 25")

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights = dict(weights)

    def weights(self) -> Dict[str, np.ndarray]:
        return self._weights

    def host_array(self, shape: Tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, dtype=np.float32)

    def to_device_batch(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return Batch(images, labels, len(labels))

    def open_pipeline(self, files: ImageFiles) -> Any:
        return len(files)

    def epoch(self, pipeline: Any, number: int) -> Iterator[Batch]:
        self.number = number
        return iter([Batch(None, None, pipeline)])

    def train_step(self, batch: Batch) -> Any:
        number = getattr(self, "number", 0)
        if number and self.fault == "slow":
            time.sleep(0.2)
        if number == 2 and self.fault == "crash-in-epoch-2":
            ctypes.string_at(0)
        return float("nan") if self.fault == "nan" else 1.0

    def read_losses(self, losses: List[Any]) -> List[float]:
        return losses

    def forward(self, batch: Batch, *, training: bool = False) -> np.ndarray:
        return np.zeros((batch.size, 3), np.float32)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def device_times(self) -> Optional[DeviceTimes]:
        return None

    def profile(self, step: Callable[[], None], folder: str) -> List[ProfileRow]:
        if self.fault.startswith("profile-"):
            PROFILE_FAULTS[self.fault]()
        return [ProfileRow("operator", "nothing", 1, 1)]

    def release(self) -> None:
        """Nothing is held."""
