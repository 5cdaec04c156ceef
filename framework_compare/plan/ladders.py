"""Ladders: one model trained in steps, each rung with settings changed from the rung before or from the first."""

from __future__ import annotations

import dataclasses
import re
from typing import Callable, Mapping, NamedTuple, Sequence, Union

from framework_compare import registry
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.plan import planning
from framework_compare.plan.planning import Plan
from framework_compare.plan.settings import DEFAULTS, SETTINGS, column, fields
from framework_compare.protocol import Document, Fields
from framework_compare.records import Cell


class Rung(NamedTuple):
    """A step of a ladder: its name, and the settings that it changes."""

    name: str
    settings: Document


@dataclasses.dataclass(frozen=True)
class Ladder:
    """A published sequence of techniques: the model, the settings of its first rung, and the rungs above it."""

    model: str
    base: Document
    rungs: tuple[Rung, ...]


BASE = "base"  # the name of the first rung
OF_GPUS = ("device", "gpu_threads")  # settings of rungs that are left out where there is no GPU
FIXED = ("image_size", "num_classes", "seed", "mode")  # what a rung cannot change: other data, model or task
Rungs = Union[Mapping[str, Document], Sequence[tuple[str, Document]]]

_GPU = Rung("GPU", {"device": "cuda"})
_HALF = Rung("mixed precision", {"precision": "bf16"})
_PRIVATE = Rung("private GPU threads", {"gpu_threads": "private"})  # TensorFlow's alone, so above all others
_COMPILED = Rung("compiled", {"execution": "compiled"})
# The gains report (2025) changes several settings at a time; here each technique is a rung of its own, in its order.
LADDERS: dict[str, Ladder] = {
    "abidate2025-tweets": Ladder(
        "tweet_span",
        {"epochs": 3, "batch_size": 4},
        (_GPU, Rung("growing batches", {"batch_growth": 1.001, "batch_size_limit": 500})),
    ),
    "abidate2025-ibm": Ladder("lstm_ibm", {"optimizer": "rmsprop", "epochs": 50}, (_GPU, Rung("Adam", {"optimizer": "adam"}))),
    "abidate2025-google": Ladder(
        "lstm_google",
        {"optimizer": "adam", "batch_size": 32, "epochs": 100},
        (
            _GPU,
            _HALF,
            Rung("batch 100", {"batch_size": 100}),
            Rung("Nadam", {"optimizer": "nadam"}),
            Rung("early stopping", {"patience": 10}),
            Rung("batch 200", {"batch_size": 200}),
            Rung("batch 500", {"batch_size": 500}),
        ),
    ),
    "abidate2025-guava": Ladder(
        "guava_cnn", {"batch_size": 64, "epochs": 10}, (_GPU, Rung("one batch on the device", {"pipeline": "memory"}))
    ),
    "abidate2025-diabetes": Ladder("diabetes_ann", {"epochs": 150}, (_GPU, _HALF, _COMPILED)),
    "abidate2025-diabetes-search": Ladder("diabetes_search", {}, (_GPU, _HALF, _COMPILED)),
    "tf-profiling": Ladder(
        "cifar_cnn",
        {"batch_size": 32},
        (_GPU, Rung("batch 128", {"batch_size": 128}), Rung("batch 256", {"batch_size": 256}), _HALF, _COMPILED, _PRIVATE),
    ),
}  # fmt: skip


def read_rungs(rungs: Rungs) -> list[Rung]:
    """Rungs as a user gives them, by name; UsageError says what is allowed."""
    try:
        pairs = list(rungs.items() if isinstance(rungs, Mapping) else rungs)
        read = [Rung(str(name), fields(settings)) for name, settings in pairs]
    except (AttributeError, TypeError, ValueError):
        raise UsageError(
            f"rungs are {rungs!r}; allowed: settings by name, such as {{'batch 64': {{'batch_size': 64}}}}"
        ) from None
    if not read:
        raise UsageError("no rung is given; a ladder needs at least one above its base")
    for rung in read:
        _check_rung(rung)
    for name in (BASE, *(rung.name for rung in read)):
        if [BASE, *(rung.name for rung in read)].count(name) > 1:
            raise UsageError(f"two rungs are called {name!r}; give each its own name")
    return read


def rungs_of_text(texts: Sequence[str]) -> list[Rung]:
    """Rungs of the command line, each "NAME: SETTING=VALUE, ..."; UsageError says what is allowed."""
    rungs = []
    for text in texts:
        name, _, changes = text.partition(":")
        # A comma within a value, as of cuda:0,1, is followed by no setting.
        parts = [part.strip().partition("=") for part in re.split(r",(?=[^,]*=)", changes)]
        if not name.strip() or not all(key and equals for key, equals, _ in parts):
            raise UsageError(
                f"--rung is {text!r}; allowed: 'NAME: SETTING=VALUE, ...', as in 'batch 64: batch_size=64'"
            )
        keys = [key.strip() for key, _, _ in parts]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise UsageError(f"--rung is {text!r}; it names {twice[0]} twice")
        rungs.append(Rung(name.strip(), {key.strip(): _typed(key.strip(), value.strip()) for key, _, value in parts}))
    return rungs


def _typed(name: str, value: str) -> object:
    """A value as its setting has it; text that is not a number stays, and the setting's own check refuses it."""
    kind: Callable[[str], object] = type(getattr(DEFAULTS, name, ""))
    try:
        return kind(value)
    except ValueError:
        return value


def _check_rung(rung: Rung) -> None:
    if not rung.settings:
        raise UsageError(f"rung {rung.name!r} changes nothing; name at least one setting")
    for name, value in rung.settings.items():
        if name not in SETTINGS or name in FIXED:
            raise UnknownNameError(
                f"setting of rung {rung.name!r}", name, sorted(column(one) for one in SETTINGS if one not in FIXED)
            )
        planning.check_setting(name, value)


def plan_ladder(base: Plan, rungs: Sequence[Rung], one_at_a_time: bool = False) -> tuple[Plan, list[Fields]]:
    """The cells of all rungs, and what the study keeps of each: name, changes on the base, place of the rung it changes.

    base: one cell per framework. UsageError where a rung makes no other cell.
    """
    twice = {cell.framework for cell in base.cells if sum(c.framework == cell.framework for c in base.cells) > 1}
    if twice:
        raise UsageError(f"a ladder starts from one cell per framework; {min(twice)} has several: give single values")
    stored: list[Fields] = [{"name": BASE, "changes": {}}]
    for rung in rungs:
        on = 0 if one_at_a_time else len(stored) - 1
        stored.append({"name": rung.name, "changes": {**stored[on]["changes"], **rung.settings}, "on": on})
    cells: dict[Cell, str] = {}
    for one, own in zip(stored, [{}, *(rung.settings for rung in rungs)]):
        for cell in base.cells:
            made = changed(cell, one["changes"])
            planning.check_changed(made, one["changes"], base)
            planning.check_of_sgd(own, [made.config])
            if made in cells:
                raise UsageError(
                    f"rung {one['name']!r} is the same as {cells[made]!r} for {cell.framework}; change another setting"
                )
            cells[made] = one["name"]
    return dataclasses.replace(base, cells=tuple(cells)), stored


def changed(cell: Cell, changes: Document) -> Cell:
    """A cell with other settings; arrays have no pipeline of a framework's own, and nothing runs beside it."""
    if registry.of_arrays(cell.model):
        fixed = {"pipeline": "shared"} if changes.get("pipeline") == "native" else {}
        changes = {**changes, **fixed, "loader_workers": 0}
    config = dataclasses.replace(cell.config, **changes)
    return dataclasses.replace(cell, device=config.device, config=config)
