"""Whether the pins can move: the newest release of each framework against the pinned one, in parity and step time.

    python benchmarks/renew.py [FRAMEWORK ...] [--quick] [--save FILE]

For each framework: resolve the newest stable release for the Python taken here (that of this process, if it fits),
make its environment, run the parity ladder on MODELS, and a duel of the pinned release against it for each. A release that
is newer still, for another Python of this machine, is checked for parity alone. One row per framework, with the minutes
that it took. Exit code 1 if a newer release fails, 3 if it is not known whether one is slower. The file is written after
each framework.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

from packaging.version import Version

from framework_compare import duels, registry
from framework_compare.environments import interpreters, locks, managed, releases
from framework_compare.errors import FrameworkCompareError
from framework_compare.parity import verify
from framework_compare.results import regression_gate
from framework_compare.samplers import host

MODELS, QUICK = ("alexnet", "mobilenet_v2", "resnet50", "vgg16", "lstm_ibm", "tweet_span"), ("mnist_cnn",)
SLOWER = 0.05  # a pin does not move to a release whose whole interval is beyond
IMAGES = {"image_size": 64, "batch_size": 8}  # of the duels, so that a month's look takes minutes


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def elsewhere(spec: registry.Framework, newest: Version) -> str:
    """The newest release for any Python of this machine, if it is newer still; "" if not."""
    there = [one for minor in interpreters.minors(spec.python) for one in releases.released(locks.package(spec), minor)]
    last = max((one for one in there if not one.is_prerelease), default=newest)
    return last.public if Version(last.public) > newest else ""


def check(competitor: str, models: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """What parity says of a release by model, and the models that do not pass."""
    found = {model: verify.verify([competitor], [model], say=say)[0] for model in models}
    failed = [model for model, one in found.items() if one.status != "passed"]
    return {model: f"{one.status} {one.column()}".strip() for model, one in found.items()}, failed


def look_elsewhere(spec: registry.Framework, newest: Version, models: tuple[str, ...]) -> dict[str, Any]:
    """The row's fields on a release of another Python, none where there is none."""
    version = elsewhere(spec, newest)
    if not version:
        return {}
    try:
        made = managed.ensure(f"{spec.name}@{version}", report=say)
    except FrameworkCompareError as error:
        return {"elsewhere": version, "elsewhere_parity": {"environment": str(error)}, "elsewhere_failed": True}
    said, failed = check(f"{spec.name}@{version}", models)
    python = ".".join(made.interpreter.split(".")[:2])
    return {"elsewhere": f"{version} (Python {python})", "elsewhere_parity": said, "elsewhere_failed": bool(failed)}


def look(name: str, models: tuple[str, ...], blocks: int) -> dict[str, Any]:
    """What is known of the newest release of a framework."""
    spec = registry.framework(name)
    pinned = locks.pinned(spec)
    listed = [one for one in locks.listed(spec, "cpu", say) if not one.is_prerelease]
    newest = Version(max(listed).public) if listed else Version(pinned)
    row: dict[str, Any] = {"framework": name, "pinned": pinned, "newest": str(newest)}
    row.update(look_elsewhere(spec, newest, models))
    if newest <= Version(pinned):
        return {**row, "verdict": "the pinned release is the newest"}
    competitor = f"{name}@{newest}"
    try:
        made = managed.ensure(competitor, report=say)
    except FrameworkCompareError as error:
        return {**row, "verdict": f"cannot be installed: {error}"}
    row["size_gb"] = round((made.size_bytes or 0) / 1e9, 1)
    row["lock"] = str(locks.find(managed.locks_dir(), competitor, "cpu").path)
    row["parity"], failed = check(competitor, models)
    row["ratios"] = {}
    slower, unsure = [], []
    for model in models:
        settings = {} if registry.of_arrays(model) else {**IMAGES, "pipeline": "memory"}
        data = None if registry.of_arrays(model) else "fire-smoke-tiny"
        found = duels.duel(f"{name}@{pinned}", competitor, model, data, max_slowdown=SLOWER, blocks=blocks, **settings)
        row["ratios"][model] = found.sentence
        slower += [model] if found.outcome in (regression_gate.SLOWER, regression_gate.FAILED) else []
        unsure += [model] if found.outcome in (regression_gate.INCONCLUSIVE, regression_gate.UNJUDGED) else []
    return {**row, "verdict": judged(failed, slower, unsure)}


def judged(failed: list[str], slower: list[str], unsure: list[str]) -> str:
    """Whether the pin can move, from the models that fail parity, are slower, or have no answer about that."""
    why = [f"{what}: {', '.join(models)}" for what, models in (("parity", failed), ("slower", slower)) if models]
    if why:
        return f"the pin stays ({'; '.join(why)})"
    return f"undecided: run again on a quiet machine ({', '.join(unsure)})" if unsure else "the pin can move"


def look_or_say(name: str, models: tuple[str, ...], blocks: int) -> dict[str, Any]:
    """The same; a row with the error where that ends it, so that the other frameworks are still looked at."""
    try:
        return look(name, models, blocks)
    except FrameworkCompareError as error:
        pinned = locks.pinned(registry.framework(name))
        return {"framework": name, "pinned": pinned, "newest": "-", "verdict": f"cannot be checked: {error}"}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| framework | pinned | newest here | parity | step time | verdict | newer, for another Python | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = " ".join(row.get("ratios", {}).values()) or "-"
        other = f"{row['elsewhere']}: {_listed(row['elsewhere_parity'])}" if "elsewhere" in row else "-"
        names = (row["framework"], row["pinned"], row["newest"], _listed(row.get("parity", {})), ratios, row["verdict"])
        lines.append(f"| {' | '.join(names)} | {other} | {row['minutes']:.1f} |")
    return "\n".join(lines)


def _listed(parity: dict[str, str]) -> str:
    return ", ".join(f"{model} {text}" for model, text in parity.items()) or "-"


def fails(row: dict[str, Any]) -> bool:
    """Whether a newer release does not work, or is slower."""
    return "stays" in row["verdict"] or "cannot" in row["verdict"] or row.get("elsewhere_failed", False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    able = [name for name, spec in registry.FRAMEWORKS.items() if locks.has_versions(spec)]
    parser.add_argument("frameworks", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)} alone, four blocks")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    try:
        for name in options.frameworks or able:
            began = time.monotonic()
            row = look_or_say(name, QUICK if options.quick else MODELS, 4 if options.quick else 8)
            rows.append({**row, "minutes": (time.monotonic() - began) / 60})
            if options.save:
                kept = {"date": datetime.date.today().isoformat(), "machine": host.describe(), "rows": rows}
                options.save.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    finally:
        if rows:
            print(table(rows))
    if any(map(fails, rows)):
        raise SystemExit(1)
    if any(row["verdict"].startswith("undecided") for row in rows):
        raise SystemExit(regression_gate.CODE_INCONCLUSIVE)


if __name__ == "__main__":
    main()
