"""The process between the parent and a worker: nothing that descends from the worker outlives it.

    python -I -S supervisor.py STATUS CONTROL EVENTS LOG CGROUP TEMPORARY RANKS COMMAND...

STATUS, CONTROL and EVENTS are descriptors, LOG a file, CGROUP the worker's memory group or "",
TEMPORARY a folder to remove in the end or "". RANKS is "" for one worker, or "N HOST:PORT" for N of them, which meet
at that address as the variables of torchrun say; the first that does not end well ends the others. Orphans of the worker,
daemons in sessions of their own included, become children of this process (PR_SET_CHILD_SUBREAPER), and are killed
when the worker ends or when CONTROL closes, which it does however the parent dies. Two lines go to STATUS:
"started NANOSECONDS PID..." and "ended WAIT_STATUS MAX_RSS_KIB LEFT RANK". It sleeps in between. Standard library only.

Segments of shared memory outlive their processes, and a loader that is killed leaves gigabytes. Python's resource
tracker knows those of `multiprocessing` and is given a moment to remove them; others are found by the pid in their name.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import sys
import time
from typing import Dict, List, Optional, Set, Tuple

PR_SET_CHILD_SUBREAPER = 36
END_S = 8.0
TRACKER_S = 1.0
SHARED_MEMORY = "/dev/shm"
# The kernel's out-of-memory killer takes the worker before the parent or anything else of the user's.
OOM_SCORE_ADJ = b"500"
TOLD_FAILURE = 70  # as in framework_compare.events, which this file cannot import

Ended = Tuple[int, int]  # wait status, largest RSS in KiB


def main(arguments: List[str]) -> int:
    status, control, events = map(int, arguments[:3])
    log, group, temporary, ranks, command = *arguments[3:7], arguments[7:]
    for descriptor in (status, control):
        os.set_inheritable(descriptor, False)
    _adopt_orphans()
    woken = _wake_on_signals()
    began_s = time.time()
    workers = []
    for variables in _environments(ranks):
        workers.append(os.fork())
        if workers[-1] == 0:
            os.environ.update(variables)
            _become_worker(command, log, group)
    os.close(events)
    _tell(status, f"started {time.monotonic_ns()} {' '.join(map(str, workers))}")
    ended = _wait(workers, control, woken)
    rank = decisive_rank(workers, ended)
    left, gone = _end_all(workers, ended)
    _remove_segments(gone - left, began_s)
    if temporary:
        _remove_tree(temporary)
    code, max_rss = ended.get(workers[rank], (-1, 0))
    _tell(status, f"ended {code} {max_rss} {len(left)} {rank}")
    return 0


def _environments(ranks: str) -> List[Dict[str, str]]:
    """What each worker's environment has beside this process's, under torchrun's names."""
    if not ranks:
        return [{}]
    count, _, address = ranks.partition(" ")
    host, _, port = address.rpartition(":")
    common = {"WORLD_SIZE": count, "MASTER_ADDR": host, "MASTER_PORT": port}
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(int(count))]


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wake_on_signals() -> int:
    """Descriptor that can be read after SIGCHLD, SIGTERM, SIGINT or SIGHUP; their numbers are in it."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read_end


def _become_worker(command: List[str], log: str, group: str) -> None:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        # Python ignores these two, which would outlive the exec.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        _put("/proc/self/oom_score_adj", OOM_SCORE_ADJ)
        if group:
            _put(os.path.join(group, "cgroup.procs"), b"0")
        output = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error}\n".encode())
    finally:
        os._exit(127)


def _put(path: str, content: bytes) -> None:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(content)
    except OSError:  # not there, or not allowed: the launcher has checked what it relies on
        pass


def _wait(workers: List[int], control: int, woken: int) -> Dict[int, Ended]:
    """How workers ended, once all have or one did not end well. The others have to be ended.

    So have all when the parent said so, is gone, or the system is stopping.
    """
    ended: Dict[int, Ended] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        numbers = set(os.read(woken, 4096)) if woken in ready else set()
        ended.update(_reap())
        if all(pid in ended for pid in workers) or any(ended.get(pid, (0, 0))[0] for pid in workers):
            return ended
        if control in ready or numbers - {signal.SIGCHLD}:
            return ended


def decisive_rank(workers: List[int], ended: Dict[int, Ended]) -> int:
    """The rank that the others were ended for. Of several at once one that a signal killed, SIGKILL first, then one that
    exited without a word; else 0.

    Whoever ends so takes the others' connections with it, and they fail or abort.
    """
    codes = {rank: ended[pid][0] for rank, pid in enumerate(workers) if pid in ended and ended[pid][0]}
    return min(codes, key=lambda rank: _consequence(codes[rank]), default=0)


def _consequence(status: int) -> Tuple[bool, bool, bool]:
    """Sorts ends that may have come of another rank's behind those that cannot."""
    killed = os.WIFSIGNALED(status)
    told = not killed and os.WEXITSTATUS(status) == TOLD_FAILURE
    return os.WTERMSIG(status) != signal.SIGKILL, not killed, told


def _reap() -> Dict[int, Ended]:
    """Every child that has ended since the last time."""
    ended: Dict[int, Ended] = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = (status, usage.ru_maxrss)


def _end_all(workers: List[int], ended: Dict[int, Ended]) -> Tuple[Set[int], Set[int]]:
    """Kill and reap until nothing is left or END_S are over; what is left, and all there was. Adds to `ended`."""
    start = time.monotonic()
    seen = set(workers)
    while True:
        found = _descendants()
        seen |= found
        spared = set(filter(_tracks_resources, found)) if time.monotonic() < start + TRACKER_S else set()
        for pid in [*found - spared, *([] if spared else [-worker for worker in workers])]:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        time.sleep(0.002)
        ended.update(_reap())
        left = _descendants()
        if (all(pid in ended for pid in workers) and not left) or time.monotonic() > start + END_S:
            return left, seen


def _tracks_resources(pid: int) -> bool:
    """Whether a process is Python's resource tracker, which ends by itself when all that it tracks for are gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.resource_tracker" in file.read()
    except OSError:
        return False


def _remove_segments(pids: Set[int], since_s: float) -> None:
    """Remove what these processes left in shared memory under their pid, as Paddle's loaders do: paddle_PID_..."""
    try:
        names = os.listdir(SHARED_MEMORY)
    except OSError:
        return
    for name in names:
        number = re.match(r"[a-z]+_(\d+)_", name)
        if number and int(number[1]) in pids:
            _remove_own(os.path.join(SHARED_MEMORY, name), since_s)


def _remove_tree(folder: str) -> None:
    """As shutil.rmtree, whose import takes longer than this process takes to start."""
    for place, folders, files in os.walk(folder, topdown=False):
        for name, remove in [*((name, os.unlink) for name in files), *((name, os.rmdir) for name in folders)]:
            path = os.path.join(place, name)
            try:
                os.unlink(path) if os.path.islink(path) else remove(path)
            except OSError:  # the parent was faster
                pass
    try:
        os.rmdir(folder)
    except OSError:
        pass


def _remove_own(path: str, since_s: float) -> None:
    try:
        status = os.stat(path, follow_symlinks=False)
        if status.st_uid == os.getuid() and status.st_mtime >= since_s:
            os.unlink(path)
    except OSError:  # somebody else was faster
        pass


def _descendants() -> Set[int]:
    """Pids of all that descends from this process, zombies included; none away from Linux, where there is no /proc."""
    try:
        parents = dict(filter(None, map(_parent_of, filter(str.isdecimal, os.listdir("/proc")))))
    except OSError:
        return set()
    found: Set[int] = set()
    fresh = {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def _parent_of(pid: str) -> Optional[Tuple[int, int]]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The name, in brackets, may itself hold brackets and blanks; see proc_pid_stat(5).
    return int(pid), int(stat[stat.rindex(b")") + 2 :].split(None, 2)[1])


def _tell(status: int, line: str) -> None:
    try:
        os.write(status, line.encode() + b"\n")
    except BrokenPipeError:  # the parent is gone
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
