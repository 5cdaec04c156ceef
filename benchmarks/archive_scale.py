"""How long validation and the site of many submissions take, and how large they are: synthetic submissions of one study each.

    python benchmarks/archive_scale.py 1000 --out FOLDER [--validate 200]

Each submission is a valid one of its own: a study of two frameworks in turns, measured by nobody, with another machine,
version, date and clock. Of --validate of them every figure is recomputed; the site shows all.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import random
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))
import pytest  # noqa: E402
from published_study import study, submission  # noqa: E402

from framework_compare.archive import documents, publish, site, validate  # noqa: E402

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax")
MODELS = ("alexnet", "mobilenet_v2", "resnet50", "vgg16", "lstm_google", "cifar_cnn")
TEMPLATES = 24  # studies that are made whole; the others are these with other clocks, machines and dates
FIRST = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def templates(place: Path) -> list[Path]:
    draw = random.Random(0)
    made = []
    with pytest.MonkeyPatch.context() as patch:
        for number in range(TEMPLATES):
            kind = {
                "frameworks": draw.sample(FRAMEWORKS, 2),
                "model": MODELS[number % len(MODELS)],
                "seconds": (draw.uniform(1, 2), draw.uniform(1, 2)),
                "version": f"2.{draw.randrange(4, 14)}.0",
                "start_s": 3600.0 + 1000 * number,
                "seed": 100 * number,
            }
            made.append(submission(study(place / f"s{number}", **kind), place / "templates", patch))
    return made


def clone(files: dict[str, dict], number: int, archive: Path) -> None:
    """A submission with its own clock, date and machine, whose figures are those of the template."""
    records, document = copy.deepcopy(files[documents.RECORDS]), copy.deepcopy(files[documents.STUDY])
    cpu = f"Processor {number % 97}"
    records["machine"]["cpu"] = document["machine"]["cpu"] = cpu
    shift = number * 10**11
    for table in records["tables"].values():
        for name in ("start_ns", "end_ns", "t_ns"):
            if name in table:
                table[name] = [value + shift for value in table[name]]
    _stretch(records["tables"]["epoch"], number // TEMPLATES)
    run = records["tables"]["run"]
    begun = [datetime.datetime.fromisoformat(text) for text in run["started_at"]]
    day = FIRST + datetime.timedelta(days=number % 320)
    run["started_at"] = [(day + (one - min(begun))).isoformat() for one in begun]
    document["started_at"] = min(run["started_at"])
    manifest = copy.deepcopy(files[documents.MANIFEST])
    contents = {documents.RECORDS: documents.packed(records)}
    manifest["id"] = publish.identity_of(manifest["id"].rpartition("-")[0], contents[documents.RECORDS])
    document["study"] = manifest["id"]
    contents[documents.STUDY] = documents.written(document)
    for name, content in files["others"].items():
        contents[name] = content
    manifest["files"] = {name: {"sha256": documents.digest(c), "bytes": len(c)} for name, c in sorted(contents.items())}
    contents[documents.MANIFEST] = documents.written(manifest)
    for name, content in contents.items():
        path = archive / manifest["id"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _stretch(epochs: dict[str, list], number: int) -> None:
    """Make epochs longer by up to 255 ns, each number otherwise: runs of equal lengths count as copies."""
    for place, which in enumerate(epochs["number"]):
        epochs["end_ns"][place] += number >> 8 * (which % 3) & 255


def load(folder: Path) -> dict:
    names = [one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()]
    parsed = {
        name: json.loads((folder / name).read_bytes())
        for name in (documents.MANIFEST, documents.STUDY, documents.RECORDS)
    }
    return {**parsed, "others": {name: (folder / name).read_bytes() for name in names if name not in parsed}}


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("count", type=int)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--validate", type=int, default=0, help="recompute the figures of so many")
    given = arguments.parse_args()
    archive, started = given.out / "archive", time.perf_counter()
    if not archive.exists():
        sources = list(map(load, templates(given.out)))
        for number in range(given.count):
            clone(sources[number % len(sources)], number, archive)
    result = {"submissions": given.count, "made_s": time.perf_counter() - started, "archive_mb": size_mb(archive)}
    if given.validate:
        started, valid = time.perf_counter(), 0
        for done, one in enumerate(validate.validate(archive), 1):
            valid += not one.refused
            if done == given.validate:
                break
        result.update(validated=done, valid=valid, validate_ms_each=1000 * (time.perf_counter() - started) / done)
    started = time.perf_counter()
    built = site.build(archive, given.out / "site")
    largest = max((given.out / "site").rglob("*.html"), key=lambda path: path.stat().st_size)
    result.update(
        site_s=time.perf_counter() - started,
        shown=built.submissions,
        pages=built.pages,
        site_mb=size_mb(given.out / "site"),
        largest_page=f"{largest.parent.name}/{largest.name}",
        largest_page_kb=largest.stat().st_size / 1e3,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    )
    print(json.dumps({name: round(value, 1) if isinstance(value, float) else value for name, value in result.items()}))


if __name__ == "__main__":
    main()
