"""Grid searches: workloads whose measured thing is the training of many candidates, one after the other."""

import itertools
from typing import Mapping, NamedTuple

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.graph import Graph, Task
from framework_compare.protocol import Document, Fields, TrainConfig, devices_of

SETTINGS = frozenset(TrainConfig.__dataclass_fields__)


class Candidate(NamedTuple):
    """One network of a search: arguments of the model, and settings of its training."""

    size: Document
    settings: Document

    @property
    def label(self) -> str:
        """Return the setting in words, such as "learning rate 0.01, layers 1"."""
        values = {**self.settings, **self.size}
        return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())


def is_search(model: str) -> bool:
    return model in registry.MODELS and bool(registry.MODELS[model].search)


def candidates(model: str) -> list[Candidate]:
    """The product of what a search varies, in the order in which it is trained."""
    search = registry.MODELS[model].search
    found = []
    for values in itertools.product(*search.values()):
        named: Fields = dict(zip(search, values))
        found.append(
            Candidate(
                {name: value for name, value in named.items() if name not in SETTINGS},
                {name: value for name, value in named.items() if name in SETTINGS},
            )
        )
    return found


def graph_of(model: str, candidate: Candidate, task: Task) -> Graph:
    graph: Graph = registry.load(registry.MODELS[model].build)(task, **candidate.size)
    return graph


def check(model: str, given: Mapping[str, object], config: TrainConfig, limit: int | None) -> None:
    """UsageError for what a search has no use for; given: the settings that the user named."""
    for name, tried in registry.MODELS[model].search.items():
        if name in given:
            raise UsageError(f"{name} is {given[name]!r}; {model} tries {', '.join(f'{value:g}' for value in tried)}")
    if limit is not None:
        raise UsageError(f"limit is {limit}; {model} trains on folds of all rows")
    if len(devices_of(config.device)) > 1:
        raise UsageError(f"device is {config.device!r}; {model} is a search, which runs on one device")
    for name, allowed in (
        ("mode", "train"),
        ("patience", 0),
        ("batch_growth", 1),
        ("label_smoothing", 0),
        ("nodes", 1),
        ("pipeline", "shared"),
    ):
        value = getattr(config, name)
        if value != allowed:
            raise UsageError(f"{name} is {value!r}; {model} is a search, which allows only {allowed!r}")
