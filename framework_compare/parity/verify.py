"""`verify()`: climb the ladder for every framework and model, each framework in a worker of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from framework_compare import environments, planning, registry, staging
from framework_compare.environments import Environment
from framework_compare.errors import EnvironmentUnavailable, UsageError
from framework_compare.graph import Graph
from framework_compare.launcher import Launch, launch
from framework_compare.limits import Limits
from framework_compare.parity import cache, pipelines
from framework_compare.parity.divergence import first_divergence
from framework_compare.parity.ladder import Judge, dropout_tasks, network_tasks
from framework_compare.parity.reference import Questions, Reference, make_reference
from framework_compare.parity.result import FAILED, PASSED, UNSUPPORTED, Level, Parity
from framework_compare.planning import Names
from framework_compare.probe import ANSWERS
from framework_compare.protocol import TrainConfig
from framework_compare.records import Run

Say = Callable[[str], None]
WORKER_TIMEOUT_S = 900.0


@dataclasses.dataclass(frozen=True)
class Where:
    """Which interpreters the frameworks run in, as `environments.ensure` takes them."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installer: str = "pip"

    def environment(self, name: str, say: Say) -> Union[Environment, str]:
        """A framework's environment, or why there is none."""
        try:
            return environments.ensure(
                name, python=self.python.get(name), installer=self.installer, index=self.index.get(name), report=say
            )
        except EnvironmentUnavailable as error:
            return str(error)


def verify(
    frameworks: Names,
    models: Names,
    *,
    where: Where = Where(),
    fresh: bool = False,
    say: Say = lambda message: None,
    questions: Questions = Questions(),
    folder: Optional[Path] = None,
    **settings: Any,
) -> List[Parity]:
    """The ladder of every framework, model and combination of settings; a verdict that is cached is not sought again.

    settings are fields of TrainConfig, as for `compare`: device, execution (may be a list), tuning, image_size,
    num_classes, threads. fresh: climb again whatever is cached. folder keeps what workers wrote; by default nothing is.
    """
    names = planning.find_all("framework", registry.FRAMEWORKS, frameworks)
    chosen = planning.find_all("model", registry.MODELS, models)
    configs = planning.expand_configs({"threads": None, **settings})
    for config in configs:
        check_can_verify(config)
    with _folder(folder) as place:
        climb = Climb(place, {name: where.environment(name, say) for name in names}, questions, fresh, say)
        return [
            climb.parity(framework, model, config)
            for model in chosen
            for config in configs
            for framework in names
        ]


def check_can_verify(config: TrainConfig) -> None:
    """UsageError for a precision that the float32 yardstick does not measure."""
    if config.precision != "fp32":
        raise UsageError(f"precision {config.precision!r} cannot be verified; the ladder's yardstick is float32: use fp32")


@contextlib.contextmanager
def _folder(given: Optional[Path]) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="framework-compare-verify-") as temporary:
        yield Path(temporary)


class Climb:
    """One call of `verify`: references are made once a graph, pipelines judged once a framework."""

    def __init__(
        self,
        folder: Path,
        ready: Mapping[str, Union[Environment, str]],
        questions: Questions = Questions(),
        fresh: bool = False,
        say: Say = lambda message: None,
    ) -> None:
        self.folder = folder
        self.ready = ready
        self.questions = questions
        self.fresh = fresh
        self.say = say
        self._reference: Optional[Tuple[Graph, Reference, Path]] = None
        self._climbed: Dict[str, Any] = {}

    def parity(self, framework: str, model: str, config: TrainConfig) -> Parity:
        """The verdict on one framework, model and config, from the cache or from workers."""
        entry, environment = registry.framework(framework), self.ready[framework]
        if isinstance(environment, str):
            return Parity(framework, "", model, config.execution, UNSUPPORTED, environment)
        graph = planning.build_graph(model, config)
        key = cache.network_key(entry, environment.version, graph, config)
        found = None if self.fresh and key not in self._climbed else cache.load_network(key)
        if found is None:
            found = self._climb(framework, model, graph, config, environment)
            self._climbed[key] = True
            cache.save(key, found.to_dict())
        found = dataclasses.replace(found, model=model)
        return found if found.status == UNSUPPORTED else self._with_pipeline(found, config, environment)

    def network(self, framework: str, model: str, config: TrainConfig) -> Parity:
        """Levels 0 to 3 and 5 from a worker, whatever is cached; EnvironmentUnavailable without an environment."""
        environment = self.ready[framework]
        if isinstance(environment, str):
            raise EnvironmentUnavailable(environment)
        return self._climb(framework, model, planning.build_graph(model, config), config, environment)

    def cached(self, framework: str, model: str, config: TrainConfig) -> Optional[Parity]:
        """The verdict if both of its parts are known, else None; no worker is started."""
        entry, environment = registry.framework(framework), self.ready[framework]
        if isinstance(environment, str):
            return None
        graph = planning.build_graph(model, config)
        found = cache.load_network(cache.network_key(entry, environment.version, graph, config))
        level = cache.load_pipeline(cache.pipeline_key(entry, environment.version, config))
        if found is None or level is None:
            return None
        return with_level(dataclasses.replace(found, model=model), level)

    def _with_pipeline(self, found: Parity, config: TrainConfig, environment: Environment) -> Parity:
        key = cache.pipeline_key(registry.framework(found.framework), environment.version, config)
        level = None if self.fresh and key not in self._climbed else cache.load_pipeline(key)
        if level is None:
            self.say(f"{found.framework}: native pipeline")
            level = pipelines.judge(self._launcher(found.framework, config, environment), config)
            self._climbed[key] = True
            cache.save(key, dataclasses.asdict(level))
        return with_level(found, level)

    def _climb(
        self, framework: str, model: str, graph: Graph, config: TrainConfig, environment: Environment
    ) -> Parity:
        started = time.monotonic()
        found, place = self._reference_of(graph)
        self.say(f"{framework} {model} {config.execution}: levels 0 to 3 and 5")
        config = dataclasses.replace(config, batch_size=self.questions.batch_size, **found.optimiser)
        run_tasks = self._launcher(framework, config, environment)
        tasks = [*network_tasks(found, place), *dropout_tasks(graph, found, place)]
        run, said, answers = run_tasks(tasks, f"{framework}-{model}-{config.execution}")
        version = run.framework_version or ""
        if run.status == "unsupported":
            return Parity(framework, version, model, config.execution, UNSUPPORTED, run.reason)
        levels = tuple(Judge(graph, found, answers, said, run.settings).levels())
        failed = [level for level in levels if not level.passed]
        diverges = first_divergence(failed[0], found, run_tasks, place) if failed else ""
        shutil.rmtree(answers, ignore_errors=True)
        reason = run.reason if run.status != "ok" else ""
        status = FAILED if failed else PASSED
        seconds = round(time.monotonic() - started, 1)
        return Parity(framework, version, model, config.execution, status, reason, levels, diverges, seconds)

    def _reference_of(self, graph: Graph) -> Tuple[Reference, Path]:
        if self._reference is None or self._reference[0] != graph:
            self.say(f"{graph.name}: reference in float64, yardstick in float32")
            place = self.folder / "reference"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            self._reference = None  # the former one's arrays are not needed while the next is made
            found = make_reference(graph, self.questions)
            found.write(place)
            self._reference = (graph, found, place)
        return self._reference[1:]

    def _launcher(self, framework: str, config: TrainConfig, environment: Environment) -> "RunTasks":
        return RunTasks(self.folder, framework, config, environment)


@dataclasses.dataclass(frozen=True)
class RunTasks:
    """Starts a worker of one framework that answers tasks."""

    folder: Path
    framework: str
    config: TrainConfig
    environment: Environment
    kind: str = "verify"  # of the job: who answers in the worker

    def __call__(
        self, tasks: Sequence[Dict[str, Any]], name: str, **changed: Any
    ) -> Tuple[Run, Dict[str, Any], Path]:
        """The run, its small answers, and the folder of its arrays; `changed` are fields of the config."""
        entry = registry.framework(self.framework)
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        job = {
            "kind": self.kind,
            "config": dataclasses.replace(self.config, epochs=0, **changed).to_dict(),
            "trainer": staging.trainer_target(entry),
            "tasks": list(tasks),
        }
        run = launch(
            Launch(
                python=self.environment.python,
                source=staging.stage(entry),
                folder=folder,
                job=job,
                device=self.config.device,
                managed=self.environment.managed,
                hz=0,
                limits=Limits(timeout_s=WORKER_TIMEOUT_S),
            )
        )
        if run.status == "interrupted":
            raise KeyboardInterrupt
        answers = folder / ANSWERS
        said = json.loads(answers.read_text(encoding="utf-8")) if answers.exists() else {}
        return run, said, folder


def with_level(found: Parity, level: Level) -> Parity:
    """A verdict with one more level, in order."""
    levels = tuple(sorted((*(l for l in found.levels if l.number != level.number), level), key=lambda l: l.number))
    status = found.status if level.passed else FAILED
    return dataclasses.replace(found, levels=levels, status=status)
