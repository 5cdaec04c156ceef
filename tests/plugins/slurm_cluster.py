"""A real Slurm on this host for tests: any number of nodes, no accounting, no systemd; everything in one folder.

Debian's slurmd takes a node's name (-N), so one host is several nodes, each exclusive to one job.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List, Optional

import psutil
import wheels
from processes import wait_for

from framework_compare.study.executors import PART

INSTALL = "apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
# cred_expire bounds how soon a requeued job may start again: 2 minutes by default, 5 s at least.
CONFIGURATION = """
ClusterName=local
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthInfo=socket={place}/munge,cred_expire=5
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/%n
SlurmctldPidFile={place}/ctl.pid
SlurmdPidFile={place}/%n.pid
SlurmctldLogFile={place}/ctl.log
SlurmdLogFile={place}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
MinJobAge=3600
KillWait=5
SlurmdTimeout=5
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port={first}-{last} CPUs=1 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES OverSubscribe=EXCLUSIVE PriorityTier=1
PartitionName=high Nodes=ALL OverSubscribe=EXCLUSIVE PriorityTier=9
"""


def lacking() -> Optional[str]:
    """Return why no Slurm can be started here, and what to do; None where one can."""
    absent = [name for name in PROGRAMS if _program(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed; install with: {INSTALL}"
    if os.getuid() != 0:
        return "slurmd starts jobs as root only; run these tests as root, such as in a container"
    return None


def _program(name: str) -> Optional[str]:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Cluster:
    """Started in an empty folder of a short path; `environment` is what its users need."""

    def __init__(self, place: Path, nodes: int = 2) -> None:
        self.place, self.nodes = place, [f"n{number}" for number in range(1, nodes + 1)]
        port = _free_ports(nodes + 1)
        place.chmod(0o755)
        for name in ("state", *self.nodes):
            (place / name).mkdir()
        ports = {"port": port, "first": port + 1, "last": port + nodes}
        (place / "slurm.conf").write_text(CONFIGURATION.format(place=place, nodes=nodes, **ports))
        (place / "key").write_bytes(os.urandom(1024))
        (place / "key").chmod(0o400)
        self.environment = {"SLURM_CONF": str(place / "slurm.conf")}
        files = {name: place / f"munge.{name}" for name in ("pid-file", "log-file", "seed-file")}
        options = [f"--{name}={path}" for name, path in files.items()]
        self._run("munged", "--force", f"--key-file={place}/key", f"--socket={place}/munge", *options)
        self._run("slurmctld", "-i")
        for node in self.nodes:
            self.start_node(node)
        assert self.idle(), self.ask("sinfo", "-N") + (place / "ctl.log").read_text()[-2000:]

    def _run(self, program: str, *arguments: str) -> None:
        command = [_program(program), *arguments]
        subprocess.run(command, check=True, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL)

    def start_node(self, node: str) -> None:
        self._run("slurmd", "-N", node)

    def kill_node(self, node: str) -> None:
        """Its daemon, the job that it runs and all that this started, by SIGKILL: as a power cut."""
        doomed = [self._daemon(node), *self.steps(node)]
        doomed += [child for process in doomed for child in process.children(recursive=True)]
        for process in doomed:
            _kill(process)

    def steps(self, node: str) -> List[psutil.Process]:
        """The processes in which slurmd watches over the jobs of a node."""
        named = [
            process for process in psutil.process_iter(["name", "environ"]) if "slurmstepd" in (process.name() or "")
        ]
        return [process for process in named if f"-N {node}" in " ".join(process.cmdline()) or self._of(process, node)]

    def _of(self, process: psutil.Process, node: str) -> bool:
        children = process.children(recursive=True)
        return any(_variable(child, "SLURMD_NODENAME") == node and self.owns(child) for child in children)

    def owns(self, process: psutil.Process) -> bool:
        """Return whether a job of this Slurm started the process: another on this host has nodes of the same names."""
        return _variable(process, "SLURM_CONF") == self.environment["SLURM_CONF"]

    def _daemon(self, node: str) -> psutil.Process:
        return psutil.Process(int((self.place / f"{node}.pid").read_text()))

    def ask(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout

    def states(self) -> List[str]:
        return self.ask("sinfo", "-N", "-h", "-o", "%T").split()

    def idle(self, seconds: float = 30.0) -> bool:
        return wait_for(lambda: set(self.states()) == {"idle"}, seconds)

    def jobs(self, state: str = "RUNNING") -> List[str]:
        """Ids of jobs in a state, elements of arrays one by one."""
        return self.ask("squeue", "-h", "-r", "-t", state, "-o", "%i").split()

    def stop(self) -> None:
        self.ask("scancel", "--full", "-u", "root")
        wait_for(lambda: not self.ask("squeue", "-h"), 15)
        for file in (*self.place.glob("n*.pid"), self.place / "ctl.pid", self.place / "munge.pid-file"):
            try:
                _end(psutil.Process(int(file.read_text())))
            except (OSError, ValueError, psutil.Error):
                pass


def _end(process: psutil.Process) -> None:
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: not runs(process), 10)


def runs(process: psutil.Process) -> bool:
    """Return whether a process exists and is no zombie, which a container without an init keeps."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _variable(process: psutil.Process, name: str) -> Optional[str]:
    try:
        return process.environ().get(name)
    except psutil.Error:
        return None


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        pass


def install_plugin(place: Path, source: str) -> Path:
    """A plug-in of framework_compare in a folder for PYTHONPATH, as an installed one is; its source has `register`."""
    return wheels.install(place, "slurm_plugin", source, "framework_compare.plugins", "slurm = slurm_plugin:register")


def start_command(cluster: Cluster, plugin: Path, place: Path) -> Callable[..., Any]:
    """Starts `framework-compare` as a user of the cluster does, with cache and nodes' disk in `place`."""
    (place / "disk").mkdir()
    environment = {
        **os.environ,
        **cluster.environment,
        "PYTHONPATH": f"{plugin}:{Path(__file__).parent}",
        "FRAMEWORK_COMPARE_CACHE": str(place / "cache"),
        "SLURM_TMPDIR": str(place / "disk"),
        # of what runs here, so that timings of others on this host are not waited for; a job gets its node's own
        "SLURMD_NODENAME": f"here-{os.getpid()}",
    }

    def start(*arguments: Any) -> "subprocess.Popen[str]":
        line = [sys.executable, "-c", PART, *map(str, arguments)]
        return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


def run(command: Callable[..., Any], *arguments: Any, code: int = 0) -> str:
    """Return what a command that `start_command` made prints until it ends."""
    process = command(*arguments)
    text: str = process.communicate(timeout=570)[0]
    assert process.returncode == code, text
    return text


def trains(place: Path) -> bool:
    """Return whether a worker on some node has trained an epoch."""
    logs = [path.read_text() for path in (place / "disk").rglob("runs/*/events.jsonl")]
    return any('"event": "epoch"' in text for text in logs)


def _free_ports(count: int) -> int:
    """The first of so many neighbouring ports that nobody listens on."""
    for first in range(21000 + os.getpid() % 4000, 32000, count):
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise OSError("no free ports")


def is_free(port: int) -> bool:
    """Return whether nothing listens on a port of this machine."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
