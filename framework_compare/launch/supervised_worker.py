"""The parent's hold on one worker: started under a supervisor, ended with all that descends from it."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import psutil

from framework_compare.errors import FrameworkCompareError
from framework_compare.launch import nodes
from framework_compare.launch.supervisor import LOST

SUPERVISOR = Path(__file__).with_name("supervisor.py")
START_S = 60.0
END_S = 15.0
LOOPBACK = "127.0.0.1"


class SupervisionError(FrameworkCompareError):
    """A worker could not be started under supervision, or its supervisor was killed."""


class SupervisedWorker:
    """A running worker. `events` and `status` are descriptors to wait on; leaving the context ends everything.

    ranks: how many processes train together on this node, `pids`; `rank` is the one that `returncode` is of.
    inherited: descriptors that the worker has under their numbers.
    others: names of the other nodes of this Slurm job on each of which as many do, in the folder `place`.
    returncode is the worker's as subprocess has it (negative for a signal), None while it runs or where nobody knows.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        folder: Path,
        environment: Dict[str, str],
        group: str = "",
        temporary: Optional[Path] = None,
        ranks: int = 1,
        others: Sequence[str] = (),
        place: Optional[Path] = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self.returncode: Optional[int] = None
        self.max_rss_bytes: Optional[int] = None
        self.left = 0  # processes that could not be killed
        self.rank = 0
        self.ended = self.lost = False  # lost: `rank` is on a node that has not said how it ended
        self._rest = b""
        self.events, events = os.pipe()
        self.status, status = os.pipe()
        control, self._control = os.pipe()
        given = (status, control, events)
        # The supervisor adds a worker's last argument, the number of the descriptor that it writes events to.
        self._port = _held_port(others) if ranks > 1 or others else None  # no other program gets it before rank 0
        meeting = _meeting(self._port, ranks, others)
        arguments = [*map(str, given), str(log), group, str(temporary or ""), meeting, str(place or ""), *command]
        try:
            with open(log, "ab") as errors:
                self._supervisor = subprocess.Popen(
                    # Isolated and without site: it starts in 10 ms and runs nothing of the user's.
                    [sys.executable, "-I", "-S", str(SUPERVISOR), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd=folder,
                    env=environment,
                    pass_fds=(*given, *inherited),
                    start_new_session=True,
                )
        except BaseException:
            _close(self.events, self.status, self._control)
            self._leave_port()
            raise
        finally:
            _close(*given)
        self.supervisor_pid = self._supervisor.pid
        self.pid = self.started_ns = 0
        self.pids: List[int] = []  # rank by rank
        try:
            self._wait_until_started()
        except BaseException:
            self.end()
            _close(self.events)
            raise
        os.set_blocking(self.events, False)

    def __enter__(self) -> "SupervisedWorker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()
        self.close_events()

    def close_events(self) -> None:
        """No more will come."""
        if self.events >= 0:
            os.close(self.events)
            self.events = -1

    def read_status(self, timeout_s: float = 0.0) -> bool:
        """Read the supervisor's report; False when no more will come."""
        if not select.select([self.status], [], [], timeout_s)[0]:
            return True
        chunk = os.read(self.status, 4096)
        self._rest += chunk
        while b"\n" in self._rest:
            line, self._rest = self._rest.split(b"\n", 1)
            self._take(line.decode().split())
        if not chunk:
            self.ended = True
        return not self.ended

    def end(self) -> None:
        """Kill the worker and all its descendants, and wait until they have ended; harmless if they have."""
        if self._control < 0:
            return
        os.close(self._control)
        self._control = -1
        try:
            give_up = time.monotonic() + END_S
            while time.monotonic() < give_up and self.read_status(give_up - time.monotonic()):
                pass
        finally:
            self._end_supervisor()
            self._leave_port()
            os.close(self.status)
            if self.returncode is None and self.pid:
                _wait_until_dead(self.pid)

    def _wait_until_started(self) -> None:
        give_up = time.monotonic() + START_S
        while not self.pid:
            if time.monotonic() > give_up:
                raise SupervisionError(f"the supervisor of a worker reported nothing within {START_S:g} s")
            if not self.read_status(max(0.0, give_up - time.monotonic())) and not self.pid:
                raise SupervisionError(
                    "the supervisor of a worker ended before the worker started; the log may say why"
                )

    def _take(self, words: "list[str]") -> None:
        """A line of the supervisor's; a worker that ended at once has its two lines come together."""
        if words[0] == "started":
            self.started_ns, *self.pids = map(int, words[1:])
            self.pid = self.pids[0]
            return
        code, max_rss_kib, self.left, self.rank = map(int, words[1:])
        self.ended, self.lost = True, code == LOST
        self.returncode = os.waitstatus_to_exitcode(code) if code >= 0 else None
        self.max_rss_bytes = max_rss_kib * 1024 or None

    def _leave_port(self) -> None:
        if self._port:
            self._port.close()

    def _end_supervisor(self) -> None:
        """Wait for the supervisor to exit, or kill it, with what it can no longer end."""
        try:
            self._supervisor.wait(1.0)
        except subprocess.TimeoutExpired:
            for process in [*_children(self.supervisor_pid), self._supervisor]:
                try:
                    process.kill()
                except psutil.Error:
                    pass
            self._supervisor.wait()


def _held_port(others: Sequence[str]) -> socket.socket:
    """A free port that nobody else is given; rank 0 can listen at it, as it reuses addresses and we do not listen."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("" if others else LOOPBACK, 0))
    return held


def _meeting(port: Optional[socket.socket], ranks: int, others: Sequence[str]) -> str:
    """Return what the supervisor is told of ranks: how many, where they meet, which are here, the other nodes."""
    if port is None:
        return ""
    host = nodes.address(nodes.node()) if others else LOOPBACK
    return " ".join([f"{ranks * (1 + len(others))} {host}:{port.getsockname()[1]} 0 {ranks}", *others])


def _wait_until_dead(pid: int) -> None:
    """The worker of a supervisor that was killed is killed by the kernel, which may take it a moment."""
    give_up = time.monotonic() + END_S
    while time.monotonic() < give_up:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.01)


def _children(pid: int) -> "list[psutil.Process]":
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def signal_name(number: int) -> str:
    """ "SIGSEGV" for 11; real-time signals, which have no name of their own, by number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
