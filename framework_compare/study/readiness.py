"""The environments of a study's cells: one per framework and kind of device, or why there is none."""

from collections.abc import Callable, Iterable

from framework_compare.environments import managed, support
from framework_compare.environments.managed import Environment
from framework_compare.launch import staging
from framework_compare.protocol import Document, Fields
from framework_compare.records import Cell, Run
from framework_compare.registry import framework as find_framework
from framework_compare.store.study_file import Store
from framework_compare.study.resumption import with_sources
from framework_compare.study.run_options import RunOptions


class Readiness:
    """Environments of one study, made when first asked for; what a cell cannot run in is the Run it ends as."""

    def __init__(self, store: Store, options: RunOptions, say: Callable[[str], None]) -> None:
        self._store = store
        self._options = options
        self._say = say
        self._by_device: dict[tuple[str, str], Environment | Run] = {}  # by framework and device
        self._made: dict[str, Environment | Run] = {}  # by the environment's label

    def of(self, cell: Cell) -> Environment | Run:
        key = (cell.framework, cell.device)
        if key not in self._by_device:
            self._by_device[key] = self._find(*key)
        return self._by_device[key]

    def by_device(self, cells: Iterable[Cell]) -> dict[str, tuple[list[Cell], Document]]:
        """Return each device's cells, and by framework the environment there, or what a cell ends as without one."""
        sorted_out: dict[str, tuple[list[Cell], Fields]] = {}
        for cell in cells:
            listed, ready = sorted_out.setdefault(cell.device, ([], {}))
            listed.append(cell)
            ready[cell.framework] = self.of(cell)
        return dict(sorted_out)

    def _find(self, framework: str, device: str) -> Environment | Run:
        framework = find_framework(framework).name  # what trains models as written has no environment of its own
        label = managed.label(framework, device, self._options.python.get(framework))
        # Devices of one kind share an environment; a lack is of the device itself.
        if label not in self._made:
            environment = self._make(framework, device, label)
            if isinstance(environment, Run) and environment.status == "unsupported":
                return environment
            self._made[label] = environment
        return self._made[label]

    def _make(self, framework: str, device: str, label: str) -> Environment | Run:
        options = self._options
        environment = support.ready(
            framework,
            device,
            python=options.python.get(framework),
            index=options.index.get(framework),
            make=options.makes_environments,
            say=self._say,
        )
        if isinstance(environment, Run):
            if environment.status == "not-installed":
                self._say(environment.reason)
            return environment
        sources = [staging.checksum(find_framework(framework))]
        self._store.environment(label, with_sources(self._store, label, describe(environment), sources))
        return environment


def describe(environment: Environment) -> Fields:
    """Return what a study stores of an environment, and compares when it is resumed."""
    return {
        "version": environment.version,
        "interpreter": environment.interpreter,
        "managed": environment.managed,
        "packages": dict(environment.packages),
        "requirements_checksum": environment.requirements_checksum,
        "notes": list(environment.notes),
    }
