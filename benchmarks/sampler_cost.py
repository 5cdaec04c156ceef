"""What the sampler costs the parent: CPU time at 10 Hz over a root with 40 threads and 3 children.

python benchmarks/sampler_cost.py --seconds 30 --save benchmarks/results/sampler_cost.json
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from typing import Any, Callable, Dict, List

import psutil

from framework_compare.samplers.disturbance import CoreCounter, SlowCounters
from framework_compare.samplers.host import describe
from framework_compare.samplers.machine_load import MachineSampler
from framework_compare.samplers.nvml import NvmlSampler, gpu_index
from framework_compare.samplers.process import ProcessTreeSampler
from framework_compare.samplers.recorder import MAX_SAMPLES, Recorder, SampleLog
from framework_compare.samplers.sampler import Watched
from framework_compare.samplers.samplers import COLUMNS
from framework_compare.samplers.sources import ProcfsProcess

TREE = """
import subprocess, sys, threading, time
for _ in range({threads} - 1):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
for _ in range({children}):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("ready", flush=True)
time.sleep(3600)
"""


def start_tree(threads: int, children: int) -> "subprocess.Popen[str]":
    code = TREE.format(threads=threads, children=children)
    root = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert root.stdout and root.stdout.readline() == "ready\n"
    time.sleep(1.0)  # the children are still importing
    return root


def end_tree(root: "subprocess.Popen[str]") -> None:
    for process in [*psutil.Process(root.pid).children(recursive=True), root]:
        process.kill()
    root.wait()


def process_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure_recorder(pid: int, *, device: str, hz: float, seconds: float) -> Dict[str, Any]:
    """CPU time of the sampling thread, and of this whole process, while it does nothing else."""
    with Recorder(pid, device=device, hz=hz) as recorder:
        time.sleep(1.0)  # what starting costs (NVML, first search of the tree) is paid once
        thread_s, process_s, wall_s, taken = recorder.cpu_s, process_cpu_s(), time.monotonic(), len(recorder.samples())
        time.sleep(seconds)
        thread_s, process_s = recorder.cpu_s - thread_s, process_cpu_s() - process_s
        wall_s = time.monotonic() - wall_s
        samples = recorder.samples()[taken:]
    gaps_s = [(b.t_ns - a.t_ns) / 1e9 for a, b in zip(samples, samples[1:])]
    return {
        "wall_s": round(wall_s, 3),
        "samples": len(samples),
        "thread_cpu_percent_of_one_core": round(100 * thread_s / wall_s, 4),
        "process_cpu_percent_of_one_core": round(100 * process_s / wall_s, 4),
        "cpu_us_per_sample": round(1e6 * thread_s / len(samples), 1),
        "gap_s_median": round(statistics.median(gaps_s), 5),
        "gap_s_max": round(max(gaps_s), 5),
        "tree_seen": {"processes": samples[-1].processes, "threads": samples[-1].threads},
    }


def time_us(call: Callable[[], Any], repeats: int) -> float:
    """Median CPU microseconds of one call."""
    taken: List[float] = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        call()
        taken.append((time.thread_time_ns() - start) / 1e3)
    return round(statistics.median(taken), 1)


def measure_parts(pid: int, device: str) -> Dict[str, float]:
    """Median CPU microseconds of each thing the sampler does, or could have done instead."""
    root = psutil.Process(pid)
    cores, slow = CoreCounter(), SlowCounters()
    parts = {"cores": time_us(cores.read, 200), "swap_and_heat": time_us(slow.read, 200)}
    cores.close()
    with ProcessTreeSampler(pid) as sampler:
        parts["machine"] = time_us(MachineSampler(Watched(sampler)).read, 200)
        parts["tree"] = time_us(sampler.read, 200)
        parts["pss"] = time_us(sampler.pss_bytes, 10)
    parts["find_children_psutil"] = time_us(lambda: root.children(recursive=True), 30)
    process = ProcfsProcess(pid)
    process.usage()
    parts["find_children_procfs_root"] = time_us(lambda: process.children(thorough=True), 100)
    process.close()
    if (index := gpu_index(device)) is not None:
        with NvmlSampler(index) as gpu:
            parts["gpu"] = time_us(gpu.read, 50)
    return parts


def measure_memory() -> Dict[str, float]:
    """Megabytes that a full log holds, and that it takes to hand its samples out."""
    tracemalloc.start()
    log = SampleLog()
    for number in range(MAX_SAMPLES):
        log.append(number, dict.fromkeys(COLUMNS, 1.0))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"samples": MAX_SAMPLES, "log_mb": round(held / 1e6, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=40)
    parser.add_argument("--children", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", help="write the JSON line there too")
    asked = parser.parse_args()
    root = start_tree(asked.threads, asked.children)
    try:
        figures = measure_recorder(root.pid, device=asked.device, hz=asked.hz, seconds=asked.seconds)
        parts_us = measure_parts(root.pid, asked.device)
    finally:
        end_tree(root)
    result = {
        "asked": {key: value for key, value in vars(asked).items() if key != "save"},
        "machine": describe(),
        "processes_on_machine": len(psutil.pids()),
        "load_average": psutil.getloadavg(),
        "versions": {"python": platform.python_version(), "psutil": psutil.__version__},
        "recorder": figures,
        "parts_cpu_us_median": parts_us,
        "memory": measure_memory(),
    }
    line = json.dumps(result)
    print(line)
    if asked.save:
        with open(asked.save, "w") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
