"""Starts a worker, listens to its events, watches its limits, and turns what became of it into a Run."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import psutil

from framework_compare.errors import ProtocolError
from framework_compare.events import EventReader
from framework_compare.records import Epoch, Phase, Run
from framework_compare.samplers.recorder import Recorder

# What a worker inherits. Everything else of the user's shell stays out: a forgotten OMP_NUM_THREADS or
# PYTHONPATH there would change a figure without a trace.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_")
KILL_GRACE_S = 5.0
LOG_TAIL_BYTES = 4000


@dataclasses.dataclass(frozen=True)
class Limits:
    """When a worker is ended from outside; None is no limit."""

    timeout_s: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Launch:
    """All that one run of a worker needs."""

    python: Path
    source: Path  # staged worker side
    folder: Path  # of this run: job, log
    job: Dict[str, Any]
    device: str = "cpu"
    managed: bool = True  # a managed environment is kept from the user's site-packages
    hz: float = 10.0
    limits: Limits = Limits()


def launch(what: Launch, on_event: Callable[[Dict[str, Any]], None] = lambda event: None) -> Run:
    """Run one worker to its end; never raises for what the worker does. KeyboardInterrupt ends the worker's tree."""
    what.folder.mkdir(parents=True, exist_ok=True)
    job = what.folder / "job.json"
    job.write_text(json.dumps(what.job), encoding="utf-8")
    read_end, write_end = os.pipe()
    started = time.monotonic_ns()
    try:
        worker = _spawn(what, job, write_end)
    finally:
        os.close(write_end)
    transcript = Transcript(started)
    try:
        with Recorder(worker.pid, device=what.device, hz=what.hz) as recorder:
            verdict = _listen(worker, read_end, transcript, what.limits, on_event)
    finally:
        end_tree(worker)
        os.close(read_end)
    return transcript.run(worker, verdict, what, recorder)


def _spawn(what: Launch, job: Path, descriptor: int) -> "subprocess.Popen[bytes]":
    arguments = [str(what.python), "-u", str(what.source / "run_worker.py"), str(job), str(descriptor)]
    with open(what.folder / "log.txt", "ab") as log:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=what.folder,
            env=worker_environment(managed=what.managed),
            pass_fds=(descriptor,),
            start_new_session=True,
        )


def worker_environment(*, managed: bool) -> Dict[str, str]:
    """The allow-listed part of this process's environment that a worker gets."""
    kept = {k: v for k, v in os.environ.items() if k in INHERITED or k.startswith(INHERITED_PREFIXES)}
    return {**kept, "PYTHONNOUSERSITE": "1"} if managed else kept


def _listen(
    worker: "subprocess.Popen[bytes]",
    descriptor: int,
    transcript: "Transcript",
    limits: Limits,
    on_event: Callable[[Dict[str, Any]], None],
) -> Optional["Verdict"]:
    """Block on the pipe until the worker is gone; returns why it had to be ended, None if it ended by itself."""
    reader = EventReader()
    deadline = None if limits.timeout_s is None else time.monotonic() + limits.timeout_s
    os.set_blocking(descriptor, False)
    exited = os.pidfd_open(worker.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            selector.register(exited, selectors.EVENT_READ)
            while True:
                # a forked loader worker can hold the pipe open after the worker's death: its exit counts as well
                ready = {key.fd for key, _ in selector.select(_remaining(deadline))}
                chunk = _read(descriptor)
                for event in reader.feed(chunk or b""):
                    transcript.add(event)
                    on_event(event)
                if exited in ready and not chunk:
                    return None
                if chunk == b"":
                    selector.unregister(descriptor)
                if deadline is not None and time.monotonic() >= deadline:
                    return Verdict("timed-out", f"not finished within {limits.timeout_s:g} s")
    except ProtocolError as error:
        return Verdict("failed", str(error))
    finally:
        os.close(exited)


def _remaining(deadline: Optional[float]) -> Optional[float]:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _read(descriptor: int) -> Optional[bytes]:
    """What has arrived, b"" at the end of the pipe, None if nothing has."""
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return None


def end_tree(worker: "subprocess.Popen[bytes]") -> None:
    """Kill the worker and all that descends from it, and reap it."""
    for process in _tree(worker.pid):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    try:
        # loader workers whose parent is gone are no descendants any more, but still of its session
        os.killpg(worker.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    worker.wait(KILL_GRACE_S)


def _tree(pid: int) -> List[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A status and the sentence that goes with it."""

    status: str
    reason: str
    traceback: Optional[str] = None


class Transcript:
    """What a worker told, gathered into records."""

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        self.started_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.open: Dict[str, int] = {"spawn": started_ns}
        self.phases: List[Phase] = []
        self.epochs: List[Epoch] = []
        self.warnings: List[str] = []
        self.framework: Dict[str, Any] = {}
        self.python: Optional[str] = None
        self.outcome: Optional[Verdict] = None

    def add(self, event: Dict[str, Any]) -> None:
        """Take in one event; ProtocolError if a field is missing or of another type."""
        try:
            getattr(self, "_" + event["event"])(event)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the worker sent a malformed {event['event']} event: {error!r}") from None

    def _hello(self, event: Dict[str, Any]) -> None:
        self.python = str(event["python"])
        self._close("spawn", event["t_ns"])

    def _framework(self, event: Dict[str, Any]) -> None:
        self.framework = {"version": str(event["version"]), "settings": dict(event["settings"])}

    def _phase(self, event: Dict[str, Any]) -> None:
        if event["edge"] == "start":
            self.open[event["name"]] = event["t_ns"]
        else:
            self._close(event["name"], event["t_ns"])

    def _close(self, name: str, t_ns: int) -> None:
        self.phases.append(Phase(name, self.open.pop(name), t_ns))

    def _memory(self, event: Dict[str, Any]) -> None:
        last = self.phases[-1]
        if last.name == event["phase"]:
            self.phases[-1] = dataclasses.replace(last, pss_bytes=event["pss_bytes"])

    def _progress(self, event: Dict[str, Any]) -> None:
        """For whoever watches; nothing to keep."""

    def _warning(self, event: Dict[str, Any]) -> None:
        self.warnings.append(str(event["message"]))

    def _epoch(self, event: Dict[str, Any]) -> None:
        p05, median, p95 = (ns / 1e9 for ns in event["step_ns"])
        self.epochs.append(
            Epoch(
                number=int(event["number"]),
                start_ns=int(event["start_ns"]),
                end_ns=int(event["end_ns"]),
                data_wait_s=event["data_wait_ns"] / 1e9,
                images=int(event["images"]),
                steps=int(event["steps"]),
                loss=float(event["loss"]),
                step_s_median=median,
                step_s_p05=p05,
                step_s_p95=p95,
            )
        )

    def _outcome(self, event: Dict[str, Any]) -> None:
        self.outcome = Verdict(str(event["status"]), str(event["reason"]), event.get("traceback"))

    def run(
        self, worker: "subprocess.Popen[bytes]", verdict: Optional[Verdict], what: Launch, recorder: Recorder
    ) -> Run:
        """The record of the run: the parent's verdict stands before the worker's own, and that before its exit code."""
        code = worker.returncode
        final = verdict or self.outcome or _from_exit(code, self.died_in, what.folder / "log.txt")
        return Run(
            status=final.status,
            reason=final.reason,
            started_at=self.started_at,
            wall_s=(time.monotonic_ns() - self.started_ns) / 1e9,
            exit_code=code if code >= 0 else None,
            signal=signal.Signals(-code).name if code < 0 else None,
            died_in=None if final.status == "ok" else self.died_in,
            traceback=final.traceback,
            framework_version=self.framework.get("version"),
            interpreter=self.python,
            settings=self.framework.get("settings", {}),
            peak_rss_bytes=recorder.peak_rss_bytes,
            warnings=tuple(self.warnings),
            phases=tuple(self.phases),
            epochs=tuple(self.epochs),
            samples=recorder.samples(),
        )

    @property
    def died_in(self) -> Optional[str]:
        """The innermost phase that began and did not end."""
        return next(reversed(self.open), None)


def _from_exit(code: int, phase: Optional[str], log: Path) -> Verdict:
    where = f"in phase {phase}" if phase else "between phases"
    tail = log_tail(log)
    if code < 0:
        return Verdict("crashed", f"killed by {signal.Signals(-code).name} {where}; the log ends: {tail}")
    return Verdict("crashed", f"exited with code {code} {where} without telling how it went; the log ends: {tail}")


def log_tail(log: Path) -> str:
    """The last line of a log that is not blank, or "(empty)"."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "(empty)")
