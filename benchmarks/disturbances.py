"""Is a program beside a real framework's runs told, with its share, and is the figure that stands the quiet one?

python benchmarks/disturbances.py --save benchmarks/results/disturbances.json

A program that computes all the time and holds 2 GiB runs beside PyTorch's runs: beside none, beside each that is no
repeat, beside one of five, and beside none again. Its share of a core is what the kernel says it used during each epoch,
its share of the memory what it holds. Runs that were disturbed are repeated once.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import psutil

from framework_compare import compare
from framework_compare.records import Cell
from framework_compare.samplers import host
from framework_compare.store.study_file import Store
from framework_compare.study.progress import PlainWatcher

HELD = 2 << 30
LOOP = f"""
import mmap
held = mmap.mmap(-1, {HELD})
for place in range(0, {HELD}, 4096):
    held[place] = 1
print("held", flush=True)
while True:
    pass
"""


class Beside:
    """The program, stopped until `wake()`, and the nanoseconds of CPU time that it had used at each moment."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "held\n"
        self.sleep()
        self._log: List[Any] = []
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def sleep(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _watch(self) -> None:
        path = Path(f"/proc/{self.process.pid}/schedstat")
        while not self._ended.wait(0.05):
            self._log.append((time.monotonic_ns(), int(path.read_text().split()[0])))

    def share(self, start_ns: int, end_ns: int) -> float:
        """Of one core, from CLOCK_MONOTONIC start_ns to end_ns."""
        times, used = np.array(self._log, dtype=np.int64).T
        before, after = np.interp([0, end_ns - start_ns], times - start_ns, used - used[0])
        return float((after - before) / (end_ns - start_ns))

    def end(self) -> None:
        self._ended.set()
        self.process.kill()
        self.process.wait()


class Wakes(PlainWatcher):
    """Lets the program run beside the runs whose number is in `beside`."""

    def __init__(self, program: Beside, beside: Callable[[int], bool]) -> None:
        super().__init__()
        self._program, self._beside, self._begun = program, beside, 0

    def begin(self, cell: Cell, number: int, total: int) -> None:
        self._begun += 1
        (self._program.wake if self._beside(self._begun) else self._program.sleep)()
        super().begin(cell, number, total)


@contextlib.contextmanager
def program() -> Iterator[Beside]:
    made = Beside()
    try:
        yield made
    finally:
        made.end()


def measure(folder: Path, epochs: int, limit: int, beside: Callable[[int], bool], held: bool) -> Dict[str, Any]:
    """A study of five runs of one cell; `held`: the program is there, else nothing of it is."""
    with contextlib.ExitStack() as stack:
        watcher: Any = PlainWatcher()
        if held:
            other = stack.enter_context(program())
            watcher = Wakes(other, beside)
        result = compare(
            "torch", "mobilenet_v2", dataset="fire-smoke-tiny", limit=limit, batch_size=4, image_size=64, epochs=epochs,
            repeats=5, pipeline="memory", threads=2, loader_workers=0, verify="off", out=folder, watcher=watcher,
        )  # fmt: skip
        row = result.frame.iloc[0]
        points = []
        if held:
            with Store.open(folder) as store:
                _, rows = store.select("SELECT start_ns, end_ns, disturbed_share, disturbed FROM epoch ORDER BY rowid")
            points = [100 * abs(told - other.share(start, end)) for start, end, told, marked in rows if marked]
        ram = result.samples.machine_ram_percent
    return {
        "runs": int(row.runs),
        "runs_set_aside": int(row.runs_set_aside),
        "epoch_s_median": float(row.epoch_s_median),
        "epochs_marked": int((result.epochs.disturbed == 1).sum()),
        "points_off_median": float(np.median(points)) if points else None,
        "points_off_most": max(points, default=None),
        "machine_ram_percent_median": float(ram.median()),
        "warnings": row.warnings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--limit", type=int, default=160, help="images per epoch")
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    cases: Dict[str, Any] = {
        "none": (lambda run: False, False),
        "each first try": (lambda run: run <= 5, True),
        "one of five": (lambda run: run == 3, True),
        "none again": (lambda run: False, False),
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: measure(Path(folder) / name.replace(" ", "-"), asked.epochs, asked.limit, beside, held)
            for name, (beside, held) in cases.items()
        }
    quiet = float(np.mean([found["none"]["epoch_s_median"], found["none again"]["epoch_s_median"]]))
    base = float(np.mean([found[name]["machine_ram_percent_median"] for name in ("none", "none again")]))
    for one in found.values():
        one["over_quiet"] = one["epoch_s_median"] / quiet
        one["ram_points_over_quiet"] = one["machine_ram_percent_median"] - base
    document = {
        "command": f"python benchmarks/disturbances.py --epochs {asked.epochs} --limit {asked.limit}",
        "date": datetime.date.today().isoformat(),
        "machine": host.describe(),
        "program_holds_percent": 100 * HELD / psutil.virtual_memory().total,
        "cases": found,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if asked.save:
        asked.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
