"""Verdicts of the ladder: frozen records, as JSON and back."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from framework_compare.protocol import Document, Fields

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
