"""Entries of a site, one per submission: its facts, its cells, and the ratios within it."""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from framework_compare import registry
from framework_compare.archive.conditions import worked
from framework_compare.archive.validate import Checked
from framework_compare.plan.settings import DEFAULTS, SETTINGS, column
from framework_compare.protocol import Document
from framework_compare.registry import device_kind
from framework_compare.report.names import in_order, title
from framework_compare.report.provenance import gpu_names
from framework_compare.report.table_notes import setting_words
from framework_compare.report.tables import clean
from framework_compare.results.columns import grouped
from framework_compare.results.parity import PROVED
from framework_compare.samplers.host import without_vectors

MAX_NAME = 120
# What machines choose for themselves; all else two studies must share for their ratios to stand side by side.
_OF_MACHINE = ("threads", "loader_workers", "device")
_ALWAYS = ("dataset", "batch_size", "precision")
_DEFAULTS = {column(name): value for name, value in DEFAULTS.to_dict().items() if name in SETTINGS}
# What a data set of arrays decides.
_OF_ARRAYS = {"pipeline": "shared", "flip": "none", "crop": "none", "image_size": 0}
_PLAIN = ("dataset", "execution", "precision", "mode", "optimizer", "loss_function", "device")


class Entry(NamedTuple):
    """A submission in a list. cells: (framework, version, model, device kind) of those that worked."""

    id: str
    date: str
    machine: str
    versions: tuple[tuple[str, str], ...]
    models: tuple[str, ...]
    devices: tuple[str, ...]
    verified: bool
    allowed: tuple[str, ...]
    cells: frozenset[tuple[str, str, str, str]]

    @property
    def words(self) -> str:
        """Return what a search looks into."""
        names = [f"{name} {release(name, version)}" for name, version in self.versions]
        models = [f"{title(model)} {model}" for model in self.models]
        return " ".join([self.id, self.date, self.machine, *names, *models, *self.devices, *self.allowed])


class Pair(NamedTuple):
    """Two frameworks in one study: ratio is epoch time of `second` over that of `first`, which come in one order always.

    counts: whether it may be an answer or a replication: verified, and nothing is stated against its study.
    place: the kind of device, and what is timed if that is not training: "CPU", "GPU, inference".
    """

    id: str
    date: str
    machine: str
    model: str
    place: str
    condition: str
    first: str
    second: str
    versions: tuple[tuple[str, str], ...]
    ratio: float
    low: float | None
    high: float | None
    shown: bool
    verified: bool
    counts: bool

    @property
    def models(self) -> tuple[str]:
        return (self.model,)

    @property
    def interval(self) -> str:
        return interval(self.low, self.high)

    @property
    def label(self) -> str:
        return f"{title(self.first)} / {title(self.second)}"


class Spread(NamedTuple):
    """A pair under one condition over all machines. shown_on: machines that show `first` faster, and `second` faster."""

    first: str
    second: str
    pairs: tuple[Pair, ...]
    machines: int
    median: float
    least: float
    most: float
    shown_on: tuple[int, int]

    @property
    def badge(self) -> str:
        """Return on how many machines the difference is shown, and whether one shows the opposite."""
        ahead, behind = self.shown_on
        if not any(one.counts for one in self.pairs):
            return "not counted: not verified, or a condition is stated"
        name, count, other = (self.first, ahead, behind) if ahead >= behind else (self.second, behind, ahead)
        if not count:
            return "no significant difference"
        where = f"replicated on {count} machines" if count > 1 else "significant on 1 machine"
        return f"{title(name)} faster: {where}" + (f", the opposite on {other}" if other else "")


def _name(value: object) -> str:
    """A name as pages show it: one printable line, not long."""
    return clean(value)[:MAX_NAME]


def interval(low: float | None, high: float | None, form: str = ".2f") -> str:
    """An interval in brackets, "" where there is none."""
    return f"[{low:{form}}, {high:{form}}]" if low is not None and high is not None else ""


def base(name: str) -> str:
    """The framework of a competitor: "jax" of "jax@0.9.2"."""
    return name.partition("@")[0]


def release(name: str, version: str) -> str:
    """A framework and its version as people write them: "JAX 0.9.2" for "jax@0.9.2", too."""
    return f"{title(base(name))} {version}"


def entry_of(checked: Checked) -> Entry:
    document = checked.document
    cells = worked(document)
    versions = dict.fromkeys(
        (_name(cell["framework"]), _name(cell["framework_version"] or "unknown")) for cell in cells
    )
    return Entry(
        id=str(checked.manifest["id"]),
        date=str(document["started_at"] or checked.manifest["published_at"])[:10],
        machine=machine_name(document["machine"]),
        versions=tuple(versions),
        models=tuple(dict.fromkeys(_name(cell["model"]) for cell in cells)),
        devices=tuple(dict.fromkeys(device_kind(_name(cell["device"])) for cell in cells)),
        verified=all(cell["parity"] in PROVED for cell in cells),
        allowed=tuple(checked.manifest["allowed"]),
        cells=frozenset(
            (_name(c["framework"]), _name(c["framework_version"]), _name(c["model"]), device_kind(_name(c["device"])))
            for c in cells
        ),
    )


def pairs_of(checked: Checked, entry: Entry) -> list[Pair]:
    """The ratios of single models within a study, without those that have no verdict."""
    versions = dict(entry.versions)
    found = []
    for one in checked.document["verdicts"]:
        if len(one["models"]) != 1 or one["reason"] or not one["ratio"]:
            continue
        first, second = in_order([_name(one["faster"]), _name(one["slower"])])
        model, settings = _name(one["model"]), one["condition"]
        mode = settings.get("mode", "train")
        place = ", ".join(
            [title(device_kind(_name(settings.get("device", "cpu")))), *[_name(mode)] * (mode != "train")]
        )
        ratio, low, high = one["ratio"], one["low"], one["high"]
        if first != _name(one["faster"]):
            ratio, low, high = 1 / ratio, high and 1 / high, low and 1 / low
        found.append(
            Pair(
                *(entry.id, entry.date, entry.machine, model, place, condition(settings, model), first, second),
                versions=((first, versions.get(first, "")), (second, versions.get(second, ""))),
                ratio=ratio,
                low=low,
                high=high,
                shown=bool(one["shown"]),
                verified=bool(one["verified"]),
                counts=bool(one["verified"]) and not entry.allowed,
            )
        )
    return found


def condition(settings: Document, model: str) -> str:
    """Return what two studies of a model must share for their ratios to stand side by side, in words.

    Its own settings and all other defaults are left out.
    """
    known = registry.model_of_all(model)
    own = {column(name): value for name, value in known.settings.items()} if known else {}
    usual = {**_DEFAULTS, **(_OF_ARRAYS if known and known.of_arrays else {}), **own}
    words = [title(device_kind(str(settings.get("device", "cpu"))))]
    for name, value in settings.items():
        decided = name == "loss_function" and known and known.of_arrays
        if name in _OF_MACHINE or value is None or decided or (name not in _ALWAYS and value == usual.get(name)):
            continue
        words.append(str(value) if name in _PLAIN else setting_words(name, value))
    return clean(", ".join(words))[:400]


def machine_name(machine: Document) -> str:
    """A machine by its description: machines of one description count as one, with or without its widest vectors."""
    gpus = gpu_names(machine)
    cores, memory = machine.get("available_cores"), machine.get("memory_bytes")
    parts = [
        without_vectors(str(machine.get("cpu") or "unknown processor")),
        f"{cores} cores" if cores else "",
        f"{memory / 1e9:.0f} GB" if isinstance(memory, (int, float)) else "",
        *(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)),
    ]
    return clean(", ".join(filter(None, parts)))[:160]


def spreads(pairs: Iterable[Pair]) -> dict[str, list[Spread]]:
    """Return each pair over all machines, by condition, those with most submissions first."""
    found = {
        condition: [
            _spread(*names, own) for names, own in grouped(several, lambda one: (one.first, one.second)).items()
        ]
        for condition, several in grouped(pairs, lambda one: one.condition).items()
    }
    return dict(sorted(found.items(), key=lambda item: -sum(len(one.pairs) for one in item[1])))


def _spread(first: str, second: str, pairs: Sequence[Pair]) -> Spread:
    by_machine = grouped(pairs, lambda one: one.machine)
    medians = [statistics.median(one.ratio for one in several) for several in by_machine.values()]
    proved = [[one for one in several if one.shown and one.counts] for several in by_machine.values()]
    ahead = sum(bool(several) and all(one.ratio > 1 for one in several) for several in proved)
    behind = sum(bool(several) and all(one.ratio < 1 for one in several) for several in proved)
    ratios = [one.ratio for one in pairs]
    return Spread(
        first,
        second,
        tuple(pairs),
        len(by_machine),
        statistics.median(medians),
        min(ratios),
        max(ratios),
        (ahead, behind),
    )


def slug(text: str) -> str:
    """A name as a file's, always the same and of no other name; one that loses characters gets a checksum after "~"."""
    plain = re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-.")[:80] or "unnamed"
    return plain if plain == text else f"{plain}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def version_key(version: str) -> tuple[tuple[int, str], ...]:
    """Versions in their order: 2.9 before 2.13."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"[.+]", version))
