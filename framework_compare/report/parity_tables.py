"""Parity as tables: the levels of each framework and model, and how far losses of training are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from framework_compare import registry
from framework_compare.parity.network.ladder import TOLERANCE
from framework_compare.report.names import title
from framework_compare.report.table_notes import cell_title
from framework_compare.report.table_spec import FRAMEWORK, MODEL, Column, named, tabulate
from framework_compare.report.tables import NOTHING, Table, Value
from framework_compare.results.parity import LEVELS, NOT_INSTALLED, UNSUPPORTED, Parity

if TYPE_CHECKING:
    from framework_compare.parity.training.curves import Curves


def parity_table(verdicts: Sequence[Parity]) -> Table:
    """Errors of levels 1 to 3 in units of the yardstick, of level 4 in units of its tolerance; notes of failures.

    One row per framework, model, precision and execution.
    """

    def worst(one: Parity) -> str:
        level = one.worst
        return NOTHING if level is None or level.error is None else f"{level.error:.1e} {level.where}"

    def holds(one: Parity) -> Value:
        if one.status in (UNSUPPORTED, NOT_INSTALLED):
            return Value(one.status, one.reason)
        return Value(one.holds() or NOTHING, f"{cell_title(one)}: {one.remark}" if one.remark else "")

    settings = (named(name, always=True) for name in ("precision", "execution"))
    return tabulate(
        "Parity relative to the float64 reference.",
        (FRAMEWORK, named("version", always=True), MODEL, *settings),
        (
            Column("holds", holds, None),
            *(Column(str(number), _level(number), None) for number in LEVELS),
            Column("worst error", worst, None),
        ),
        verdicts,
        remarks=(
            f"Levels: {'; '.join(f'{number}: {text}' for number, text in LEVELS.items())}.",
            f"Levels 1 to 3: error in units of the effect of the precision's rounding on the reference; up to {TOLERANCE:g} "
            "is allowed. Level 4: error in units of the difference that decoders and resamplers explain.",
            *registry.labels(one.framework for one in verdicts),
        ),
    )


def _level(number: int) -> Callable[[Parity], Value]:
    def level(one: Parity) -> Value:
        found = next((level for level in one.levels if level.number == number), None)
        if found is None:
            return Value(NOTHING)
        if not found.asked:
            return Value(NOTHING if found.passed else "not asked", f"{title(one.framework)}: {found.where}")
        if found.passed:
            return Value("ok" if found.ratio is None else f"{found.ratio:.2f}")
        worst = one.diverges and number == one.worst.number  # type: ignore[union-attr]
        text = f"{cell_title(one)}: {found.where}" + (f"; {one.diverges}" if worst else "")
        return Value("no" if found.ratio is None else f"{found.ratio:.1f}", text)

    return level


def curves_table(curves: Sequence[Curves]) -> Table:
    """One row per model: largest distances from float64 and between two frameworks, in units of the yardstick."""
    known = (kind for one in curves for kind in (one.losses, one.failures, one.unsupported))
    names, setting = list(dict.fromkeys(name for kind in known for name in kind)), curves[0].setting
    return tabulate(
        f"Losses of {setting['steps']} steps on {setting['dataset']}: batches of {setting['batch_size']}, "
        f"{setting['image_size']} x {setting['image_size']} pixels, learning rate {setting['learning_rate']:g}, "
        f"momentum {setting['momentum']:g}, no dropout.",
        (MODEL,),
        (
            Column("first step", lambda one: f"{one.yardstick[0]:.1e}", "yardstick at"),
            Column("last step", lambda one: f"{one.yardstick[-1]:.1e}", "yardstick at"),
            *(Column(title(name), _off(name), "off float64") for name in names),
            Column("furthest apart", lambda one: f"{one.ratio(one.apart()):.2f}" if one.losses else NOTHING),
            Column("within", lambda one: "yes" if one.hold else "no"),
        ),
        curves,
        remarks=(
            "Distance from the float64 loss, and between the two frameworks that are furthest apart. Each is the maximum over "
            "all steps, in yardsticks of its step.",
            *registry.labels(names),
        ),
    )


def _off(name: str) -> Callable[[Curves], Value]:
    def off(one: Curves) -> Value:
        if name in one.losses:
            return Value(f"{one.ratio(one.off(name)):.2f}")
        reason = one.failures.get(name) or one.unsupported.get(name)
        if reason is None:
            return Value(NOTHING)
        text = f"{title(name)} {title(one.model)}: {reason}"
        return Value("failed" if name in one.failures else "unsupported", text)

    return off
