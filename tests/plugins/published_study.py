"""A verified study whose workers took turns, without training, and submissions made of it."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from drawn_study import MACHINE, SECOND, SETTINGS, run

from framework_compare import registry
from framework_compare.archive import documents, publish
from framework_compare.archive.installed import Installed
from framework_compare.launch import staging
from framework_compare.plan.planning import expand_configs
from framework_compare.records import Cell, Run, Slice
from framework_compare.results.columns import row_of
from framework_compare.results.parity import verdict_key, write_verdicts
from framework_compare.store.study_file import REQUEST, Store

CLEAN = Installed("0.1.0", "0" * 40, "1" * 64, "")
PROVED = {"parity": "0-5", "parity_status": "passed", "parity_error": None, "parity_where": None}


def in_turns(made: Run, repeat: int) -> Run:
    """The run with a slice per tenth of its epochs; each run of a duel names the first."""
    start, end = made.epochs[0].start_ns, made.epochs[-1].end_ns
    length = (end - start) // 10
    images = sum(one.images for one in made.epochs)
    slices = tuple(
        Slice(n, start + n * length, start + (n + 1) * length, 3, images // 10, length / SECOND, length / SECOND, 0)
        for n in range(10)
    )
    energy = tuple(dataclasses.replace(one, energy_j=max(0.0, one.energy_j)) for one in made.energy)
    return dataclasses.replace(made, slices=slices, duel=repeat, energy=energy)


def study(
    folder: Path,
    frameworks: Sequence[str] = ("torch", "jax"),
    *,
    repeats: int = 3,
    seconds: Sequence[float] = (1.0, 1.3),
    version: str = "2.13.0",
    machine: Mapping[str, Any] = MACHINE,
    parity: Mapping[str, Any] | None = PROVED,
    disturbed: bool = False,
    sampled: bool = True,
    request: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    model: str = "alexnet",
    start_s: float = 3600.0,
    seed: int = 0,
    sources: Callable[[str], list[str]] = lambda name: [staging.checksum(registry.framework(name))],
) -> Path:
    """A finished study in `folder`: two frameworks in turns, `repeats` blocks; its folder."""
    config = expand_configs({**registry.MODELS[model].settings, **(settings or {})})[0]
    data = Path((request or {}).get("dataset", [registry.MODELS[model].dataset])[0]).name
    cells = [Cell(name, model, data, "cpu", config) for name in frameworks]
    asked = {
        "frameworks": list(frameworks),
        "models": [model],
        "repeats": repeats,
        **(settings or {}),
        **(request or {}),
    }
    stored = {
        **SETTINGS,
        REQUEST: asked,
        "sampling_hz": 10,
        "disturbance_threshold": 0.1,
        "strategy": {"name": "product"},
    }
    with Store.create(folder, settings=stored, machine=dict(machine), cells=cells, repeats=repeats) as store:
        at = start_s
        for number, (run_id, cell, repeat) in enumerate(store.plan()):
            place = frameworks.index(cell.framework)
            made = run(seconds[place], seed=seed + number, start_s=at, epochs=3)
            filled = (dataclasses.replace(one, images=one.images * config.batch_size // 16) for one in made.epochs)
            made = dataclasses.replace(made, epochs=tuple(filled))
            if disturbed:
                epochs = tuple(dataclasses.replace(one, disturbed=1, disturbed_share=0.5) for one in made.epochs)
                made = dataclasses.replace(made, epochs=epochs, disturbed_epochs=3)
            if not sampled:
                epochs = tuple(dataclasses.replace(one, disturbed=None, disturbed_share=None) for one in made.epochs)
                made = dataclasses.replace(made, epochs=epochs, disturbed_epochs=None, samples=(), energy=())
            store.record(run_id, dataclasses.replace(in_turns(made, repeat), framework_version=version))
            at += (made.wall_s or 0.0) + 1
        for name in frameworks:
            packages = {"torch": f"{version}+cpu", "numpy": "2.4.6"}
            environment = {"version": version, "packages": packages, "notes": [], "sources": sources(name)}
            store.environment(name, {**environment, "interpreter": "3.11.7", "managed": True})
    if parity is not None:
        write_verdicts(folder, {verdict_key(row_of(cell)): dict(parity) for cell in cells})
    return folder


def submission(folder: Path, out: Path, monkeypatch: Any, allow: Sequence[str] = ()) -> Path:
    """The submission of a study as the code at a clean commit would publish it."""
    monkeypatch.setattr(publish, "installed", lambda: CLEAN)
    return publish.prepare(folder, allow).write(out)


def archive(folder: Path, place: Path, monkeypatch: Any) -> Path:
    """Six submissions: two models, two machines of which one has two versions of the frameworks, one pair without a winner."""
    small = {**MACHINE, "cpu": "A small processor", "available_cores": 2}
    kinds: list[dict[str, Any]] = [
        {},
        {"machine": small, "seconds": (1.0, 1.6)},
        {"version": "2.9.1", "seconds": (1.2, 1.3)},
        {"frameworks": ("torch", "mxnet"), "seconds": (1.5, 1.0)},
        {"model": "vgg16", "seconds": (1.0, 1.001)},
        {"model": "vgg16", "machine": small, "parity": None},
    ]
    for number, kind in enumerate(kinds):
        made = study(place / f"s{number}", start_s=7200.0 * number, seed=100 * number, **kind)
        submission(made, folder, monkeypatch, ("unverified",) if "parity" in kind else ())
    return folder


class Hostile:
    """A copy of a submission to be tampered with; `seal` makes ids and checksums agree again, as an attacker would."""

    def __init__(self, source: Path, archive: Path) -> None:
        self.folder = archive / source.name
        shutil.copytree(source, self.folder)

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def write(self, name: str, document: Any, sealed: bool = True) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        self.write_bytes(name, text.encode("utf-8"), sealed)

    def write_bytes(self, name: str, content: bytes, sealed: bool = True) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        if sealed:
            self.seal()

    def change(self, name: str, *path: Any, to: Any) -> None:
        """Set one value of a JSON file, and seal."""
        document = self.read(name)
        place = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        self.write(name, document, sealed=name != documents.MANIFEST)

    def seal(self) -> None:
        """Name the folder after its records, and list the files as they are."""
        manifest = self.read(documents.MANIFEST)
        slug = manifest["id"].rpartition("-")[0]
        manifest["id"] = publish.identity_of(slug, (self.folder / documents.RECORDS).read_bytes())
        with contextlib.suppress(ValueError, RecursionError, TypeError):
            document = self.read(documents.STUDY)
            if document["study"] != manifest["id"]:
                document["study"] = manifest["id"]
                (self.folder / documents.STUDY).write_text(json.dumps(document))
        files = {
            one.relative_to(self.folder).as_posix(): one for one in sorted(self.folder.rglob("*")) if one.is_file()
        }
        contents = {name: one.read_bytes() for name, one in files.items() if name != documents.MANIFEST}
        manifest["files"] = {name: {"sha256": documents.digest(c), "bytes": len(c)} for name, c in contents.items()}
        (self.folder / documents.MANIFEST).write_text(json.dumps(manifest))
        self.folder = self.folder.rename(self.folder.with_name(manifest["id"]))
