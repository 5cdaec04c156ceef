"""Whether taking turns changes what is measured: solo runs beside interleaved ones, and effects of a turn's place.

    python benchmarks/bias.py --frameworks torch,jax --pairs 20 --save FILE
    python benchmarks/bias.py --frameworks torch,jax --device cuda --precision bf16 --batch-size 100 --image-size 224 \
        --python torch=PATH --python jax=PATH --save FILE
    python benchmarks/bias.py --whole --limit 600 --data fire-smoke-small --image-size 224 --pipeline native --save FILE
    python benchmarks/bias.py --join FILE,FILE --save FILE

For each pair every framework runs alone once, and all of them once in turns, in an order drawn anew; each run is a fresh
process, and measures as long. `ratio` is interleaved over solo, the geometric mean of pairs with its 95 % interval. From
the rounds of the interleaved runs: `position` is the time of a slice by its place in the round, `after` by whose turn came
before, over the mean of the cell in that block. With --whole a solo run trains a whole epoch of --limit images, so that the
ratio is that of an estimate to what it estimates. Sequential runs scatter; use enough pairs. Several processes, each on cores
of its own (taskset), may share the pairs, from a --seed of their own; --join makes one file of theirs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np

from framework_compare import compare
from framework_compare.results.intervals import geometric_mean
from framework_compare.samplers import host

RAW = ("seconds of an epoch", "slices")


def measured(names, folder, options, schedule):
    whole = options.whole and schedule == "sequential"
    return compare(
        names, options.model, options.device, out=folder, dataset=options.data, limit=options.limit, repeats=1,
        schedule=schedule, sample=None if whole else options.seconds, epochs=1 if options.whole else 1000, verify="off",
        batch_size=options.batch_size, pipeline=options.pipeline, image_size=options.image_size, threads=options.threads,
        loader_workers=options.loader_workers, precision=options.precision, execution=options.execution,
        retries_when_disturbed=0, python=dict(one.split("=", 1) for one in options.python),
    )  # fmt: skip


def seconds(study):
    """Of an epoch of each framework, by turns where it took them; of a run alone the mean, as rounds are means, too."""
    for row in study.frame[study.frame.status != "ok"].itertuples():
        print(row.framework, row.status, row.reason, flush=True)
    times = study.block_times
    if study.slices.empty:
        epochs = study.epochs[study.epochs.disturbed == 0]  # as disturbed slices do not count either
        one = epochs.epoch_s.groupby(epochs.framework).sum() / epochs.images.groupby(epochs.framework).sum()
        return (one * epochs.whole_images.fillna(epochs.images).max()).to_dict()
    return {
        row.framework: times[row.Index][1]
        for row in study.frame.itertuples()
        if row.status == "ok" and row.Index in times
    }


def rounds_of(study):
    """Each slice that counts: framework, its place in the round, who came before, seconds over the cell's mean."""
    slices = study.slices[study.slices.void == ""].copy()
    if slices.empty:
        return []
    starts = {}
    with sqlite3.connect(study.folder / "study.sqlite") as file:
        query = "SELECT run_id, round, start_ns FROM slice ORDER BY round, start_ns"
        order = {}
        for run_id, number, _ in file.execute(query):
            order.setdefault(number, []).append(run_id)
        starts = dict(file.execute("SELECT run_id, framework FROM run JOIN cell USING (cell_id)"))
    slices["log"] = np.log(slices.measured_s / slices.samples)
    slices["log"] -= slices.groupby("run_id")["log"].transform("mean")
    found = []
    for row in slices.itertuples():
        line = order[row.round]
        place = line.index(row.run_id)
        before = starts[line[place - 1]] if place else ""
        found.append((row.framework, place, before, float(row.log)))
    return found


def effects(found):
    def of(key):
        groups = {}
        for framework, place, before, log in found:
            groups.setdefault(key(framework, place, before), []).append(log)
        return {
            str(name): [
                round(float(np.exp(np.mean(logs))), 4),
                round(float(np.std(logs) / np.sqrt(len(logs))), 4),
                len(logs),
            ]
            for name, logs in sorted(groups.items())
        }

    return {
        "position (ratio, standard error, slices)": of(lambda framework, place, before: place),
        "position by framework": of(lambda framework, place, before: f"{framework} {place}"),
        "after": of(lambda framework, place, before: f"{framework} after {before}" if before else "first"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="torch,jax")
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--loader-workers", type=int, default=1)
    parser.add_argument("--pipeline", default="memory")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--execution", default="default")
    parser.add_argument("--data", default="fire-smoke-tiny", help="a name, or a folder of images")
    parser.add_argument("--limit", type=int, help="images of an epoch")
    parser.add_argument("--whole", action="store_true", help="solo runs train a whole epoch")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0, help="of the orders")
    parser.add_argument("--join", help="files of several processes, with commas between; nothing is measured")
    parser.add_argument("--save")
    options = parser.parse_args()
    if options.join:
        return join([json.loads(Path(name).read_text()) for name in options.join.split(",")], options.save)
    names, place = options.frameworks.split(","), Path(tempfile.mkdtemp())
    ratios, slices, raw, minutes = {name: [] for name in names}, [], [], datetime.datetime.now()
    draw = random.Random(options.seed)
    try:
        for pair in range(options.pairs):
            tasks = draw.sample([*names, None], len(names) + 1)
            solo, turns = {}, {}
            for number, task in enumerate(tasks):
                folder = place / f"{pair}-{number}"
                if task is None:
                    study = measured(names, folder, options, "interleaved")
                    turns = seconds(study)
                    slices += rounds_of(study)
                else:
                    solo.update(seconds(measured([task], folder, options, "sequential")))
                shutil.rmtree(folder / "runs", ignore_errors=True)
            raw.append({"solo": solo, "turns": turns})
            for name in names:
                if name in solo and name in turns:
                    ratios[name].append(turns[name] / solo[name])
            print(pair, {name: round(many[-1], 3) for name, many in ratios.items() if many}, flush=True)
            report = {
                "command": "python benchmarks/bias.py " + " ".join(one for one in sys.argv[1:] if "/" not in one),
                "date": datetime.date.today().isoformat(),
                "machine": host.describe(),
                "minutes": round((datetime.datetime.now() - minutes).total_seconds() / 60, 1),
                "interleaved over solo": {name: summary(many) for name, many in ratios.items() if many},
                **effects(slices),
                "seconds of an epoch": raw,
                "slices": slices,
            }
            if options.save:
                Path(options.save).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps({name: part for name, part in report.items() if name not in RAW}, indent=1))


def join(reports, path):
    """One report of several; the slices themselves, which are many, are left behind."""
    raw = [pair for report in reports for pair in report["seconds of an epoch"]]
    names = list(reports[0]["interleaved over solo"])
    ratios = {
        name: [one["turns"][name] / one["solo"][name] for one in raw if name in one["turns"] and name in one["solo"]]
        for name in names
    }
    found = {
        **{name: part for name, part in reports[0].items() if name in ("command", "date", "machine")},
        "minutes": [report["minutes"] for report in reports],
        "interleaved over solo": {name: summary(many) for name, many in ratios.items()},
        **effects([slice_ for report in reports for slice_ in report["slices"]]),
    }
    print(json.dumps(found, indent=1))
    Path(path).write_text(json.dumps({**found, "seconds of an epoch": raw}, indent=1) + "\n", encoding="utf-8")


def summary(ratios):
    mean = geometric_mean(ratios)
    return {
        "ratio": round(mean.value, 4),
        "interval": [None if end is None else round(end, 4) for end in (mean.low, mean.high)],
        "median": round(float(np.median(ratios)), 4),
        "pairs": len(ratios),
    }


if __name__ == "__main__":
    main()
