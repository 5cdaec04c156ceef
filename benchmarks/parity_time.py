"""How long the whole parity ladder takes, climbed and looked up, with its table.

python benchmarks/parity_time.py --save benchmarks/results/parity.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

from framework_compare.parity.verify import verify
from framework_compare.samplers.host import describe

FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle"]
MODELS = ["alexnet", "mobilenet_v2", "resnet50", "resnet50_v1_5", "vgg16"]


def climb(frameworks: List[str], models: List[str]) -> Dict[str, Any]:
    """Seconds and verdicts of every framework and model, whatever is cached."""
    start = time.perf_counter()
    found = verify(frameworks, models, fresh=True, say=lambda message: print(message, file=sys.stderr, flush=True))
    return {"seconds": time.perf_counter() - start, "verdicts": [dataclasses.asdict(one) for one in found]}


def look_up(frameworks: List[str], models: List[str]) -> float:
    """Seconds of the whole command when every verdict is cached, start of Python included."""
    lists = ["--frameworks", ",".join(frameworks), "--models", ",".join(models)]
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "framework_compare.cli.root", "verify", *lists],
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    names = given.frameworks.split(","), given.models.split(",")
    climbed = climb(*names)
    cached_s = look_up(*names)
    result = {
        "machine": describe(),
        "climbed_s": round(climbed["seconds"], 1),
        "cached_s": round(cached_s, 2),
        "verdicts": climbed["verdicts"],
    }
    print(f"climbed in {result['climbed_s']} s, looked up in {result['cached_s']} s")
    for one in climbed["verdicts"]:
        print(one["framework"], one["model"], one["status"])
    if given.save:
        given.save.write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
