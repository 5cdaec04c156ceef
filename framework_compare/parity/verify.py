"""`verify()`: check the parity levels of every framework and model, each framework in a worker of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from framework_compare import registry
from framework_compare.environments import managed, support
from framework_compare.environments.managed import Environment
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.graph import Graph, Schedule, Task
from framework_compare.launch.scratch import scratch
from framework_compare.parity import asked, cache
from framework_compare.parity.asked import CheckForecast
from framework_compare.parity.network.divergence import first_divergence
from framework_compare.parity.network.ladder import Judge, remark
from framework_compare.parity.network.questions import Questions
from framework_compare.parity.network.reference import Reference, least_batch, make_reference
from framework_compare.parity.network.tasks import dropout_tasks, generation_tasks, network_tasks
from framework_compare.parity.pipeline import pipelines
from framework_compare.parity.training import training_check
from framework_compare.parity.workers import RunTasks
from framework_compare.plan import competitors, planning
from framework_compare.plan.planning import Names
from framework_compare.protocol import Document, Fields, TrainConfig, replicas_of
from framework_compare.records import Run
from framework_compare.results.parity import FAILED, PASSED, UNSUPPORTED, Level, Parity

Say = Callable[[str], None]
Part = TypeVar("Part", Parity, list[Level])
NOT_OF_IMAGES = Level(4, True, "arrays have one pipeline for all frameworks", asked=False)
ON_ONE_DEVICE = Level(4, True, "pipelines, and training as in a cell, are checked on one device", asked=False)


class Combination(NamedTuple):
    """A cell to be verified; task: of a workload with other data than the generated ones."""

    framework: str
    model: str
    config: TrainConfig
    task: Task | None = None


@dataclasses.dataclass(frozen=True)
class Where:
    """Interpreters that the frameworks run in, as `environments.ensure` takes them."""

    python: Mapping[str, str] = dataclasses.field(default_factory=dict)
    index: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def named(self, frameworks: Names, device: str, say: Say) -> tuple[list[str], Where]:
        """Return the names of competitors as users name them, and where these run."""
        found = competitors.read(frameworks, self.python, self.index, device, say)
        return found.names, Where(found.python, found.index)

    def environment(self, name: str, say: Say, device: str = "cpu") -> Environment | Run:
        """Return a framework's environment on a device, or how a cell ends without one: unsupported or not-installed."""
        return support.ready(name, device, python=self.python.get(name), index=self.index.get(name), say=say)


def verify(
    frameworks: Names,
    models: Names,
    *,
    where: Where = Where(),
    fresh: bool = False,
    say: Say = lambda message: None,
    questions: Questions = Questions(),
    folder: Path | None = None,
    **settings: Any,
) -> list[Parity]:
    """Check every framework, model and combination of settings; a cached verdict is not checked again.

    settings: those of SETTINGS that a verdict depends on. fresh: check again and ignore the cache. folder: for the
    workers' files; by default they are deleted.
    """
    combinations, where = _combinations(frameworks, models, where, say, settings)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with scratch() if folder is None else contextlib.nullcontext(folder.absolute()) as place:
        checkers: dict[str, ParityChecker] = {}
        for device in dict.fromkeys(one.config.device for one in combinations):  # which has environments of its own
            own = place / device.replace(":", "-")
            own.mkdir(exist_ok=True)
            ready = {
                name: where.environment(name, say, device)
                for name in dict.fromkeys(one.framework for one in combinations)
            }
            checkers[device] = ParityChecker(own, ready, questions, fresh, say)
        return [checkers[one.config.device].parity(*one) for one in combinations]


def dry_run(
    frameworks: Names,
    models: Names,
    *,
    where: Where = Where(),
    fresh: bool = False,
    say: Say = lambda message: None,
    **settings: Any,
) -> CheckForecast:
    """Return what `verify` would take; nothing is started but interpreters of the user's own, and nothing is made."""
    return forecast(*_combinations(frameworks, models, where, say, settings), fresh)


def _combinations(
    frameworks: Names, models: Names, where: Where, say: Say, settings: Document
) -> tuple[list[Combination], Where]:
    """Return what is to be checked, and where; what cannot be is refused before an environment takes minutes to make."""
    configs = planning.expand_configs(settings)
    names, where = where.named(frameworks, configs[0].device, say)
    chosen = planning.find_models(models)
    asked.check(chosen, configs, say)
    return [Combination(name, model, config) for model in chosen for config in configs for name in names], where


def forecast(combinations: Sequence[Combination], where: Where = Where(), fresh: bool = False) -> CheckForecast:
    """Return what verdicts on frameworks and models would take, of which some are in the cache."""
    environments: dict[str, dict[str, Environment | Run]] = {}
    checkers: dict[str, ParityChecker] = {}
    left, known, lacks = [], 0, []
    for one in combinations:
        name, device = one.framework, one.config.device
        python = where.python.get(name)
        if lack := support.lack_here(name, device, python):
            lacks.append(lack)
            continue
        ready = environments.setdefault(device, {})
        if name not in ready and (environment := managed.find(name, device=device, python=python)):
            ready[name] = environment
        checker = checkers.setdefault(device, ParityChecker(Path(), ready))
        if name in ready and not fresh and checker.cached(*one) is not None:
            known += 1
        else:
            left.append((planning.build_graph(one.model, one.config, one.task), one.config))
    return asked.of_checks(left, known)._replace(lacks=tuple(lacks))


class Subject(NamedTuple):
    """Subject of a verdict, and the questions that its network is asked."""

    framework: str
    model: str
    graph: Graph
    config: TrainConfig
    questions: Questions
    environment: Environment


class ParityChecker:
    """Verdicts from the cache or from workers: references are made once a graph, other checks once a framework."""

    def __init__(
        self,
        folder: Path,
        ready: Mapping[str, Environment | Run],
        questions: Questions = Questions(),
        fresh: bool = False,
        say: Say = lambda message: None,
    ) -> None:
        self.folder = folder
        self.ready = ready
        self.questions = questions
        self.fresh = fresh
        self.say = say
        self._asked: tuple[Graph, Questions] | None = None
        self._references: dict[
            tuple[str, int], Reference
        ] = {}  # to that, by precision and batch size; 0: the small one
        self._checked: Fields = {}  # verdicts of this checker by key
        self._states: dict[tuple[str, str], object] = {}  # by framework and device
        self._lacks: dict[tuple[str, TrainConfig], str | None] = {}  # why a framework cannot run such a cell

    def parity(self, framework: str, model: str, config: TrainConfig, task: Task | None = None) -> Parity:
        """Return the verdict on one framework, model and config, from the cache or from workers.

        task: of a workload whose data are not those that are generated.
        """
        environment = self.ready[framework]
        if isinstance(environment, Run):
            return _lacking(framework, environment, model, config)
        found = self._verdict(self._subject(framework, model, config, task), seek=True)
        assert found is not None
        return found

    def cached(self, framework: str, model: str, config: TrainConfig, task: Task | None = None) -> Parity | None:
        """Return the verdict if all of its parts are known, else None; no worker is started."""
        if isinstance(self.ready[framework], Run):
            return None
        return self._verdict(self._subject(framework, model, config, task), seek=False)

    def network(self, framework: str, model: str, config: TrainConfig) -> Parity:
        """Return levels 0 to 3 and 5 from a worker, whatever is cached; EnvironmentUnavailable without an environment."""
        environment = self.ready[framework]
        if isinstance(environment, Run):
            raise EnvironmentUnavailable(environment.reason)
        return self._check_network(self._subject(framework, model, config, None))

    def _subject(self, framework: str, model: str, config: TrainConfig, task: Task | None) -> Subject:
        """A network is asked its own optimiser's steps on batches that BatchNorm can stand; a workload with our pipeline."""
        environment, graph = self.ready[framework], planning.build_graph(model, config, task)
        assert isinstance(environment, Environment), f"{framework} has no environment to describe"
        if registry.of_arrays(model):
            config = dataclasses.replace(config, pipeline="shared", loader_workers=0)
        questions = dataclasses.replace(
            self.questions,
            batch_size=max(self.questions.batch_size, least_batch(graph)),
            optimizer=config.optimizer,
            replicas=len(replicas_of(config)),
            beta2=config.beta2,
            clips=config.clip_norm > 0,
            schedules=not Schedule.of(config).is_constant,
            accumulation=config.accumulation,
        )
        return Subject(framework, model, graph, config, questions, environment)

    def _verdict(self, subject: Subject, seek: bool) -> Parity | None:
        """Its parts that are not known are sought, or there is none."""
        found = self._network(subject, seek)
        if found is None or found.status == UNSUPPORTED:
            return found
        found = dataclasses.replace(found, model=subject.model)
        if registry.of_arrays(subject.model):  # what follows is of images
            return with_level(found, NOT_OF_IMAGES)
        if subject.questions.replicas > 1:
            return with_level(found, ON_ONE_DEVICE)
        trained = self._training(subject, seek)
        fed = None if trained is None else self._pipeline(subject, seek)
        if trained is None or fed is None:
            return None
        held = {level.number for level in found.levels if level.passed}
        for level in trained:
            if not level.passed and level.number in held:
                found = with_level(found, level)
        return with_level(found, *fed)

    def _network(self, subject: Subject, seek: bool) -> Parity | None:
        key = self._key(cache.network_key, subject, subject.graph, subject.config, subject.questions)
        return self._part(key, lambda: cache.load_network(key), lambda: self._check_network(subject), seek)

    def _training(self, subject: Subject, seek: bool) -> list[Level] | None:
        """Return levels of the small network. Cells from memory train as those of the native pipeline do."""
        config = subject.config
        key = self._key(cache.training_key, subject, config)

        def known() -> list[Level] | None:
            levels = cache.load_levels(key)
            if levels is None and config.pipeline == "memory":
                native = dataclasses.replace(config, pipeline="native")
                levels = cache.load_levels(self._key(cache.training_key, subject, native))
                return levels if all(level.passed for level in levels or ()) else None
            return levels

        def check() -> list[Level]:
            self.say(f"{subject.framework} {config.precision} {config.execution}: training as cells train")
            return training_check.judge(self._worker(subject), config)

        return self._part(key, known, check, seek)

    def _pipeline(self, subject: Subject, seek: bool) -> list[Level] | None:
        config = subject.config
        if config.pipeline != "native":
            return [Level(4, True, f"pipeline {config.pipeline!r} has no use for the native one", asked=False)]
        key = self._key(cache.pipeline_key, subject, config)

        def known() -> list[Level] | None:
            levels = cache.load_levels(key)
            lacking = seek and not all(level.asked for level in levels or ())  # it may have been installed since
            return None if lacking else levels

        def check() -> list[Level]:
            self.say(f"{subject.framework}: native pipeline")
            return [pipelines.judge(self._worker(subject), config)]

        return self._part(key, known, check, seek)

    def _part(self, key: str, known: Callable[[], Part | None], check: Callable[[], Part], seek: bool) -> Part | None:
        """Return a part of a verdict from this checker, the cache, or a worker: of several concurrent calls one checks it."""
        found: Part | None = self._checked.get(key)
        if found is None and not (seek and self.fresh):
            found = known()
        if found is not None or not seek:
            return found
        with cache.lock(key):
            found = None if self.fresh else known()
            if found is None:
                found = self._checked[key] = check()
                if isinstance(found, Parity):
                    # What is missing, or was killed, may be there next time.
                    lasts = found.status != UNSUPPORTED and not found.reason
                else:
                    lasts = all(level.answered for level in found)
                if lasts:
                    cache.save(key, found)
        return found

    def _key(self, make: Callable[..., str], subject: Subject, *asked: object) -> str:
        entry, device = registry.framework(subject.framework), subject.config.device
        name = (subject.framework, device)
        if name not in self._states:
            self._states[name] = cache.state(entry, subject.environment, device)
        return make(entry, self._states[name], *asked)

    def _check_network(self, subject: Subject) -> Parity:
        framework, model, graph, config, _, environment = subject
        started = time.monotonic()
        names = (framework, model, config.precision, config.execution)
        reason = self._lack(subject)
        if reason is not None:
            return _lacking(framework, Run(UNSUPPORTED, reason, framework_version=environment.version), model, config)
        place, found, full = self._answers(subject)
        self.say(f"{' '.join(names)}: levels 0 to 3 and 5")
        # Small batches are asked about, too: as the last one of an epoch is, and must be averaged by its own size.
        run_tasks = self._worker(subject, **found.settings)
        tasks = [*network_tasks(found, full, place), *dropout_tasks(graph, found, place)]
        run, said, answers = run_tasks([*tasks, *generation_tasks(config, found, place)], "-".join(names))
        if run.status == "unsupported":
            return _lacking(framework, run, model, config)
        judge = Judge(graph, found, full, answers, said, run, config.mode == "generation")
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
            remark(config.precision, levels, found, full),
            dict(run.settings),
        )

    def _lack(self, subject: Subject) -> str | None:
        """Return why a framework cannot run such a cell, asked once, and before a reference is made for nothing."""
        config = subject.config
        key = (subject.framework, config)
        plain = (config.device, config.precision, config.execution) == ("cpu", "fp32", "default")  # which all have
        made = self._asked == (subject.graph, subject.questions) and (config.precision, 0) in self._references
        if not plain and not made and key not in self._lacks:
            run, _, folder = self._worker(subject)([], f"{subject.framework}-asked")
            shutil.rmtree(folder, ignore_errors=True)
            self._lacks[key] = run.reason if run.status == "unsupported" else None
        return self._lacks.get(key)

    def _answers(self, subject: Subject) -> tuple[Path, Reference, Reference]:
        """The folder of the questions, and the references in a small batch and in one of the cell's own size.

        Those of one graph are kept, at each precision; the questions are the same.
        """
        place = self.folder / "reference"
        _, _, graph, config, questions, _ = subject
        size, precision = config.batch_size, config.precision
        if self._asked != (graph, questions):
            self.say(f"{graph.name}: reference in float64, yardstick of {precision}")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            self._references.clear()  # their arrays are not needed while the next are made
            self._references[precision, 0] = make_reference(graph, questions, precision)
            self._references[precision, 0].write(place)
            self._asked = graph, questions
        if (precision, 0) not in self._references:
            self.say(f"{graph.name}: yardstick of {precision}")
            self._references[precision, 0] = next(iter(self._references.values())).at(precision, questions.draws)
        found = self._references[precision, 0]
        if (precision, size) not in self._references:
            self._references[precision, size] = found.full(size, questions.draws)
        return place, found, self._references[precision, size]

    def _worker(self, subject: Subject, **changed: Any) -> RunTasks:
        config = dataclasses.replace(subject.config, **changed)
        return RunTasks(self.folder, subject.framework, config, subject.environment)


def _lacking(framework: str, run: Run, model: str, config: TrainConfig) -> Parity:
    version = run.framework_version or ""
    return Parity(framework, version, model, config.execution, run.status, run.reason, precision=config.precision)


def with_level(found: Parity, level: Level) -> Parity:
    """Return a verdict with one more level, in order."""
    others = (one for one in found.levels if one.number != level.number)
    levels = tuple(sorted((*others, level), key=lambda one: one.number))
    status = found.status if level.passed or not level.asked else FAILED
    return dataclasses.replace(found, levels=levels, status=status)
