"""The workers of one adapter under test; each is started once, when a test first needs what it says."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar

import pytest

from framework_compare import registry
from framework_compare.conformance import graphs, material
from framework_compare.environments.managed import Environment
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.graph import OPS
from framework_compare.json_types import JSON
from framework_compare.launch.jobs import run_job
from framework_compare.launch.limits import Limits
from framework_compare.parity.pipeline import pipelines
from framework_compare.parity.training import training_check
from framework_compare.parity.verify import ParityChecker, RunTasks, Where
from framework_compare.protocol import Fields, Job, TrainConfig
from framework_compare.records import Run
from framework_compare.registry import Framework
from framework_compare.results.parity import Level, Parity

Made = TypeVar("Made")
ROW_TIMEOUT_S = 300.0  # of a cell of a few steps; an optimising compiler may take a minute of it
CONFIG = TrainConfig(
    batch_size=4,
    epochs=1,
    learning_rate=0.01,
    momentum=0.9,
    threads=1,
    loader_workers=2,
    warmup_steps=1,
    image_size=32,
    num_classes=material.CLASSES,
)


@dataclasses.dataclass(frozen=True)
class Answers:
    """One worker's answers: how its run ended, an answer per question, the folder of its arrays and log."""

    run: Run
    said: Fields
    folder: Path

    def __getitem__(self, name: str) -> JSON:
        """The answer to a question; fails the test where the adapter raised, skips it where it was not asked."""
        answer = self.said.get(name)
        if answer is None:
            pytest.skip(f"the worker ended before it was asked for this ({self.run.status}: {self.run.reason})")
        if "error" in answer:
            log = self.folder / "log.txt"
            pytest.fail(f"the adapter raised {answer['error']}\nThe traceback is in {log}", pytrace=False)
        return answer


ANY_PYTHON = ((3, 8), (3, 99))


class Trial:
    """One adapter, on one device, in its own environment."""

    def __init__(self, framework: str, device: str, where: Where) -> None:
        self.framework = framework
        self.where = where
        self.config = dataclasses.replace(CONFIG, device=device)
        self.folder = Path()  # the session's; set before a worker is asked for
        self.say: Callable[[str], None] = lambda message: None
        self._done: Fields = {}  # what workers said, by what they were asked for

    @functools.cached_property
    def environment(self) -> Environment:
        """The framework's environment, made if needed; fails the test if there is none."""
        found = self.where.environment(self.framework, self.say, self.config.device)
        if isinstance(found, Run):
            raise EnvironmentUnavailable(found.reason)
        return found

    @functools.cached_property
    def its_class(self) -> Answers:
        """Return what is known without the framework: `methods` and `declared`; neither if its file fails."""
        return self._ask("class", [])

    @property
    def fault(self) -> str:
        """Return why no worker can be asked more than the class, in words that name the test which says so, or ""."""
        said = self.its_class.said
        if said.get("methods"):
            return "a method is missing or has different arguments; test_has_every_method says which"
        if said.get("declared", {}).get("fault"):
            return "its class does not declare what it implements; test_declares_what_it_implements says how"
        return f"its class declares no {self.lack}; test_declares_the_least says more" if self.lack else ""

    @functools.cached_property
    def ops(self) -> List[str]:
        """Return the ops that the class declares; all if it does not say, which another test reports."""
        return self.its_class.said.get("declared", {}).get("ops", sorted(OPS))

    @property
    def lack(self) -> str:
        """Return what every test needs and its class does not declare, in words, or ""."""
        found, config = self.its_class.said.get("declared", {}), self.config
        needs = (("losses", "loss", config.loss), ("optimizers", "optimizer", config.optimizer))
        lacking = [f"{noun} {name!r}" for field, noun, name in needs if name not in found.get(field, [name])]
        return " and ".join(filter(None, [graphs.lack(self.ops), *lacking]))

    @functools.cached_property
    def material(self) -> material.Material:
        return material.write(self.folder / "material", self.config, self.ops)

    @functools.cached_property
    def conduct(self) -> Answers:
        """All questions on conduct, in an order in which none disturbs the next."""
        return self._ask("conduct", self.material.conduct_tasks())

    @functools.cached_property
    def again(self) -> Answers:
        """Losses and the native pipeline once more in a fresh worker of the same seed, without loader workers."""
        return self._ask("again", self.material.repeated_tasks(), loader_workers=0)

    @functools.cached_property
    def practised(self) -> Dict[int, Level]:
        """Levels 3 and 5 of a small network, trained as cells train."""
        return {level.number: level for level in training_check.judge(self._worker(), self.config)}

    def why_not_ready(self) -> str:
        """Return why the adapter cannot be tested beyond its methods and its start, or ""."""
        try:
            if self.fault:
                return self.fault
            conduct = self.conduct
        except EnvironmentUnavailable as error:
            return str(error)
        if "interface" not in conduct.said:
            return f"the adapter does not start ({conduct.run.status}: {conduct.run.reason})"
        return ""

    def parity(self, network: str, optimizer: str = CONFIG.optimizer) -> Parity:
        """Levels 0 to 3 and 5 of one network, whose steps are those of one optimiser."""

        def check() -> Parity:
            size = 32 if network.startswith("conformance-") else 224
            config = dataclasses.replace(self.config, num_classes=3, image_size=size, optimizer=optimizer)
            checker = ParityChecker(self.folder, {self.framework: self.environment}, fresh=True, say=self.say)
            return checker.network(self.framework, network, config)

        return self._once(f"parity {network} {optimizer}", check)

    def drawn(self, part: str) -> Level:
        """Level 4 of the native pipeline, of one of its parts."""

        def check() -> Level:
            self.say(f"{self.framework}: native pipeline, {part}")
            return pipelines.judge(self._worker(), self.config, only=[part])

        return self._once(f"drawn {part}", check)

    def row(self, name: str, *, graph: Optional[Fields] = None, listed: str = "", **changed: Any) -> Run:
        """The outcome of a cell run as `compare` runs it, with its own model, images and settings."""
        own = self.material
        job = Job(
            dataclasses.replace(self.config, **changed),
            graph=graph or own.graph.to_dict(),
            images=listed or str(own.images),
            weights=str(own.weights),
        )
        entry, limits = registry.framework(self.framework), Limits(timeout_s=ROW_TIMEOUT_S)
        place = self.folder / name
        return self._once(f"row {name}", lambda: run_job(entry, self.environment, job, place, limits=limits))

    def _once(self, name: str, ask: Callable[[], Made]) -> Made:
        if name not in self._done:
            self._done[name] = ask()
        made: Made = self._done[name]
        return made

    def _ask(self, name: str, tasks: List[Fields], **changed: object) -> Answers:
        self.say(f"{self.framework}: {name}")
        return Answers(*self._worker(kind="conformance")(tasks, name, **changed))

    def _worker(self, **kind: str) -> RunTasks:
        return RunTasks(self.folder, self.framework, self.config, self.environment, **kind)


def entry_of(text: str) -> Framework:
    """A registered framework by name or alias, or one registered now from `path/to/adapter.py:Class`, or its folder.

    The latter is called after its file. It runs in an environment of the requirements beside it (`adapter.txt`, in a
    folder `requirements.txt`), in the interpreter that --python names, or in that of pytest.
    """
    place, separator, name = text.rpartition(":")
    if text.endswith(".py") or (separator and (place.endswith(".py") or Path(place).is_dir())):
        return _register(Path(place if separator else text), name if separator else "")
    return registry.framework(text)


def _register(path: Path, trainer: str) -> Framework:
    if not trainer.isidentifier():
        raise UsageError(f"--framework {path} names no class; write it as {path}:Class")
    if not (path.is_file() or (path / "__init__.py").is_file()):
        raise UsageError(f"--framework {path}:{trainer}: there is no file {path.absolute()}")
    path = path.absolute()
    name = registry.ALIASES.get(path.stem.lower(), path.stem.lower())
    requirements = path / "requirements.txt" if path.is_dir() else path.with_suffix(".txt")
    entry = Framework(name, f"{path}:{trainer}", str(requirements) if requirements.is_file() else "", "", ANY_PYTHON)
    registry.register_framework(entry)
    return entry
