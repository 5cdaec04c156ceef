"""Runs whose rivals of the block have run before: one of these runs once more, so that they can take turns."""

from collections.abc import Callable

from framework_compare.store.study_file import Store
from framework_compare.study import schedules
from framework_compare.study.run_options import RunOptions
from framework_compare.study.schedules import Planned
from framework_compare.study.strategies import Strategy


def with_anchor(
    store: Store, group: list[Planned], options: RunOptions, strategy: Strategy, say: Callable[[str], None]
) -> list[Planned]:
    """Return runs of a block, beside the reference or the fastest of the rivals that ran before, if there are any."""
    if options.schedule != schedules.INTERLEAVED or strategy.limits_decide:
        return group
    paces = store.paces(group[0][2])
    anchor = schedules.anchor(group, paces, options.across_models, strategy.reference)
    if anchor and (added := store.beside_anchor([run_id for run_id, *_ in group], anchor)):
        labels = ", ".join(cell.label for _, cell, _ in group)
        say(f"{anchor.label} runs once more, so that {labels} can take turns with it")
        run_id, block = added
        return [(run_id, anchor, block), *((one, cell, block) for one, cell, _ in group)]
    return group
