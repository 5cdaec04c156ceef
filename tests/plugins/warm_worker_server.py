"""Forks supervisors and workers whose interpreter has started and imported numpy already: `warm_workers.py` asks it.

    python warm_worker_server.py SOCKET

A request is what subprocess.Popen would get for a supervisor. The supervisor runs from its own source, and so does the
worker, from its staged folder; only starting two interpreters and importing numpy is left out. One thread, so that a
fork is safe; it ends when the other end of SOCKET closes.
"""

from __future__ import annotations

import array
import fcntl
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any, Dict, List

MOST_BYTES = 1 << 18
PACKAGE = "framework_compare"
_loaded: Dict[str, bytes] = {}  # source of what was imported, by path in a staged folder


def main(descriptor: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    # As the worker imports it: a pool of threads would not be there after a fork.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy  # noqa: F401

    with socket.socket(fileno=descriptor) as asked:
        while True:
            content, descriptors, _, _ = socket.recv_fds(asked, MOST_BYTES, 16)
            if not content:
                return
            request = json.loads(content)
            _import_from(Path(request["source"]))
            pid = os.fork()
            if pid == 0:
                asked.close()
                _become_supervisor(request, descriptors)
            for number in descriptors:
                os.close(number)
            asked.send(array.array("q", [pid]).tobytes())


def _import_from(source: Path) -> None:
    """Import what every worker does, but adapters, from the first staged folder that is seen."""
    if _loaded:
        return
    sys.path.insert(0, str(source))
    for name, content in _common(source).items():
        importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        _loaded[name] = content
    sys.path.pop(0)


def _common(source: Path) -> Dict[str, bytes]:
    """Sources of a staged folder by their paths in it, but those of the adapter itself."""
    paths = [path.relative_to(source) for path in sorted((source / PACKAGE).rglob("*.py"))]
    kinds = ("adapters", "importers")
    own = [path for path in paths if path.parts[1] in kinds and path.parts[2] not in ("__init__.py", "common")]
    return {str(path): (source / path).read_bytes() for path in paths if path not in own}


def _become_supervisor(request: Dict[str, Any], descriptors: List[int]) -> None:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        _place(descriptors, request["descriptors"])
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        _supervise(request["supervisor"], request["arguments"])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _supervise(script: str, arguments: List[str]) -> None:
    """Run the supervisor's main(); its child, which would execute an interpreter, runs the worker's script itself."""
    supervisor: Dict[str, Any] = {"__name__": "supervisor", "__file__": script}
    exec(compile(Path(script).read_bytes(), script, "exec"), supervisor)
    execv, tell, (told, telling) = os.execv, supervisor["_write"], os.pipe()

    def run_worker(path: str, command: List[str]) -> None:
        os.execv = execv
        os.close(telling)
        os.read(told, 1)  # an interpreter never starts before its supervisor has said so
        os.close(told)
        _run_script(command[2], command[2:])

    def tell_and_go_on(*what: Any) -> None:
        tell(*what)
        os.write(telling, b"1")

    os.execv, supervisor["_write"] = run_worker, tell_and_go_on
    supervisor["main"](arguments)


def _place(descriptors: List[int], numbers: List[int]) -> None:
    """Give each descriptor its number in the process that asked, and close all others."""
    high = [fcntl.fcntl(one, fcntl.F_DUPFD, 1000) for one in descriptors]
    os.closerange(3, 1000)
    for one, number in zip(high, numbers):
        os.dup2(one, number, inheritable=True)
        os.close(one)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if null > 2:
        os.close(null)


def _run_script(script: str, arguments: List[str]) -> None:
    """Do what `python -u script arguments` does, to its end."""
    code = 1
    try:
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            setattr(sys, name, open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False))
        _use(Path(script).parent)
        random.seed()
        sys.modules["numpy"].random.seed()
        sys.argv = arguments
        sys.modules["__main__"] = types.ModuleType("__main__")
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an interpreter does
        os._exit(code)


def _use(source: Path) -> None:
    """Import from a staged folder from now on; what was imported stays where the folder has the same source."""
    sys.path[0] = str(source)
    ours = [name for name in sys.modules if name.partition(".")[0] == PACKAGE]
    if _common(source) != _loaded:
        for name in ours:
            del sys.modules[name]
        return
    for name in ours:
        if hasattr(sys.modules[name], "__path__"):
            sys.modules[name].__path__ = [str(source.joinpath(*name.split(".")))]


if __name__ == "__main__":
    main(int(sys.argv[1]))
