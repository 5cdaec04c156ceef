"""Step time of two checkouts of this project, interleaved: what a change of the layout or of an adapter costs.

Each side is the runner's own epoch loop over a held batch (`step_time_child.py` of that checkout), in a process of its
own; they take turns, and the figure is the median of the ratios of their rounds, with its 95 % interval.

Usage: python benchmarks/commits.py OLD [NEW] [--frameworks torch,mxnet] [--models alexnet] [--save FILE]
       where OLD and NEW are folders with checkouts, each with the package installed in its `.venv` (pip install -e .);
       NEW is this one by default, with the interpreter that runs this file.
"""

import argparse
import contextlib
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from step_time import median_interval

from framework_compare.environments import managed
from framework_compare.launch.staging import worker_environment
from framework_compare.samplers import host

HERE = Path(__file__).parent
# Run in each checkout with its own modules: writes the job and stages the worker side; prints where both are.
PREPARE = """
import dataclasses
import sys
from pathlib import Path
sys.path.insert(0, "benchmarks")
import step_time
framework, model, batch, size, folder = sys.argv[1:]
class Options:
    frameworks, models, batch_size, execution, precision, device = framework, model, batch, "default", "fp32", "cpu"
    image_size = int(size)
((_, _, config),) = step_time.cells(Options)
config = dataclasses.replace(config, image_size=int(size))
spec = step_time.registry.framework(framework)
print("PREPARED", step_time.write_job(spec, model, config, Path(folder)), step_time.staging.stage(spec))
"""


class Side:
    """The step of one checkout, in a process that runs steps when asked."""

    def __init__(self, checkout, framework, model, options, folder):
        folder.mkdir()
        own = checkout / ".venv" / "bin" / "python"
        python = own if own.exists() else sys.executable
        asked = map(str, (framework, model, options.batch_size, options.image_size, folder))
        text = subprocess.check_output([python, "-c", PREPARE, *asked], cwd=checkout, text=True)
        job, source = next(line for line in text.splitlines() if line.startswith("PREPARED")).split()[1:]
        child = checkout / "benchmarks" / "step_time_child.py"
        self._process = subprocess.Popen(
            [managed.ensure(framework).python, child, source, job, checkout / "benchmarks" / "hand_written"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=worker_environment(managed=True, temporary=folder),
        )

    def run(self, steps):
        """Seconds a step."""
        print("ours", steps, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line[0].isdigit():
                return float(line)
        raise RuntimeError(f"the child ended with {self._process.wait()}")

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)


def measure(old, new, framework, model, options):
    ratios, times = [], {"old": [], "new": []}
    for pair in range(options.pairs):
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            roles = [("old", old), ("new", new)][:: 1 if pair % 2 == 0 else -1]
            sides = {}
            for role, checkout in roles:
                side = Side(checkout, framework, model, options, folder / role)
                sides[role] = stack.enter_context(contextlib.closing(side))
                sides[role].run(2)
            for turn in range(options.rounds):
                order = ("old", "new") if turn % 2 == 0 else ("new", "old")
                taken = {role: sides[role].run(options.steps) for role in order}
                ratios.append(taken["new"] / taken["old"])
                for role, seconds in taken.items():
                    times[role].append(seconds)
    return {
        "framework": framework,
        "model": model,
        "batch_size": options.batch_size,
        "image_size": options.image_size,
        "old_step_s": statistics.median(times["old"]),
        "new_step_s": statistics.median(times["new"]),
        "ratio_median": statistics.median(ratios),
        "interval": median_interval(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE.parent)
    parser.add_argument("--frameworks", default="torch,tensorflow,mxnet,paddle,jax")
    parser.add_argument("--models", default="alexnet,mobilenet_v2")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10, help="of one turn")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    old, new = options.old.resolve(), options.new.resolve()
    rows = []
    for framework in options.frameworks.split(","):
        for model in options.models.split(","):
            rows.append(measure(old, new, framework, model, options))
            row = rows[-1]
            low, high = row["interval"]
            print(f"{framework:12} {model:14} new/old {row['ratio_median']:.4f} [{low:.4f}, {high:.4f}]", flush=True)
            if options.save:  # after each row: what is measured stays when the rest is cut short
                save(options.save, rows, {"old": commit(old), "new": commit(new)})


def save(path, rows, commits):
    document = {
        "date": datetime.date.today().isoformat(),
        "commits": commits,
        "machine": host.describe(),
        "versions": {name: managed.find(name).version for name in {row["framework"] for row in rows}},
        "rows": rows,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def commit(checkout):
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()
