"""Estimated epochs beside whole ones: how far an estimate from a sample in turns is off.

    python benchmarks/estimates.py --model mobilenet_v2 --limit 600 --save FILE
    python benchmarks/estimates.py --model alexnet --batch-size 1 --python torch=PATH --python jax=PATH --save FILE
    python benchmarks/estimates.py --table FILE,FILE

Studies that sample, in which all frameworks take turns, and studies in which each trains a whole epoch alone run one after
the other, `--pairs` of each; the first of a pair is drawn. The machine's drift between the two is in their ratio.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

from framework_compare import compare
from framework_compare.samplers import host


def measured(names, folder, options, sample):
    return compare(
        names, options.model, "cpu", out=folder, dataset=options.data, limit=options.limit, epochs=1, repeats=1,
        schedule="interleaved" if sample else "sequential", sample=sample, batch_size=options.batch_size,
        pipeline=options.pipeline, image_size=options.image_size, threads=options.threads, loader_workers=1, verify="off",
        retries_when_disturbed=0, python=dict(one.split("=", 1) for one in options.python),
    )  # fmt: skip


def seconds(study):
    """Of an epoch by framework, as the study reports them."""
    ok = study.frame[study.frame.status == "ok"]
    for row in study.frame[study.frame.status != "ok"].itertuples():
        print(row.framework, row.status, row.reason, flush=True)
    return {row.framework: study.block_times[row.Index][1] for row in ok.itertuples() if row.Index in study.block_times}


def summary(pairs):
    """Estimate over whole epoch by framework: the geometric mean over pairs, and each."""
    found = {}
    for name in pairs[0]["whole"]:
        both = [(pair["estimate"][name], pair["whole"][name]) for pair in pairs if name in pair["estimate"]]
        ratios = [estimate / whole for estimate, whole in both]
        found[name] = {
            "ratio": round(float(np.exp(np.log(ratios).mean())), 4),
            "each": [round(ratio, 4) for ratio in ratios],
            "whole_s": [round(whole, 2) for _, whole in both],
        }
    return found


def table(files):
    lines = ["| model | framework | whole epochs, s | estimate / whole | each |", "|---|---|---|---|---|"]
    for report in (json.loads(Path(file).read_text()) for file in files):
        for name, one in report["estimate over whole"].items():
            epochs, each = (
                ", ".join(f"{value:.{n}f}" for value in one[key]) for key, n in (("whole_s", 1), ("each", 3))
            )
            lines.append(f"| {report['model']} | {name} | {epochs} | {one['ratio']:.3f} | {each} |")
    return lines


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="torch,tensorflow,jax")
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--data", default="fire-smoke-small")
    parser.add_argument("--limit", type=int, default=600, help="images of an epoch")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a sample")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pipeline", default="native")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--table", help="files, with commas between, as one Markdown table; nothing is measured")
    parser.add_argument("--save")
    return parser.parse_args()


def main(options):
    if options.table:
        return print("\n".join(table(options.table.split(","))))
    names, pairs = options.frameworks.split(","), []
    with tempfile.TemporaryDirectory() as place:
        for pair in range(options.pairs):
            found = {}
            for part in random.Random(pair).sample(["estimate", "whole"], 2):
                sample = options.seconds if part == "estimate" else None
                study = measured(names, Path(place) / f"{pair}-{part}", options, sample)
                found[part] = seconds(study)
            pairs.append(found)
            report = {
                "command": "python benchmarks/estimates.py " + " ".join(one for one in sys.argv[1:] if "/" not in one),
                "date": datetime.date.today().isoformat(),
                "machine": host.describe(),
                "versions": {row.framework: str(row.framework_version) for row in study.frame.itertuples()},
                "model": options.model,
                "estimate over whole": summary(pairs),
                "seconds of an epoch": pairs,
            }
            print(json.dumps(report["estimate over whole"]), flush=True)
            if options.save:
                Path(options.save).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(arguments())
