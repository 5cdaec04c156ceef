"""The worker's entry: `python run_worker.py JOB [TURNS] EVENTS`. Reads a job, trains, reports the outcome, exits.

TURNS and EVENTS are descriptors: one that takes turns with others reads them from the first.

Runs inside a framework's environment: the standard library, numpy, Pillow, the JPEG library and the framework.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import re
import signal
import sys
import threading
import traceback
from typing import Any, List, Optional

from framework_compare.errors import FrameworkCompareError, Unsupported
from framework_compare.events import TOLD_FAILURE, VERSION, EventWriter
from framework_compare.protocol import Fields, Job, Replicas
from framework_compare.worker.placement import own_part, rank_of

PR_SET_PDEATHSIG = 1


def main(arguments: List[str]) -> int:
    """Run the job in file `arguments[0]`, events on the last descriptor; exit code 0 once the outcome is sent."""
    path, (*turns, descriptor) = arguments[0], map(int, arguments[1:])
    for number in (*turns, descriptor):
        os.set_inheritable(number, False)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # where it hangs, for the log
    _die_with_parent()
    have_children_die_too()
    rank = rank_of()
    events = EventWriter(descriptor, rank)
    events.send("hello", version=VERSION, pid=os.getpid(), python=sys.version.split()[0])
    with open(path, encoding="utf-8") as file:
        job, replicas = own_part(Job.from_dict(json.load(file)))
    if rank:
        own = f"rank-{rank}"  # all ranks write files of the same names
        os.makedirs(own, exist_ok=True)
        os.chdir(own)
    well = _report(job, replicas, events, *turns)
    sys.stdout.flush()
    sys.stderr.flush()
    # A framework's own threads and exit handlers can hang or crash after the last measurement; it is in the pipe.
    # The supervisor ends the other ranks, which may wait for this one, where it did not go well.
    os._exit(0 if well or rank is None else TOLD_FAILURE)


def _report(job: Job, replicas: Optional[Replicas], events: EventWriter, turns: Optional[int] = None) -> bool:
    """Do the job and send its outcome; whether it went well."""
    try:
        _train(job, replicas, events, turns)
        events.send("outcome", status="ok", reason="")
        return True
    except Unsupported as error:
        events.send("outcome", status="unsupported", reason=str(error))
    except MemoryError as error:
        _send_failure(events, "out-of-memory", f"MemoryError: {error}")
    except FrameworkCompareError as error:  # our own: its words are a sentence by themselves
        _send_failure(events, getattr(error, "status", "failed"), str(error))
    except Exception as error:  # the boundary: whatever a framework raises becomes the cell's status
        _send_failure(events, "failed", f"{type(error).__name__}: {_words(error)}")
    return False


def _words(error: Exception) -> str:
    """Return what an exception says, without the stack that TensorFlow puts in front; the traceback keeps that."""
    text = str(error)
    last = max((found.end() for found in re.finditer(r'(?m)^\s*File "[^"\n]*", line \d+, in .*$', text)), default=0)
    return text[last:].strip() or text


def _send_failure(events: EventWriter, status: str, reason: str) -> None:
    traceback.print_exc()
    events.send("outcome", status=status, reason=reason, traceback=traceback.format_exc()[-8000:])


def _train(job: Job, replicas: Optional[Replicas], events: EventWriter, turns: Optional[int]) -> None:
    _import_numpy()  # before the adapter, which imports it too
    module, _, name = job.trainer.partition(":")
    trainer: Any = getattr(importlib.import_module(module), name)
    os.environ.update(trainer.environment(job.config))
    if job.kind == "verify":
        from framework_compare.worker.parity_answers import ParityAnswers

        ParityAnswers(job, trainer, events, replicas).run()
    elif job.kind == "trace":
        trainer.trace(job)
    elif job.kind == "conformance":
        if replicas:
            raise Unsupported("the conformance suite runs on one device")
        from framework_compare.worker.conformance_answers import ConformanceAnswers

        ConformanceAnswers(job, trainer, events).run()
    elif job.kind == "search":
        from framework_compare.worker.search import SearchRunner

        SearchRunner(job, trainer, events, replicas).run()
    else:
        from framework_compare.worker.runner import Runner

        Runner(job, trainer, events, replicas, turns).run()


def _import_numpy() -> None:
    """Import numpy with a BLAS of one thread: ours never multiplies, and its idle pool would be counted."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    importlib.import_module("numpy")
    if before is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = before


def _die_with_parent() -> None:
    """Have the kernel kill this process when the parent is killed; where it cannot, the closed pipe ends it."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def have_children_die_too() -> None:
    """The same for the processes that this one forks, as loaders do: they wait for work from a queue that stays open.

    Only for those that its main thread forks: the kernel takes the end of the thread that forked for the parent's. Not
    for children of these, which may outlive the one between.
    """
    library, worker = ctypes.CDLL(None), os.getpid()
    fork: Fields = {}

    def before() -> None:
        fork.update(parent=os.getpid(), by_main=threading.current_thread() is threading.main_thread())

    def in_child() -> None:
        if fork["by_main"] and fork["parent"] == worker:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != fork["parent"]:
                os._exit(1)

    os.register_at_fork(before=before, after_in_child=in_child)
