"""Loss curves of five frameworks at the start of training, for every workload, against the same training in float64.

python benchmarks/workload_curves.py [WORKLOAD ...] [--data FOLDER]    # benchmarks/results/workload_curves.json
python benchmarks/workload_curves.py --table                           # the file as Markdown

With each workload's own optimizer, without dropout, on one thread; on generated data, or on the real ones of a FOLDER
as CONTRIBUTING.md lists it. Large networks have smaller batches and images, as float64 in numpy takes long.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping

from real_workloads import FRAMEWORKS, TRAININGS

from framework_compare.parity.training.curves import Curves, train_workload_curves

OUT = Path(__file__).parent / "results" / "workload_curves.json"
STEPS = 10
SMALLER: Dict[str, Mapping[str, Any]] = {
    "cifar_resnet50": {"batch_size": 8},
    "tiny_cnn": {"batch_size": 8},
    "guava_cnn": {"batch_size": 8, "image_size": 64},
    "vgg16_frozen": {"batch_size": 2, "image_size": 32},
}


def told(curves: Curves) -> Dict[str, Any]:
    """What the file keeps: losses, the yardstick, and the largest distances in units of it."""
    return {
        "setting": curves.setting,
        "exact": curves.exact,
        "yardstick": curves.yardstick,
        "losses": curves.losses,
        "off": {name: curves.ratio(curves.off(name)) for name in curves.losses},
        "apart": curves.ratio(curves.apart()) if curves.losses else None,
        "hold": curves.hold,
        "failures": {**curves.failures, **curves.unsupported},
    }


def table(found: Mapping[str, Any]) -> List[str]:
    """One row per workload: each framework's largest distance from float64, and the two furthest apart."""
    lines = [f"| workload | data | yardstick at the last step | {' | '.join(FRAMEWORKS)} | furthest apart |"]
    lines.append(f"|{'---|' * (4 + len(FRAMEWORKS))}")
    for workload, one in found.items():
        off = [f"{one['off'][name]:.2f}" if name in one["off"] else "failed" for name in FRAMEWORKS]
        apart = "-" if one["apart"] is None else f"{one['apart']:.2f}"
        what = [f"`{workload}`", one["setting"]["dataset"], f"{one['yardstick'][-1]:.1e}"]
        lines.append(f"| {' | '.join([*what, *off, apart])} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*TRAININGS, []])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    found: Dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for workload in [] if options.table else options.workloads or TRAININGS:
        real = {"dataset": options.data / TRAININGS[workload].data} if options.data else {}
        settings = {"steps": STEPS, "threads": 1, "say": print, **real, **SMALLER.get(workload, {})}
        curves = train_workload_curves(options.frameworks.split(","), workload, **settings)
        found[workload] = told(curves)
        OUT.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
