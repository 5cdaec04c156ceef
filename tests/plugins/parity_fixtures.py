"""Frameworks that are the float32 reference with mistakes of their own, as the ladder's tests ask them."""

import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import pytest
from reference_adapter import write_adapter

from framework_compare import registry
from framework_compare.parity import verify as ladder
from framework_compare.parity.network import reference, rounding
from framework_compare.parity.pipeline import pipelines
from framework_compare.parity.verify import Where
from framework_compare.parity.workers import RunTasks
from framework_compare.protocol import TrainConfig
from framework_compare.registry import Framework
from framework_compare.results.parity import Level, Parity

CLASS = """

class Mutated(ReferenceTrainer):
{body}
"""
NOTHING = "    name = 'mutated'\n"
# The reference with every loss and optimizer, as source for `register_mutated`.
TRAINER = """
from framework_compare.graph import Optimizer
from .oracle import LOSSES, OPTIMIZERS

class Mutated(ReferenceTrainer):
    declared = ReferenceTrainer.declared._replace(losses=frozenset(LOSSES), optimizers=frozenset(OPTIMIZERS))

    def train_step(self, batch):
        config = self.config
        eps = {"eps": config.epsilon}
        sgd = {"momentum": config.momentum, "weight_decay": config.weight_decay}
        options = sgd if config.optimizer == "sgd" else eps
        optimizer = Optimizer(config.optimizer, config.learning_rate, options)
        return self.oracle.train_step(batch.images, batch.labels, optimizer=optimizer, dropout=self.random)[0]
"""


@pytest.fixture(scope="session")
def made_references() -> "Dict[Tuple[Any, ...], reference.Reference]":
    return {}


@pytest.fixture
def references(made_references: "Dict[Tuple[Any, ...], reference.Reference]", monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder's references are made once a process: they depend on no framework."""
    make = ladder.make_reference

    def make_once(graph: Any, questions: Any, precision: str) -> reference.Reference:
        key = (repr(graph.to_dict()), questions, precision, rounding.LOSS_SCALE)
        if key not in made_references:
            made_references[key] = make(graph, questions, precision)
        return made_references[key]

    monkeypatch.setattr(ladder, "make_reference", make_once)


@pytest.fixture
def short_level_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 4 has its two shortest parts only: for tests of what becomes of its verdict."""
    parts = [part for part in pipelines.PARTS if part.name in ("upside down", "not flipped")]
    assert len(parts) == 2
    monkeypatch.setattr(pipelines, "PARTS", tuple(parts))


@pytest.fixture
def register_mutated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path, warm: None
) -> Callable[..., None]:
    """Registers a framework: the float32 reference, and a class Mutated(ReferenceTrainer) of the source given."""

    def register(source: str, name: str = "mutated", **fields: Any) -> None:
        folder = write_adapter(tmp_path / name, source)
        entry = Framework(name, f"{folder}:Mutated", "", "numpy", ((3, 8), (3, 99)), **fields)
        monkeypatch.setitem(registry.FRAMEWORKS, name, entry)

    return register


@pytest.fixture
def ask_mutated(tmp_path: Path, register_mutated: Callable[..., None]) -> Callable[..., Tuple[RunTasks, TrainConfig]]:
    """Function that asks a worker of `mutated`, with settings of TrainConfig, as the ladder's judges want it."""

    def ask(source: str, **settings: Any) -> Tuple[RunTasks, TrainConfig]:
        register_mutated(source)
        environment = Where(python={"mutated": sys.executable}).environment("mutated", print)
        config = TrainConfig(threads=1, **settings)
        return RunTasks(tmp_path / "asked", "mutated", config, environment), config

    (tmp_path / "asked").mkdir()
    return ask


@pytest.fixture
def mutate(register_mutated, references, monkeypatch):
    """Registers a framework: the float32 reference, with the methods given, and the model `small`."""
    monkeypatch.setitem(registry.MODELS, "small", registry.Model("small:build"))
    return lambda body=NOTHING, name="mutated": register_mutated(CLASS.format(body=body), name)


@pytest.fixture
def pipeline_held(monkeypatch):
    """Level 4 holds unasked: what it sees is tested with the pipelines."""
    monkeypatch.setattr(ladder.pipelines, "judge", lambda run_tasks, config: Level(4, True))


@pytest.fixture
def training_held(monkeypatch):
    """The small network's training holds unasked: what it sees is tested in test_parity_training.py."""
    monkeypatch.setattr(ladder.training_check, "judge", lambda run_tasks, config: [Level(3, True)])


def climbs(models: Sequence[str] = ("small",), **settings: Any) -> List[Parity]:
    """The verdicts on `mutated` with these models."""
    where = ladder.Where(python={"mutated": sys.executable})
    return ladder.verify(["mutated"], models, where=where, **{"image_size": 32, "threads": 1, **settings})


def climb(model: str = "small", **settings: Any) -> Parity:
    (found,) = climbs([model], **settings)
    return found
