"""Extrapolated epochs beside whole ones, run straight afterwards: how far an estimate under a budget is off.

python benchmarks/estimates.py --save benchmarks/results/estimates.json [--models alexnet,vgg16]
python benchmarks/estimates.py --table          # the file as Markdown

Each cell is sampled under a budget of two minutes, then two runs train the whole epoch. Batch 1, data set
fire-smoke-small with as many images as make an epoch of about a minute.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, Dict, List, Optional

from framework_compare import compare
from framework_compare.launch.disturbances import THRESHOLD

OUT = Path(__file__).parent / "results" / "estimates.json"
CELLS = (
    ("torch", "mobilenet_v2", 500),
    ("tensorflow", "mobilenet_v2", 500),
    ("mxnet", "mobilenet_v2", 500),
    ("paddle", "mobilenet_v2", 300),
    ("torch", "alexnet", 250),
    ("torch", "vgg16", 60),
)


def measured(framework: str, model: str, images: int) -> Dict[str, Any]:
    """Both figures of a cell; steps: of the sampled epochs."""
    settings: Dict[str, Any] = {"dataset": "fire-smoke-small", "limit": images, "batch_size": 1, "verify": "off"}
    sampled = compare(framework, model, "cpu", epochs=1, budget="2min", precision_target=0.02, **settings)
    whole = compare(framework, model, "cpu", epochs=1, repeats=2, **settings)
    ours, theirs = sampled.frame.iloc[0], whole.frame.iloc[0]
    return {
        "framework": framework,
        "version": str(theirs.framework_version),
        "model": model,
        "images": images,
        "steps": [int(count) for count in sampled.epochs.images],
        "estimate_s": float(ours.epoch_estimate_s),
        "low_s": _end(ours.epoch_estimate_s_low),
        "high_s": _end(ours.epoch_estimate_s_high),
        "whole_s": [float(seconds) for seconds in whole.epochs.epoch_s],
        "disturbed_share": [float(share) for share in whole.epochs.disturbed_share],
    }


def _end(value: float) -> Optional[float]:
    """An end of an interval; None where one run has none."""
    return None if math.isnan(value) else float(value)


def _interval(cell: Dict[str, Any]) -> str:
    return "" if cell["low_s"] is None else f" [{cell['low_s']:.1f}, {cell['high_s']:.1f}]"


def table(cells: List[Dict[str, Any]]) -> List[str]:
    lines = ["| framework | model | images | sampled | estimate, s | whole epochs, s | estimate / whole |"]
    lines.append("|---|---|---|---|---|---|---|")
    for cell in cells:
        quiet = [s for s, share in zip(cell["whole_s"], cell["disturbed_share"]) if share <= THRESHOLD]
        kept = quiet or cell["whole_s"]  # as figures do: disturbed epochs count where there are no others
        mean = sum(kept) / len(kept)
        lines.append(
            f"| {cell['framework']} | {cell['model']} | {cell['images']} | {'; '.join(map(str, cell['steps']))}"
            f" | {cell['estimate_s']:.1f}{_interval(cell)}"
            f" | {'; '.join(f'{seconds:.1f}' for seconds in cell['whole_s'])} | {cell['estimate_s'] / mean:.3f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--models", help="comma-separated: these only; other cells of the file stay")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n".join(table(json.loads(OUT.read_text()))))
        return
    wanted = arguments.models.split(",") if arguments.models else [model for _, model, _ in CELLS]
    there = json.loads(arguments.save.read_text()) if arguments.save and arguments.save.exists() else []
    cells: List[Dict[str, Any]] = [cell for cell in there if cell["model"] not in wanted]
    for cell in CELLS:
        if cell[1] not in wanted:
            continue
        cells.append(measured(*cell))
        print(table(cells)[-1], flush=True)
        if arguments.save:
            arguments.save.write_text(json.dumps(cells, indent=1) + "\n")


if __name__ == "__main__":
    main()
