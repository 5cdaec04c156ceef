"""The first page's answers: which framework is faster for which kind of model, on how many machines, and what is missing.

All of it comes from ratios within verified studies against which nothing is stated.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from framework_compare import registry
from framework_compare.archive.entries import Pair, base, spreads
from framework_compare.report.names import in_order, title

KINDS = {
    registry.CONVOLUTIONAL: "Convolutional networks",
    registry.TRANSFORMER: "Transformers",
    registry.RECURRENT: "Recurrent networks",
    registry.DENSE: "Dense networks",
    "": "Models of users",
}
PLACES = ("CPU", "GPU")  # that a first page is expected to answer for


class Answer(NamedTuple):
    """A kind of model in one place. A setting is a model under one condition.

    fastest: by name the number of settings in which a framework is shown to be faster than every other. slowdowns: by
    framework the median over settings of its epoch time over that of the fastest of the same study. replicated:
    settings in which two machines or more show the same difference, and none the opposite.
    """

    kind: str
    place: str
    models: tuple[str, ...]
    settings: int
    machines: int
    replicated: int
    fastest: Mapping[str, int]
    slowdowns: Mapping[str, float]
    missing: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Return who is fastest, in how many settings."""
        parts = [f"{names} ({count} of {self.settings} settings)" for names, count in self.fastest.items()]
        if not parts:
            return "No framework is significantly faster than all others."
        names = ", ".join(parts if self.settings > 1 else self.fastest)
        return f"Fastest of {len(self.slowdowns)} frameworks: {names}."


def answers(pairs: Iterable[Pair]) -> list[Answer]:
    """An answer for each kind of model and each place that ratios which count come from; `pairs` with the latest first."""
    groups: dict[tuple[str, str], dict[tuple[str, str], list[Pair]]] = {}
    for one in pairs:
        if one.counts and base(one.first) != base(one.second):
            known = registry.model_of_all(one.model)
            kind = KINDS.get(known.kind if known else "", KINDS[""])
            settings = groups.setdefault((kind, one.place), {})
            settings.setdefault((one.model, one.condition), []).append(one)
    found = [_answer(*key, settings) for key, settings in groups.items()]
    order = list(KINDS.values())
    return sorted(found, key=lambda one: (order.index(one.kind), one.place))


def gaps(found: Sequence[Answer]) -> list[str]:
    """The kinds of model that no verified study compares, by place."""
    known = {(one.kind, one.place) for one in found}
    return [f"{kind} on {place}" for place in PLACES for kind in KINDS.values() if (kind, place) not in known]


def _answer(kind: str, place: str, settings: Mapping[tuple[str, str], Sequence[Pair]]) -> Answer:
    fastest: Counter[str] = Counter()
    slowdowns: dict[str, list[float]] = {}
    replicated = 0
    for pairs in settings.values():
        leader, again = _leader(pairs)
        replicated += again
        fastest.update([leader] if leader else [])
        for name, slowdown in _slowdowns(pairs).items():
            slowdowns.setdefault(name, []).append(slowdown)
    names = in_order(list(slowdowns))
    return Answer(
        kind,
        place,
        models=tuple(dict.fromkeys(model for model, _ in settings)),
        settings=len(settings),
        machines=len({one.machine for pairs in settings.values() for one in pairs}),
        replicated=replicated,
        fastest=dict(fastest.most_common()),
        slowdowns={name: statistics.median(slowdowns[name]) for name in names},
        missing=tuple(name for name in registry.FRAMEWORKS if name not in slowdowns),
    )


def _leader(pairs: Sequence[Pair]) -> tuple[str, bool]:
    """The framework that is shown to be faster than all others, else ""; whether a second machine shows a difference."""
    beaten: dict[str, set[str]] = {}
    replicated = False
    for several in spreads(pairs).values():
        for one in several:
            ahead, behind = one.shown_on
            if ahead != behind:
                winner, loser = (one.first, one.second) if ahead > behind else (one.second, one.first)
                beaten.setdefault(base(winner), set()).add(base(loser))
            replicated |= max(ahead, behind) > 1 and not min(ahead, behind)
    names = {base(name) for one in pairs for name in (one.first, one.second)}
    for _ in names:  # what beats one that beats a third beats that, too: few studies compare all
        beaten = {name: others.union(*(beaten.get(other, ()) for other in others)) for name, others in beaten.items()}
    return next((title(name) for name, others in beaten.items() if others == names - {name}), ""), replicated


def _slowdowns(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return each framework's time over the fastest of its study: the median over machines of medians over studies."""
    studies: dict[tuple[str, str], dict[str, float]] = {}
    for one in pairs:
        behind = studies.setdefault((one.machine, one.id), {})
        for name, ratio in ((base(one.first), 1 / one.ratio), (base(one.second), one.ratio)):
            behind[name] = max(behind.get(name, 1.0), ratio)
    found: dict[str, dict[str, list[float]]] = {}
    for (machine, _), behind in studies.items():
        for name, slowdown in behind.items():
            found.setdefault(name, {}).setdefault(machine, []).append(slowdown)
    return {name: statistics.median(map(statistics.median, of.values())) for name, of in found.items()}
