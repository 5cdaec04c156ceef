"""Tables of the studies that gpu_study.py ran: one CSV of all cells, and what docs/records/gpu-h200.md shows of it.

A folder that holds earlier records keeps those of their cells that were not run again, and puts the others into
earlier.csv. `record` names the record that a cell is of, `recorded` tells when its study was made (UTC; neither was kept
before November 22nd, 2026), `machine` by number which machine of machine.json it ran on.
"""

import dataclasses
import json
import math
import sqlite3
from contextlib import closing

import pandas as pd

from framework_compare import Comparison
from framework_compare.parity import cache
from framework_compare.results.parity import PASSED, Parity

MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16")
WIDE = "resnet50_v1_5"
PRECISIONS = ["fp32", "tf32", "bf16", "fp16"]
PARTS = ("memory", "eager", "wide", "pictures", "scaling", "speedup", "profile")
# what makes a cell another one
KEY = ["framework", "model", "device", "batch_size", "execution", "precision", "pipeline", "part"]
# paths, and what parity.json and the text tell
HIDDEN = ("log_path", "trace_path", "parity", "parity_error", "parity_where")
NO_RESULT = ("planned", "interrupted", "running")
CLIMBED = ["framework", "model", "precision", "execution", "device", "pipeline"]  # what makes a verdict another one
WAITS = "Synchronize|Query|cuEventElapsed"  # the host waits for the GPU in these, and does nothing
SHARED = "²"  # of figures of a GPU that another program was on, too
OTHERS = "another process is on the GPU|processes came onto the GPU|were in use on the GPU before"  # warnings of it
AGES = ("", "¹", "³", "⁴")  # of figures of the last record, the one before, the one before that, and all older ones
FORMER = "¹"  # of verdicts of a former ladder
# Ladder -> a later one that asks no more: what passed the former passes that, what failed need not fail. 8cc591a25e7a held
# the smallest values that dropout keeps to a relative error which rounding by two algorithms exceeds.
STRICTER = {"8cc591a25e7a": "2fabd43fd401"}


def write(out, to, record=""):
    """cells.csv, earlier.csv, profile.csv, machine.json, parity.json and tables.md of what is below a folder.

    The record is called by the day of its first study, unless it is given a name.
    """
    to.mkdir(parents=True, exist_ok=True)
    machines = read(to / "machine.json", {"machines": []})["machines"]
    kept, profiles = [*earlier(to / "earlier.csv"), *earlier(to / "cells.csv")], earlier(to / "profile.csv")
    paths = sorted(out.glob("*/study.sqlite"))
    made = {path: created(path) for path in paths}
    name = record or min(made.values(), default="")[:10]
    for path in paths:
        study = Comparison.load(path.parent)
        told = {"part": path.parent.name.partition("-")[0], "record": name, "recorded": made[path]}
        own = study.frame.assign(machine=place(study.machine, machines), **told)
        kept.append(own[~own.status.isin(NO_RESULT)])
        profiles.append(profiled(study).assign(recorded=made[path]))
    rows = pd.concat(kept, ignore_index=True)
    frame, before = newest(rows.drop(columns=list(HIDDEN), errors="ignore"))
    frame.to_csv(to / "cells.csv", index=False)
    before.to_csv(to / "earlier.csv", index=False)
    profile = pd.concat(profiles, ignore_index=True).fillna({"recorded": ""})
    last = profile.groupby(["framework", "execution", "precision"]).recorded.transform("max")
    profile[profile.recorded == last].drop_duplicates().to_csv(to / "profile.csv", index=False)
    versions = frame.groupby("framework").framework_version.unique().map(list).to_dict()
    (to / "machine.json").write_text(json.dumps({"machines": machines, "versions": versions}, indent=1) + "\n")
    found = sorted(out.glob("climbs/*.json"), key=lambda path: path.stat().st_mtime)
    merge_verdicts([json.loads(path.read_text()) for path in found], to / "parity.json")
    (to / "tables.md").write_text("\n".join(draw(frame, before, read(to / "parity.json", []))))


def created(path):
    """When a study was made, as 2026-11-22T07:36:01+00:00."""
    with closing(sqlite3.connect(path)) as connection:
        ((found,),) = connection.execute("SELECT value FROM meta WHERE key = 'created_at'")
    return found


def newest(rows):
    """The last of each cell by when its study was made, and all others; a study that is read again counts once."""
    rows = rows.fillna({"record": "", "recorded": ""}).drop_duplicates([*KEY, "recorded"], keep="last")
    rows = rows.sort_values("recorded", kind="stable")
    again = rows.duplicated(KEY, keep="last")
    return rows[~again], rows[again]


def place(machine, machines):
    """Where the first machine of a kind stands in the list; at its end if there was none of it."""
    told = [{name: one[name] for name in ("cpu", "logical_cores", "gpus")} for one in (*machines, machine)]
    if told.index(told[-1]) == len(machines):
        machines.append(machine)
    return told.index(told[-1])


def earlier(path):
    return [pd.read_csv(path)] if path.exists() else []


def profiled(study):
    """Of AlexNet's profile: shares of time by class of kernel and by CUDA function, with those that wait and without."""
    columns = ["framework", "execution", "precision", "kind", "name", "calls", "self_s"]
    found = study.profile[study.profile.kind.isin(["kernel", "cuda-runtime"])]
    if found.empty:
        return pd.DataFrame(columns=columns)
    found = found.assign(name=found.kernel_class.where(found.kind == "kernel", found.name))
    sums = (
        found.groupby(["framework", "execution", "precision", "kind", "name"])[["calls", "self_s"]].sum().reset_index()
    )
    waits = sums.name.str.contains(WAITS) & (sums.kind == "cuda-runtime")
    working = sums.self_s.where(~waits)
    cells = [sums[name] for name in ("framework", "execution", "precision", "kind")]
    share = {"share": sums.self_s, "share_without_waits": working}
    return sums.assign(
        **{name: (column / column.groupby(cells).transform("sum")).round(4) for name, column in share.items()}
    )


def merge_verdicts(verdicts, path):
    """Put `verify`'s verdicts in the place of those on the same cells; today's ladder yields to no other."""
    merged = {tuple(one.get(name, "memory") for name in CLIMBED): one for one in read(path, [])}
    ladder = cache.ladder_checksum()[:12]
    for one in map(brief, verdicts):
        key = tuple(one[name] for name in CLIMBED)
        if one["ladder"] == ladder or merged.get(key, {}).get("ladder") != ladder:
            merged[key] = one
    path.write_text(json.dumps(list(merged.values()), indent=1) + "\n")


def brief(verdict):
    """A verdict as `verify` of gpu_study.py writes it, with what the table shows of it."""
    fields = {field.name: verdict[field.name] for field in dataclasses.fields(Parity)}
    found = Parity.from_dict(fields)
    worst = max((level.ratio or 0.0 for level in found.levels), default=0.0)
    where = found.worst.where if found.worst else ""
    return {**verdict, "holds": found.column().partition(":")[0], "ratio": round(worst, 3), "where": where}


def read(path, otherwise):
    return json.loads(path.read_text()) if path.exists() else otherwise


def draw(frame, before, verdicts):
    yield from parity_table(verdicts)
    shared = frame.warnings.fillna("").str.contains(OTHERS)
    of_record = record_marks(pd.concat([frame, before]))
    marks = [of_record[record] + SHARED * int(found) for record, found in zip(frame.record, shared)]
    frame = frame.assign(mark=marks).sort_values(["framework", "execution", "batch_size"], kind="stable")
    memory = frame[frame.part.isin(["memory", "eager"])]
    for batch_size in (1, 100):
        chosen = memory[memory.batch_size == batch_size]
        title = f"Images per second and the half-width of their 95 % interval, batch {batch_size}, from memory"
        yield from matrix(chosen, title, "images_per_s", 0, interval=True)
        title = f"Joules per image (whole GPU, energy counter), batch {batch_size}"
        yield from matrix(chosen, title, "gpu_j_per_image", 3)
        title = f"GPU memory of the worker's processes, GiB, batch {batch_size}"
        yield from matrix(chosen, title, "gpu_process_memory_peak_bytes", 1, 2**-30)
    pictures = frame[frame.part == "pictures"].sort_values(["model", "framework", "pipeline"], kind="stable")
    yield from listing(pictures, "From images, bf16, batch 100", ("framework", "execution", "model", "pipeline"))
    wide = frame[frame.part == "wide"]
    yield from listing(wide, "ResNet-50 v1.5, bf16, batch 256, from memory", ("framework", "execution"))
    yield from scaling(frame[frame.part == "scaling"])
    yield from speedups(frame[frame.part == "speedup"])
    yield from repeats(frame, before)


def record_marks(rows):
    """Record -> its mark, of all that were ever kept: none for that of the last study."""
    ended = rows.groupby("record").recorded.max().sort_values(ascending=False)
    return {name: AGES[min(age, len(AGES) - 1)] for age, name in enumerate(ended.index)}


def parity_table(verdicts):
    """Rows as in `matrix`; levels that hold, and the largest error in units of the yardstick."""
    yield "**Parity with the float64 reference: levels that hold, and the largest error (10 allowed)**\n"
    newest = cache.ladder_checksum()[:12]
    fed = [one for one in verdicts if one.get("pipeline") != "native"]
    shown = [one for one in fed if one["device"] != "cpu" and one["execution"] != "default"]
    names = (*MODELS, WIDE)
    yield "| framework | execution | precision | " + " | ".join(names) + " |"
    yield "|---" * (3 + len(names)) + "|"
    rows = dict.fromkeys((one["framework"], one["execution"], one["precision"]) for one in shown)
    for row in sorted(rows, key=lambda row: (row[0] != "torch", row[1], PRECISIONS.index(row[2]))):
        held = {one["model"]: one for one in shown if (one["framework"], one["execution"], one["precision"]) == row}
        cells = [climbed(held.get(model), newest) for model in names]
        yield f"| {' | '.join(row)} | " + " | ".join(cells) + " |"
    yield ""


def climbed(verdict, newest):
    if verdict is None:
        return "not climbed"
    ladder = verdict.get("ladder")
    passes = verdict["status"] == PASSED and STRICTER.get(ladder) == newest
    mark = "" if ladder == newest or passes else FORMER
    return f"{verdict['holds']} ({verdict['ratio']:.1f}){mark}"


def matrix(frame, title, figure, places, scale=1.0, interval=False):
    """A row a framework, execution and precision, a column a network; statuses where there is no figure."""
    yield f"**{title}**\n"
    yield "| framework | execution | precision | " + " | ".join(MODELS) + " |"
    yield "|---" * (3 + len(MODELS)) + "|"
    names = ["framework", "execution", "precision"]
    rows = frame.drop_duplicates(names).sort_values("precision", key=lambda column: column.map(PRECISIONS.index))
    rows = rows.sort_values(names[:2], kind="stable", ascending=[False, True])
    for row in rows[names].itertuples(index=False):
        same = frame[(frame[names] == list(row)).all(axis=1)]
        cells = [show(same[same.model == model], figure, places, scale, interval) for model in MODELS]
        yield f"| {' | '.join(row)} | " + " | ".join(cells) + " |"
    yield ""


def half_width(row):
    """Of the epoch's time, and so of images a second, as text: " ±1.2 %"; nothing where a cell ran once."""
    half = (row.epoch_s_ci_high - row.epoch_s_ci_low) / 2 / row.epoch_s_median
    return "" if pd.isna(half) else f" ±{100 * half:.1f} %"


def show(found, figure, places, scale, interval):
    if found.empty:
        return "not run"
    value = found[figure].iloc[0]
    if pd.isna(value):
        return "too short" if found.status.iloc[0] == "ok" else found.status.iloc[0]
    value, row = value * scale, found.iloc[0]
    places = max(places, 2) if value < 10 and interval else places
    return f"{value:,.{places}f}{row.mark}{half_width(row) if interval else ''}"


def listing(frame, title, keys):
    yield f"**{title}**\n"
    names = ("images/s", "host waits for data %", "copying %", "computing %", "GPU %", "status")
    yield "| " + " | ".join([*keys, *names]) + " |"
    yield "|---" * (len(keys) + len(names)) + "|"
    for _, row in frame.iterrows():
        shares = [row.data_wait_share, row.copy_share, row.compute_share]
        speed = "-" if pd.isna(row.images_per_s) else f"{row.images_per_s:,.0f}{row.mark}{half_width(row)}"
        figures = [speed, *("-" if pd.isna(x) else f"{100 * x:.1f}" for x in shares)]
        gpu = "-" if pd.isna(row.gpu_percent_mean) else f"{row.gpu_percent_mean:.0f}"
        yield "| " + " | ".join([*(str(row[key]) for key in keys), *figures, gpu, row.status]) + " |"
    yield ""


def scaling(frame):
    yield "**Batch sizes: ResNet-50, bf16, graph, from memory**\n"
    yield "| framework | batch | images/s | GPU memory, GiB | joules per image | status |"
    yield "|---|---|---|---|---|---|"
    for _, row in frame.iterrows():
        memory = row.gpu_process_memory_peak_bytes / 2**30
        figures = [f"{row.images_per_s:,.0f}", f"{memory:.1f}", f"{row.gpu_j_per_image:.3f}"]
        shown = ["-" if figure == "nan" else figure + row.mark for figure in figures]
        shown[0] += half_width(row)
        yield f"| {row.framework} | {row.batch_size} | " + " | ".join(shown) + f" | {row.status} |"
    yield ""


def speeds(row):
    """Images per second: the lower end of the interval over runs, NaN with one run, of the median epoch, the upper end."""
    images = row.images_per_s * row.epoch_s
    return images / row.epoch_s_ci_high, images / row.epoch_s_median, images / row.epoch_s_ci_low


def speedups(frame):
    """Of cells that ran on both: medians of the epochs, as the package's own table has them, and bounds from both ends."""
    yield "**One H200 against 16 threads of its host, fp32, batch 8, from memory, images/s**\n"
    yield "| framework | network | CPU | GPU | times faster |"
    yield "|---|---|---|---|---|"
    for (framework, model), pair in frame.groupby(["framework", "model"]):
        found, mark = {row.device: speeds(row) for row in pair.itertuples()}, "".join(sorted(set("".join(pair.mark))))
        cpu, gpu = (found.get(device, (math.nan,) * 3) for device in ("cpu", "cuda"))
        ends = gpu[0] / cpu[2], gpu[2] / cpu[0]
        # Of a study with one run per cell there is no interval.
        times = f"{gpu[1] / cpu[1]:.1f}" + ("" if math.isnan(sum(ends)) else f" ({ends[0]:.1f} to {ends[1]:.1f})")
        shown = [f"{cpu[1]:,.0f}{mark}", f"{gpu[1]:,.0f}{mark}", times]
        yield f"| {framework} | {model} | " + " | ".join("not run" if "nan" in one else one for one in shown) + " |"
    yield ""


def repeats(frame, before):
    """Of cells that an earlier record has, too: images a second of the last one over those of the one before."""
    yield "**Cells that an earlier record has, too: images/s of the last record over those of the one before**\n"
    yield "| part | framework | execution | batch | cells | median | range |"
    yield "|---|---|---|---|---|---|---|"
    columns = [*KEY, "images_per_s", "record"]
    both = frame[columns].merge(before[columns], on=KEY, suffixes=("", "_before")).query("record != record_before")
    both = both.drop_duplicates(KEY, keep="last")
    both = both.assign(ratio=both.images_per_s / both.images_per_s_before).dropna(subset="ratio")
    for part, apart_by in (("pictures", both.pipeline), ("speedup", both.device)):
        both["part"] = both.part.where(both.part != part, f"{part}, " + apart_by)
    sizes = both.batch_size.astype(str).where(both.part != "scaling", "16 to 1024")
    marks = both.record.map(record_marks(pd.concat([frame, before])))
    for (*names, mark), ratio in both.groupby(["part", "framework", "execution", sizes, marks]).ratio:
        found = f"{ratio.median():.2f} | {ratio.min():.2f} to {ratio.max():.2f}"
        yield "| " + " | ".join(names) + f" | {len(ratio)}{mark} | {found} |"
    yield ""
