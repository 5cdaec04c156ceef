"""The process between the parent and a worker: nothing that descends from the worker outlives it.

    python -I -S supervisor.py STATUS CONTROL EVENTS LOG CGROUP TEMPORARY RANKS PLACE COMMAND...

STATUS, CONTROL and EVENTS are descriptors, LOG a file, CGROUP the worker's memory group or "",
TEMPORARY a folder to remove in the end or "". RANKS is "" for one worker, or "N HOST:PORT FIRST COUNT NODE...": of N that
meet at that address, as the variables of torchrun say, COUNT run here, from number FIRST on, and as many on each NODE.
The first that does not end well ends the others. On a NODE srun starts this file again, in the folder PLACE, which all
nodes see: CONTROL is its stdin, and STATUS and EVENTS are its stdout, which come back by srun. Orphans of the worker,
daemons in sessions of their own included, become children of this process (PR_SET_CHILD_SUBREAPER), and are killed
when the worker ends or when CONTROL closes, which it does however the parent dies. Two lines go to STATUS:
"started NANOSECONDS PID..." and "ended WAIT_STATUS MAX_RSS_KIB LEFT RANK". It sleeps in between. Standard library only.

Segments of shared memory outlive their processes, and a loader that is killed leaves gigabytes. Python's resource
tracker knows those of `multiprocessing` and is given a moment to remove them; others are found by the pid in their name.
"""

from __future__ import annotations

import ctypes
import fcntl
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
# One task on one node of the job that we are in, which gets all that the job has there.
SRUN = ("srun", "--quiet", "--nodes=1", "--ntasks=1", "--overlap", "--export=ALL", "--cpu-bind=none", "--mpi=none")
NODE_END_S = 5.0  # until another node's ranks have ended
# How long the word of other nodes is waited for when a rank has failed, perhaps as its connection to one there is gone.
GRACE_S = 3.0
LOST = -2  # in place of a wait status: of ranks on another node that has not said how they ended

Ended = Tuple[int, int]  # wait status, largest RSS in KiB


def main(arguments: List[str]) -> int:
    status, control, events = map(int, arguments[:3])
    log, group, temporary, ranks, place, command = *arguments[3:8], arguments[8:]
    parent = os.getppid()
    if status == events:
        events = os.dup(events)
        _make_scratch(temporary)
    for descriptor in (status, control, events):
        os.set_inheritable(descriptor, descriptor == events)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken = _wake_on_signals()
    began_s = time.time()
    others = [OtherNode(*given, temporary, place, command) for given in _other_nodes(ranks)]
    workers = []
    for variables in _environments(ranks):
        workers.append(os.fork())
        if workers[-1] == 0:
            os.environ.update(variables)
            _become_worker([*command, str(events)], log, group)
    if not others:
        os.close(events)
    _write(status, f"started {time.monotonic_ns()} {' '.join(map(str, workers))}\n".encode())
    ended = _wait(workers, others, events, control, woken)
    pids = [*workers, *(node.pid for node in others)]
    decisive = decisive_rank(pids, ended)
    _end_others(others, events, workers, ended)
    left, gone = _end_all(workers, ended)
    _remove_segments(gone - left, began_s)
    if temporary:
        _remove_tree(temporary)
    if place and os.getppid() != parent:  # which else takes what ranks have written there
        _remove_tree(place)
    rank = others[decisive - len(workers)].rank if decisive >= len(workers) else _first(ranks) + decisive
    code, max_rss = ended.get(pids[decisive], (-1, 0))
    lost = next((node for node in others if node.told is None), None)
    if lost and (code < 0 or _consequence(code)[0]):  # its loss took the others along
        code, max_rss, rank = LOST, 0, lost.rank
    _write(status, f"ended {code} {max_rss} {len(left) + sum(node.left for node in others)} {rank}\n".encode())
    return 0


def _make_scratch(folder: str) -> None:
    """Another node's temporary folder, locked as `scratch` does: once this process is gone, it may be removed there."""
    if folder:
        os.makedirs(folder, exist_ok=True)
        fcntl.flock(os.open(os.path.join(folder, ".lock"), os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
        os.environ["TMPDIR"] = folder


def _environments(ranks: str) -> List[Dict[str, str]]:
    """Return what each worker's environment has beside this process's, under torchrun's names."""
    if not ranks:
        return [{}]
    world, address, first, count = ranks.split()[:4]
    host, _, port = address.rpartition(":")
    common = {"WORLD_SIZE": world, "MASTER_ADDR": host, "MASTER_PORT": port}
    return [{**common, "RANK": str(int(first) + local), "LOCAL_RANK": str(local)} for local in range(int(count))]


def _first(ranks: str) -> int:
    """The number of the first rank here."""
    return int(ranks.split()[2]) if ranks else 0


def _other_nodes(ranks: str) -> List[Tuple[str, str]]:
    """The name of each other node, and RANKS as the process there gets it."""
    world, address, _, count, *names = ranks.split() if ranks else ["0"] * 4
    return [(name, f"{world} {address} {place * int(count)} {count}") for place, name in enumerate(names, start=1)]


class OtherNode:
    """The ranks of another node, under a process of this file there, which srun starts and whose stdin and stdout it is.

    pid: srun's; rank: the first there, or the one that ended the others; left: processes there that could not be killed;
    silent, gone: whether nothing more will come, and srun has ended.
    """

    def __init__(self, name: str, ranks: str, temporary: str, place: str, command: List[str]) -> None:
        self.rank = _first(ranks)
        self.left, self.silent, self.gone = 0, False, False
        self.told: Optional[Ended] = None
        self._rest = b""
        control, self._control = os.pipe()
        self.output, output = os.pipe()
        os.set_blocking(self.output, False)
        job = os.path.join(place, os.path.basename(command[-1]))
        again = [sys.executable, "-I", "-S", os.path.abspath(__file__), "1", "0", "1", "", ""]
        again += [f"{temporary}-{self.rank}" if temporary else "", ranks, "", *command[:-1], job]
        self.pid = os.fork()
        if self.pid == 0:
            _become(["/usr/bin/env", *SRUN, f"--nodelist={name}", f"--chdir={place}", *again], control, output, 2)
        os.close(control)
        os.close(output)

    def relay(self, events: int) -> None:
        """Hand on what the ranks there have sent, and keep how they ended."""
        while True:
            try:
                chunk = os.read(self.output, 1 << 16)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                words = line.split()
                if words[:1] == [b"ended"]:
                    code, max_rss, self.left, self.rank = map(int, words[1:])
                    self.told = (code if code >= 0 else LOST, max_rss)  # ended by somebody, if not by `stop`
                elif line.startswith(b"{"):
                    _write(events, line + b"\n")
            if not chunk:
                self.silent = True
                return

    def note(self, reaped: Dict[int, Ended], ended: Dict[int, Ended]) -> None:
        """Put the end of the node's ranks into `ended`: as it was told, or LOST where srun has ended without that."""
        if self.pid in reaped:
            self.gone = True
            ended[self.pid] = self.told or (LOST, 0)
        elif self.told:
            ended[self.pid] = self.told

    def stop(self) -> None:
        if self._control >= 0:
            os.close(self._control)
            self._control = -1


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
        # What srun needs; a rank is to have the environment of any worker.
        for name in [name for name in os.environ if name.startswith("SLURM")]:
            del os.environ[name]
        _put("/proc/self/oom_score_adj", OOM_SCORE_ADJ)
        if group:
            _put(os.path.join(group, "cgroup.procs"), b"0")
        output = os.open(log, os.O_WRONLY | os.O_APPEND) if log else 2
        _become(command, os.open(os.devnull, os.O_RDONLY), output, output)
    finally:
        os._exit(127)


def _become(command: List[str], *streams: int) -> None:
    """Become a command, in a session of its own, with these descriptors as stdin, stdout and stderr."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        # Python ignores these two, which would outlive the exec.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
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


def _wait(workers: List[int], others: List[OtherNode], events: int, control: int, woken: int) -> Dict[int, Ended]:
    """Return how workers ended, once all have or one did not end well. The others have to be ended.

    So have all when the parent said so, is gone, or the system is stopping.
    """
    ended: Dict[int, Ended] = {}
    give_up = float("inf")
    pids = [*workers, *(node.pid for node in others)]
    while True:
        heard = [node.output for node in others if not node.silent]
        left_s = max(0.0, give_up - time.monotonic())
        ready, _, _ = select.select([control, woken, *heard], [], [], left_s if left_s < END_S else None)
        numbers = set(os.read(woken, 4096)) if woken in ready else set()
        _note(others, events, ended)
        bad = [status for status, _ in map(ended.get, pids, [(0, 0)] * len(pids)) if status]
        if all(pid in ended for pid in pids) or control in ready or numbers - {signal.SIGCHLD}:
            return ended
        if bad:
            heard_of_all = all(node.pid in ended for node in others)
            if heard_of_all or not all(_consequence(status)[0] for status in bad) or time.monotonic() >= give_up:
                return ended
            give_up = min(give_up, time.monotonic() + GRACE_S)


def _note(others: List[OtherNode], events: int, ended: Dict[int, Ended]) -> None:
    """Take in which processes have ended, and what other nodes have sent, to the last word of those that have."""
    reaped = _reap()
    for node in others:
        node.relay(events)
        node.note(reaped, ended)
    known = {node.pid for node in others}
    ended.update((pid, end) for pid, end in reaped.items() if pid not in known)


def _end_others(others: List[OtherNode], events: int, workers: List[int], ended: Dict[int, Ended]) -> None:
    """Have other nodes' ranks ended, and wait until they have; those here are ended before."""
    for node in others:
        node.stop()
    for pid in workers if others else ():
        if pid not in ended:
            _kill(-pid)
    give_up = time.monotonic() + NODE_END_S
    while not all(node.gone for node in others) and time.monotonic() < give_up:
        time.sleep(0.005)
        _note(others, events, ended)


def decisive_rank(workers: List[int], ended: Dict[int, Ended]) -> int:
    """The rank that the others were ended for. Of several at once one that a signal killed, SIGKILL first, then one that
    exited without a word; else 0.

    Whoever ends so takes the others' connections with it, and they fail or abort.
    """
    codes = {rank: ended[pid][0] for rank, pid in enumerate(workers) if pid in ended and ended[pid][0]}
    return min(codes, key=lambda rank: _consequence(codes[rank]), default=0)


def _consequence(status: int) -> Tuple[bool, bool, bool]:
    """Sorts ends that may have come of another rank's behind those that cannot."""
    if status < 0:
        return True, True, False
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
            _kill(pid)
        time.sleep(0.002)
        ended.update(_reap())
        left = _descendants()
        if (all(pid in ended for pid in workers) and not left) or time.monotonic() > start + END_S:
            return left, seen


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _tracks_resources(pid: int) -> bool:
    """Return whether a process is Python's resource tracker, which ends once all that it tracks for are gone."""
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
            path = os.path.join(SHARED_MEMORY, name)
            try:
                status = os.stat(path, follow_symlinks=False)
                if status.st_uid == os.getuid() and status.st_mtime >= since_s:
                    os.unlink(path)
            except OSError:  # somebody else was faster
                pass


def _remove_tree(folder: str) -> None:
    """Remove a folder as shutil.rmtree does, whose import takes longer than this process takes to start."""
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


def _write(descriptor: int, line: bytes) -> None:
    try:
        os.write(descriptor, line)
    except BrokenPipeError:  # the parent is gone
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
