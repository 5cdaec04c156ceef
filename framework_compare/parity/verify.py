"""`verify()`: check the parity levels of every framework and model, each framework in a worker of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from framework_compare import registry
from framework_compare.environments import support
from framework_compare.environments.managed import Environment
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.graph import Graph, Task
from framework_compare.launch.scratch import scratch
from framework_compare.parity import cache
from framework_compare.parity.network.divergence import first_divergence
from framework_compare.parity.network.ladder import Judge, wider_than_claimed
from framework_compare.parity.network.reference import Questions, Reference, least_batch, make_reference
from framework_compare.parity.network.tasks import dropout_tasks, network_tasks
from framework_compare.parity.pipeline import pipelines
from framework_compare.parity.state import state
from framework_compare.parity.training import practice
from framework_compare.parity.workers import RunTasks
from framework_compare.plan import planning
from framework_compare.plan.planning import Names
from framework_compare.protocol import TrainConfig, replicas_of
from framework_compare.records import Run
from framework_compare.results.parity import FAILED, PASSED, UNSUPPORTED, Level, Parity

Say = Callable[[str], None]
NOT_OF_PICTURES = Level(4, True, "arrays have one pipeline for all frameworks", asked=False)
ON_ONE_DEVICE = Level(4, True, "pipelines and training as cells train are asked on one device", asked=False)


@dataclasses.dataclass(frozen=True)
class Where:
    """Which interpreters the frameworks run in, as `environments.ensure` takes them."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installer: str = "pip"

    def environment(self, name: str, say: Say, device: str = "cpu") -> Union[Environment, Run]:
        """A framework's environment on a device, or how a cell ends without one: unsupported or not-installed."""
        return support.ready(
            name, device, python=self.python.get(name), index=self.index.get(name), installer=self.installer, say=say
        )


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
    """Check every framework, model and combination of settings; a cached verdict is not checked again.

    settings: those of SETTINGS that a verdict depends on, and threads. fresh: check again and ignore the cache.
    folder: for the workers' files; by default they are deleted.
    """
    names = planning.find_all("framework", registry.FRAMEWORKS, frameworks)
    chosen = planning.find_models(models)
    configs = planning.expand_configs(settings)
    planning.check_graphs(chosen, configs)  # before an environment is made, which takes minutes
    with _folder(folder) as place:
        climbs: Dict[str, Climb] = {}
        for device in dict.fromkeys(config.device for config in configs):  # which has environments of its own
            own = place / device.replace(":", "-")
            own.mkdir(exist_ok=True)
            ready = {name: where.environment(name, say, device) for name in names}
            climbs[device] = Climb(own, ready, questions, fresh, say)
        return [
            climbs[config.device].parity(framework, model, config)
            for model in chosen
            for config in configs
            for framework in names
        ]


@contextlib.contextmanager
def _folder(given: Optional[Path]) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    with scratch() as temporary:
        yield temporary


class Climb:
    """One call of `verify`: references are made once a graph, pipelines judged once a framework."""

    def __init__(
        self,
        folder: Path,
        ready: Mapping[str, Union[Environment, Run]],
        questions: Questions = Questions(),
        fresh: bool = False,
        say: Say = lambda message: None,
    ) -> None:
        self.folder = folder
        self.ready = ready
        self.questions = questions
        self.fresh = fresh
        self.say = say
        self._graph: Optional[Graph] = None
        self._asked: Optional[Questions] = None
        self._references: Dict[str, Reference] = {}  # of that graph, by precision
        self._climbed: Dict[str, Any] = {}
        self._states: Dict[Tuple[str, str], Any] = {}  # by framework and device
        self._lacks: Dict[Tuple[str, TrainConfig], Optional[str]] = {}  # why a framework cannot run such a cell

    def parity(self, framework: str, model: str, config: TrainConfig, task: Optional[Task] = None) -> Parity:
        """The verdict on one framework, model and config, from the cache or from workers.

        task: of a workload whose data are not those that are generated.
        """
        entry, environment = registry.framework(framework), self.ready[framework]
        if isinstance(environment, Run):
            return _lacking(framework, environment, model, config)
        graph = planning.build_graph(model, config, task)
        config, questions = _asked(model, graph, config, self.questions)
        key = cache.network_key(entry, self._state(framework, config), graph, config, questions)
        found = None if self.fresh and key not in self._climbed else cache.load_network(key)
        if found is None:
            found = self._climb(framework, model, graph, config, environment)
            self._climbed[key] = True
            if found.status != UNSUPPORTED and not found.reason:  # what was lacking, or killed, need not be next time
                cache.save(key, found.to_dict())
        found = dataclasses.replace(found, model=model)
        if found.status == UNSUPPORTED:
            return found
        if registry.of_arrays(model):  # what follows is of pictures
            return with_level(found, NOT_OF_PICTURES)
        if questions.replicas > 1:
            return with_level(found, ON_ONE_DEVICE)
        return self._with_pipeline(self._with_practice(found, config, environment), config, environment)

    def network(self, framework: str, model: str, config: TrainConfig) -> Parity:
        """Levels 0 to 3 and 5 from a worker, whatever is cached; EnvironmentUnavailable without an environment."""
        environment = self.ready[framework]
        if isinstance(environment, Run):
            raise EnvironmentUnavailable(environment.reason)
        return self._climb(framework, model, planning.build_graph(model, config), config, environment)

    def cached(self, framework: str, model: str, config: TrainConfig, task: Optional[Task] = None) -> Optional[Parity]:
        """The verdict if all of its parts are known, else None; no worker is started."""
        entry, environment = registry.framework(framework), self.ready[framework]
        if isinstance(environment, Run):
            return None
        graph = planning.build_graph(model, config, task)
        config, questions = _asked(model, graph, config, self.questions)
        found = cache.load_network(cache.network_key(entry, self._state(framework, config), graph, config, questions))
        if found is not None and registry.of_arrays(model):
            return with_level(dataclasses.replace(found, model=model), NOT_OF_PICTURES)
        if found is not None and questions.replicas > 1:
            return with_level(dataclasses.replace(found, model=model), ON_ONE_DEVICE)
        level = _no_use(config) or cache.load_pipeline(
            cache.pipeline_key(entry, self._state(framework, config), config)
        )
        practised = self._practised(framework, config)
        if found is None or level is None or practised is None:
            return None
        return with_level(with_practice(dataclasses.replace(found, model=model), practised), level)

    def _practised(self, framework: str, config: TrainConfig) -> Optional[List[Level]]:
        """What is known of the small network's training. Cells from memory train as those of the native pipeline do."""
        entry, known = registry.framework(framework), self._state(framework, config)
        own = cache.load_levels(cache.practice_key(entry, known, config))
        if own is not None or config.pipeline != "memory":
            return own
        other = cache.load_levels(cache.practice_key(entry, known, dataclasses.replace(config, pipeline="native")))
        return other if other is not None and all(level.passed for level in other) else None

    def _state(self, framework: str, config: TrainConfig) -> Any:
        """What verdicts on a framework are kept by, found out once a call of `verify`."""
        key = (framework, config.device)
        if key not in self._states:
            environment = self.ready[framework]
            assert isinstance(environment, Environment), f"{framework} has no environment to describe"
            self._states[key] = state(registry.framework(framework), environment, config.device)
        return self._states[key]

    def _with_practice(self, found: Parity, config: TrainConfig, environment: Environment) -> Parity:
        key = cache.practice_key(registry.framework(found.framework), self._state(found.framework, config), config)
        levels = self._climbed.get(key)
        if levels is None:
            levels = self._seek_practice(found.framework, config, environment, key)
        return with_practice(found, levels)

    def _seek_practice(self, framework: str, config: TrainConfig, environment: Environment, key: str) -> List[Level]:
        """What is kept, or found out now: it is the same for all networks, so of calls side by side one seeks it."""
        if self.fresh:
            return self._practise(framework, config, environment, key)
        known = self._practised(framework, config)
        if known is not None:
            return known
        with cache.lock(key):
            known = self._practised(framework, config)
            return self._practise(framework, config, environment, key) if known is None else known

    def _practise(self, framework: str, config: TrainConfig, environment: Environment, key: str) -> List[Level]:
        self.say(f"{framework} {config.precision} {config.execution}: training as cells train")
        levels = practice.judge(self._launcher(framework, config, environment), config)
        self._climbed[key] = levels
        if all(level.answered for level in levels):  # a worker may have been killed
            cache.save(key, {"levels": [dataclasses.asdict(level) for level in levels]})
        return levels

    def _with_pipeline(self, found: Parity, config: TrainConfig, environment: Environment) -> Parity:
        needless = _no_use(config)
        if needless is not None:
            return with_level(found, needless)
        key = cache.pipeline_key(registry.framework(found.framework), self._state(found.framework, config), config)
        level = None if self.fresh and key not in self._climbed else self._climbed.get(key) or cache.load_pipeline(key)
        if level is None or not level.asked:  # what was lacking may have been installed since
            self.say(f"{found.framework}: native pipeline")
            level = pipelines.judge(self._launcher(found.framework, config, environment), config)
            self._climbed[key] = level
            if level.answered:
                cache.save(key, dataclasses.asdict(level))
        return with_level(found, level)

    def _climb(self, framework: str, model: str, graph: Graph, config: TrainConfig, environment: Environment) -> Parity:
        started = time.monotonic()
        name = f"{framework}-{model}-{config.precision}-{config.execution}"
        reason = self._lack(framework, graph, config, environment)
        if reason is not None:
            return _lacking(framework, Run(UNSUPPORTED, reason, framework_version=environment.version), model, config)
        _, questions = _asked(model, graph, config, self.questions)
        found, place = self._reference_of(graph, config.precision, questions)
        self.say(f"{name.replace('-', ' ')}: levels 0 to 3 and 5")
        # larger than the batches that are asked about: as the last one of an epoch is, and must be averaged by its own size
        changed: Dict[str, Any] = {"batch_size": questions.batch_size + 1, **found.optimiser}
        config = dataclasses.replace(config, **changed)
        run_tasks = self._launcher(framework, config, environment)
        run, said, answers = run_tasks([*network_tasks(found, place), *dropout_tasks(graph, found, place)], name)
        if run.status == "unsupported":
            return _lacking(framework, run, model, config)
        judge = Judge(graph, found, answers, said, run)
        levels = tuple(judge.levels())
        failed = [level for level in levels if not level.passed]
        seeks = failed and found.replicas == 1  # layers are asked about on one device
        diverges = first_divergence(failed[0], judge, run_tasks, place) if seeks else ""
        shutil.rmtree(answers, ignore_errors=True)
        return Parity(
            framework,
            run.framework_version or "",
            model,
            config.execution,
            FAILED if failed else PASSED,
            run.reason if run.status != "ok" else "",
            levels,
            diverges,
            round(time.monotonic() - started, 1),
            config.precision,
            wider_than_claimed(config.precision, levels),
            dict(run.settings),
        )

    def _lack(self, framework: str, graph: Graph, config: TrainConfig, environment: Environment) -> Optional[str]:
        """Why a framework cannot run such a cell, asked once, and before a reference is made for nothing."""
        key = (framework, config)
        plain = (config.device, config.precision, config.execution) == ("cpu", "fp32", "default")  # which all have
        held = self._graph == graph and config.precision in self._references
        if not plain and not held and key not in self._lacks:
            run, _, folder = self._launcher(framework, config, environment)([], f"{framework}-asked")
            shutil.rmtree(folder, ignore_errors=True)
            self._lacks[key] = run.reason if run.status == "unsupported" else None
        return self._lacks.get(key)

    def _reference_of(self, graph: Graph, precision: str, questions: Questions) -> Tuple[Reference, Path]:
        """The reference of a precision, and the folder of the questions, which are the same for all precisions."""
        place = self.folder / "reference"
        if (self._graph, self._asked) != (graph, questions):
            self.say(f"{graph.name}: reference in float64, yardstick of {precision}")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            self._references.clear()  # the former one's arrays are not needed while the next is made
            found = make_reference(graph, questions, precision)
            found.write(place)
            self._graph, self._asked, self._references[precision] = graph, questions, found
        elif precision not in self._references:
            self.say(f"{graph.name}: yardstick of {precision}")
            held = next(iter(self._references.values()))
            self._references[precision] = held.at(precision, questions.draws)
        return self._references[precision], place

    def _launcher(self, framework: str, config: TrainConfig, environment: Environment) -> "RunTasks":
        return RunTasks(self.folder, framework, config, environment)


def _lacking(framework: str, run: Run, model: str, config: TrainConfig) -> Parity:
    version = run.framework_version or ""
    return Parity(framework, version, model, config.execution, run.status, run.reason, precision=config.precision)


def _asked(model: str, graph: Graph, config: TrainConfig, questions: Questions) -> Tuple[TrainConfig, Questions]:
    """What a cell's network is asked: its own optimiser's steps on batches that BatchNorm can stand.

    A workload is asked with our pipeline, as it has no other.
    """
    if registry.of_arrays(model):
        config = dataclasses.replace(config, pipeline="shared", loader_workers=0)
    replicas = len(replicas_of(config))
    size = max(questions.batch_size, least_batch(graph))
    return config, dataclasses.replace(questions, batch_size=size, optimizer=config.optimizer, replicas=replicas)


def _no_use(config: TrainConfig) -> Optional[Level]:
    """Level 4 where a cell is fed by another pipeline than the framework's own, which is the same for all; else None."""
    if config.pipeline == "native":
        return None
    return Level(4, True, f"pipeline {config.pipeline!r} has no use for the native one", asked=False)


def with_practice(found: Parity, levels: Sequence[Level]) -> Parity:
    """A verdict with what failed in the small network's training, where its own level held."""
    held = {level.number for level in found.levels if level.passed}
    for level in levels:
        if not level.passed and level.number in held:
            found = with_level(found, level)
    return found


def with_level(found: Parity, level: Level) -> Parity:
    """A verdict with one more level, in order."""
    others = (one for one in found.levels if one.number != level.number)
    levels = tuple(sorted((*others, level), key=lambda one: one.number))
    status = found.status if level.passed or not level.asked else FAILED
    return dataclasses.replace(found, levels=levels, status=status)
