"""What the cells of a study run in: each framework's environment on each device, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from framework_compare import environments, gpu_support, registry
from framework_compare.environments import Environment
from framework_compare.errors import EnvironmentUnavailable
from framework_compare.gpu_support import Lack
from framework_compare.records import Cell, Run
from framework_compare.resumption import check_same_environment
from framework_compare.store import Store

if TYPE_CHECKING:
    from framework_compare.study import HowToRun


class Readiness:
    """Environments of one study, made when first asked for; what a cell cannot run in is the Run it ends as."""

    def __init__(self, store: Store, how: HowToRun, say: Callable[[str], None]) -> None:
        self._store = store
        self._how = how
        self._say = say
        self._found: Dict[Tuple[str, str], Union[Environment, Run]] = {}  # by framework and device
        self._made: Dict[str, Union[Environment, Run]] = {}  # by the environment's label

    def of(self, cell: Cell) -> Union[Environment, Run]:
        key = (cell.framework, cell.device)
        if key not in self._found:
            self._found[key] = self._find(*key)
        return self._found[key]

    def by_device(self, cells: Iterable[Cell]) -> Dict[str, Tuple[List[Cell], Mapping[str, Any]]]:
        """Of each device its cells, and by framework the environment there or what a cell ends as without one."""
        sorted_out: Dict[str, Tuple[List[Cell], Dict[str, Any]]] = {}
        for cell in cells:
            listed, ready = sorted_out.setdefault(cell.device, ([], {}))
            listed.append(cell)
            ready[cell.framework] = self.of(cell)
        return dict(sorted_out)

    def _find(self, framework: str, device: str) -> Union[Environment, Run]:
        python = self._how.python.get(framework)
        # a Python of the user's own is always asked: nobody here knows what its build can do
        found = None if environments.is_given(registry.framework(framework), python) else lack(framework, device)
        if found:
            return Run("unsupported", f"{found.why}; {found.remedy}")
        label = environments.label(framework, device, python)
        if label not in self._made:
            self._made[label] = self._make(framework, device, label)
        return self._made[label]

    def _make(self, framework: str, device: str, label: str) -> Union[Environment, Run]:
        how = self._how
        try:
            environment = environments.ensure(
                framework,
                device=device,
                python=how.python.get(framework),
                installer=how.installer,
                index=how.index.get(framework),
                report=self._say,
            )
        except EnvironmentUnavailable as error:
            self._say(str(error))
            return Run("not-installed", str(error))
        document = _describe(environment)
        check_same_environment(self._store, framework, document, label=label)
        self._store.environment(label, document)
        return environment


def lack(framework: str, device: str) -> Optional[Lack]:
    """Why a framework's managed environment cannot serve a device here, or None; nothing is made to find out."""
    if registry.framework(framework).requirements_on(device):
        return gpu_support.lack(framework, device)
    return Lack(
        f"device {device!r}: the adapter of {framework} has no requirements for it",
        f"name an interpreter that has a build for it: --python {framework}=/path/to/python",
    )


def _describe(environment: Environment) -> Dict[str, Any]:
    return {
        "version": environment.version,
        "interpreter": environment.interpreter,
        "managed": environment.managed,
        "packages": dict(environment.packages),
        "requirements_checksum": environment.requirements_checksum,
        "notes": list(environment.notes),
    }
