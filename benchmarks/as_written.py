"""Step time of models in PyTorch rebuilt from their layer graphs, over the same as their authors wrote them.

python benchmarks/as_written.py [--families ResNet,VGG] [--repeats 5] [--save FILE]

One classifier of each family of torchvision, at 64 pixels or the least size that it takes, batches of 8 from memory, one
thread. Runs of both take turns in randomised blocks, each in a process of its own; a ratio is that of paired blocks.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from pathlib import Path
from typing import Any, Dict

import numpy as np
from imported_parity import FAMILIES

from framework_compare import compare
from framework_compare.samplers import host

OUT = Path(__file__).parent / "results" / "as_written.json"


def ratio(model: str, size: int, repeats: int, steps: int) -> Dict[str, Any]:
    """Rebuilt over as written: the ratio with its interval, and both medians in seconds per epoch."""
    with tempfile.TemporaryDirectory() as folder:
        settings = dict(image_size=size, batch_size=8, limit=8 * steps, epochs=4, pipeline="memory", threads=1)
        study = compare("torch", f"torchvision:{model}", repeats=repeats, out=Path(folder) / "study", **settings)
        rows = study.frame.set_index("framework")
        (verdict,) = study.verdicts()
        turned = verdict.slower == "torch"
        low, high = (verdict.low, verdict.high) if turned else (1 / verdict.high, 1 / verdict.low)
        return {
            "model": model,
            "image_size": size,
            "rebuilt_s": rows.loc["torch", "epoch_s_median"],
            "written_s": rows.loc["torch-as-written", "epoch_s_median"],
            "ratio": verdict.ratio if turned else 1 / verdict.ratio,
            "low": low,
            "high": high,
            "version": rows.loc["torch", "framework_version"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES), help="others stay in the file as they are")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="in an epoch")
    parser.add_argument("--save", type=Path, default=OUT)
    arguments = parser.parse_args()
    found: Dict[str, Any] = {}
    if arguments.save.exists() and arguments.families != parser.get_default("families"):
        found = json.loads(arguments.save.read_text(encoding="utf-8"))["families"]
    for family in arguments.families.split(","):
        model, size = FAMILIES[family]
        found[family] = ratio(model, size, arguments.repeats, arguments.steps)
        one = found[family]
        print(f"{family:12} {one['ratio']:.3f} [{one['low']:.3f}, {one['high']:.3f}]", flush=True)
        document = {
            "date": datetime.date.today().isoformat(),
            "machine": host.describe(),
            "command": f"--repeats {arguments.repeats} --steps {arguments.steps}",
            "families": found,
            "median_ratio": float(np.median([one["ratio"] for one in found.values()])),
        }
        arguments.save.write_text(json.dumps(document, indent=1, default=float) + "\n", encoding="utf-8")
    print(f"median of {len(found)}: {document['median_ratio']:.3f}")


if __name__ == "__main__":
    main()
