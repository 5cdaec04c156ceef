"""Verdicts of parity: those of the ladder as frozen records, and those beside a study, one for each cell when it ran."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from framework_compare import registry
from framework_compare.plan.settings import CODE_PATH, FEEDING, NETWORK, SIZES, of_verdict
from framework_compare.protocol import Document, Fields
from framework_compare.store.folder import write_json

LEVELS: dict[int, str] = {
    0: "names, shapes and number of parameters; weights read back are those loaded",
    1: "logits, BatchNorm in evaluation and in training mode",
    2: "gradient of every parameter",
    3: "losses, weights and running statistics after steps of the optimizer",
    4: "pixels, labels, coverage, crops and flips of the native pipeline",
    5: "share and scale of dropout, and none in evaluation",
}
PASSED, FAILED, UNVERIFIED = "passed", "failed", "unverified"
UNSUPPORTED, NOT_INSTALLED = "unsupported", "not-installed"  # as a cell that ends so
IMPORT = "import"  # of a model as its author wrote it: the level at which the rebuilt one was judged by it
# Columns that prove all of a cell: the second of one that is not fed by the native pipeline, which level 4 is about.
PROVED = ("0-5", "0-3, 5", IMPORT)
# Of a cell that has a native optimizer, whatever else is known of it.
NOT_EQUAL = "not equal: native optimizers"
VERDICT_FILE = "parity.json"
VERDICT_MODES = ("require", "warn", "off")
VERDICT_COLUMNS = ("parity", "parity_status", "parity_error", "parity_where")
# What a verdict depends on, of a cell and of a row of its frame.
_KEY = ("framework", "model", *of_verdict(CODE_PATH, NETWORK, FEEDING, SIZES))


@dataclasses.dataclass(frozen=True)
class Level:
    """One level's verdict. `ratio` is the worst error in units of the yardstick, None where nothing was rounded."""

    number: int
    passed: bool
    where: str = ""  # of the worst error, or what is wrong
    error: float | None = None
    ratio: float | None = None
    # False where an interpreter lacks what the level needs: it neither holds nor fails. If passed, too, the cell has no
    # use for what the level is about.
    asked: bool = True
    answered: bool = True  # False where a worker ended before it answered: such a verdict is not kept


@dataclasses.dataclass(frozen=True)
class Parity:
    """The ladder of one framework, model, precision and execution; `levels` as far as they could be asked."""

    framework: str
    version: str
    model: str
    execution: str
    status: str
    reason: str = ""
    levels: tuple[Level, ...] = ()
    diverges: str = ""  # the first layer whose output differs, with both values
    seconds: float = 0.0
    precision: str = "fp32"
    remark: str = ""  # on a verdict that is not a failure
    settings: Document = dataclasses.field(default_factory=dict)  # of the adapter, as it reported them

    @property
    def highest(self) -> int | None:
        """The highest level that holds together with all below it."""
        return max(self._held(), default=None)

    def _held(self) -> list[int]:
        """Levels that hold, up to the first that does not; without those that the cell has no use for."""
        ordered = sorted(self.levels, key=lambda level: level.number)
        return [level.number for level in itertools.takewhile(lambda level: level.passed, ordered) if level.asked]

    def holds(self) -> str:
        """Return levels that hold: "0-5", "0-3, 5" where 4 does not apply, "0-1" below a failure, "" for none."""
        return _ranges(self._held())

    @property
    def worst(self) -> Level | None:
        """The failed level, else the one nearest to its tolerance."""
        failed = [level for level in self.levels if level.asked and not level.passed]
        measured = [level for level in self.levels if level.ratio is not None]
        return failed[0] if failed else max(measured, key=lambda level: level.ratio or 0.0, default=None)

    def column(self) -> str:
        """Return its text in a table of results: "0-5", "0-1, not 2: fc.weight", "0-3, 5, not asked: 4", "unverified"."""
        if self.status == PASSED:
            lacking = [level.number for level in self.levels if not level.asked and not level.passed]
            levels = _ranges([level.number for level in self.levels if level.asked and level.passed])
            return ", ".join([levels, *(f"not asked: {number}" for number in lacking)])
        if self.status != FAILED or self.worst is None:
            return self.status
        return f"{self.holds() or 'none'}, not {self.worst.number}: {self.worst.where}"

    def proves(self) -> bool:
        """Return whether every level holds that the cell has a use for."""
        return self.column() in PROVED

    def to_dict(self) -> Fields:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Document) -> Parity:
        levels = tuple(Level(**level) for level in document["levels"])
        return cls(**{**document, "levels": levels})


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as ranges: "0-3, 5" for 0, 1, 2, 3 and 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def all_hold(found: Sequence[Parity]) -> bool:
    """Return whether something was proved and nothing is in doubt; what a framework does not support is no failure."""
    supported = [one for one in found if one.status != UNSUPPORTED]
    return bool(supported) and all(one.proves() for one in supported)


def verdict_key(row: Document) -> str:
    """Return what a verdict depends on, as one text."""
    task = [row["dataset"]] if registry.of_arrays(row["model"]) else []  # which is its data set's
    tokens = [row["new_tokens"]] if row["mode"] == "generation" else []
    return "|".join(str(value) for value in (*(row[name] for name in _KEY), *task, *tokens))


def write_verdicts(folder: Path, known: Document) -> None:
    """Store verdicts by key in a study's folder."""
    write_json(folder / VERDICT_FILE, known)


def unknown_verdict(mode: str) -> Fields:
    """Return the columns of a cell without a verdict: nothing where none was asked for."""
    text = None if mode == "off" else UNVERIFIED
    return {**dict.fromkeys(VERDICT_COLUMNS), "parity": text, "parity_status": text}


def verdict_of(row: Document, known: Document, mode: str) -> Fields:
    """The verdict on a cell as its row has it, by key in `known`, but where the ladder is not asked."""
    without_ladder = verdict_unasked(row)
    if without_ladder:
        return {**dict.fromkeys(VERDICT_COLUMNS), "parity": without_ladder}
    verdict: Fields = known.get(verdict_key(row), unknown_verdict(mode)) if known else unknown_verdict(mode)
    return verdict


def verdict_unasked(row: Document) -> str:
    """Return what is known of a cell without the ladder, by its row; "" where the ladder is to be asked."""
    if row["optimizer_variant"] == "native":
        return NOT_EQUAL
    return IMPORT if row["framework"] in registry.AS_WRITTEN else ""


def read_verdicts(folder: Path) -> dict[str, Fields]:
    """Verdicts by key, empty for a study that was run without asking for any; a damaged file holds none."""
    try:
        document = json.loads((folder / VERDICT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    words = (str, type(None))
    kinds: Fields = dict(zip(VERDICT_COLUMNS, (str, words, (int, float, type(None)), words)))

    def is_sound(verdict: object) -> bool:
        if not isinstance(verdict, dict) or set(verdict) != set(VERDICT_COLUMNS):
            return False
        return all(isinstance(verdict[name], kind) for name, kind in kinds.items())

    verdicts = document.items() if isinstance(document, dict) else ()
    return {name: verdict for name, verdict in verdicts if is_sound(verdict)}
