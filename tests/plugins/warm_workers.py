"""Supervisors and workers of test frameworks, forked from a process that has started and imported numpy already.

A worker's start is a second of two interpreters and of numpy. Tests whose subject is what a worker says, or what the
parent makes of it, can do without: all code that would run does, but that of starting Python. What is asked for in
another interpreter than this one starts as it always does.

`-p warm_workers` does it for all workers of a suite in a process of its own.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

import pytest

from framework_compare.launch import supervised_worker

SERVER = Path(__file__).with_name("warm_worker_server.py")
AFTER = 3  # -I -S and the interpreter stand before the supervisor's path


class Server:
    """The process that forks; started when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Optional[subprocess.Popen] = None
        self.forked = 0  # supervisors so far

    def fork(self, request: Dict[str, Any], descriptors: Sequence[int]) -> int:
        """The pid of a new supervisor."""
        with self._lock:
            self._start()
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(8)
            self.forked += 1
        if not answer:
            raise RuntimeError(f"{SERVER.name} has ended; its messages are in this process's stderr")
        return array.array("q", answer)[0]

    def close(self) -> None:
        if self._process is not None:
            self._socket.close()
            self._process.wait()

    def _start(self) -> None:
        if self._process is not None:
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            given = {"pass_fds": [theirs.fileno()], "stdin": subprocess.DEVNULL}
            self._process = subprocess.Popen([sys.executable, str(SERVER), str(theirs.fileno())], **given)


class Forked:
    """A supervisor that was forked, as far as subprocess.Popen is used of one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._descriptor = -1

    def wait(self, timeout: Optional[float] = None) -> None:
        if self._descriptor < 0:
            return
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("supervisor", timeout or 0)
        os.close(self._descriptor)
        self._descriptor = -1

    def kill(self) -> None:
        if self._descriptor >= 0:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


class Subprocess:
    """Stands in the place of the module `subprocess` in framework_compare's supervision."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: List[str], **given: Any) -> Any:
        arguments = command[AFTER + 1 :]
        script = next((Path(one) for one in arguments if Path(one).name == "run_worker.py"), None)
        if script is None or sys.executable not in arguments:
            return subprocess.Popen(command, **given)
        numbers = [*given["pass_fds"], 2]
        request = {
            "supervisor": command[AFTER],
            "arguments": arguments,
            "source": str(script.parent),
            "descriptors": numbers,
            "cwd": str(given["cwd"]),
            "environment": given["env"],
        }
        return Forked(self._server.fork(request, [*given["pass_fds"], given["stderr"].fileno()]))


@pytest.fixture(scope="session", autouse=True)
def all_warm() -> Iterator[None]:
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised_worker, "subprocess", Subprocess(server))
        yield
    server.close()
