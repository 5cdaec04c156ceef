"""Who may import whom: one literal of floors, checked over every import, lazy and TYPE_CHECKING ones included.

A module that is named by a string (`importlib.import_module`, a line of the registry) is not seen.
"""

import ast
import functools
import runpy
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

ROOT = Path(__file__).parents[1]
PACKAGE = "framework_compare"
# From the top down. A module imports its own package and what stands on lower floors, never a neighbour on its own.
FLOORS: Tuple[Tuple[str, ...], ...] = (
    ("__main__", "pytest_plugin"),
    ("cli",),
    ("bisection",),
    ("archive", "duels", "peaks", "reproduction"),
    ("stability_sweep",),
    ("api",),
    ("comparison", "forecast"),
    ("report", "study", "conformance", "importing"),
    ("parity",),
    ("doctor", "results"),
    ("launch", "plan"),
    ("environments",),
    ("importers",),
    ("adapters",),
    ("store", "worker", "datasets"),
    ("records", "batches", "models"),
    ("protocol", "events", "registry", "samplers"),
    ("graph", "paths"),
    ("errors", "json_types"),
)
# What is copied into a worker: it imports nothing else of ours, and of others only what every environment has.
WORKER_SIDE = {"errors", "events", "graph", "json_types", "protocol", "batches", "worker", "adapters", "importers"}
WITH_FRAMEWORKS = {"adapters", "importers"}
WORKER_LIBRARIES = {"numpy", "PIL", "simplejpeg"}
# Which packages may import a library that takes long to load or that not every user has.
LIBRARIES = {
    "scipy": {"parity", "results"},
    "pandas": {"comparison", "report", "results", "stability_sweep"},
    "altair": {"report"},
    "vl_convert": {"report"},
    "jinja2": {"report"},
    "rich": {"cli", "report", "study"},
    "typer": {"cli"},
    "pytest": {"conformance", "pytest_plugin"},
}


def modules() -> Dict[str, Path]:
    """Every product module by its name without the package's own, such as "store.schema"."""
    beside = ("adapters", "models", "datasets")
    folders = {ROOT / PACKAGE: "", **{ROOT / name: f"{name}." for name in beside}}
    names = {}
    for folder, prefix in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            names[prefix + ".".join(part for part in parts if part != "__init__")] = path
    return {name.rstrip("."): path for name, path in names.items()}


MODULES = modules()
FLOOR = {name: number for number, names in enumerate(reversed(FLOORS)) for name in names}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> List[Tuple[str, str, int]]:
    """Module, name ("" for a whole module) and line of every import, wherever it stands."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found += [(node.module or "", alias.name, node.lineno) for alias in node.names]
    return found


def own_imports(path: Path) -> Iterator[Tuple[str, str, int]]:
    """Imported modules of ours as in MODULES, the name taken from each, and the line."""
    for module, name, line in imports(path):
        if module == PACKAGE or module.startswith(PACKAGE + "."):
            target = module[len(PACKAGE) + 1 :]
            inner = f"{target}.{name}".lstrip(".")
            yield (inner, "", line) if inner in MODULES else (target, name, line)


def package(module: str) -> str:
    return module.partition(".")[0]


def test_imports_go_down_from_the_floor_that_every_package_has() -> None:
    wrong = []
    for module in filter(None, MODULES):
        for target, name, line in own_imports(MODULES[module]):
            if target == "":  # the package itself holds the version and resolves the public names
                if name != "__version__":
                    wrong.append(f"{module}:{line} imports {name} from {PACKAGE}; name the module it is in")
            elif package(target) != package(module) and FLOOR[package(target)] >= FLOOR[package(module)]:
                wrong.append(f"{module}:{line} imports {target}, which is not on a lower floor")
    assert not wrong
    assert {package(name) for name in MODULES if name} == set(FLOOR)


def test_the_drawing_of_the_floors_is_current() -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "layers.py"))["drawing"]()
    assert (ROOT / "docs" / "layers.svg").read_text() == drawing, "run `python docs/layers.py`"


def test_tables_know_no_figures_and_figures_no_page() -> None:
    floors = {"report.figures": 1, "report.bisection_report": 2, "report.curves": 2, "report.page": 3}

    def floor(module: str) -> int:
        return max((number for name, number in floors.items() if f"{module}.".startswith(f"{name}.")), default=0)

    inside = {name: path for name, path in MODULES.items() if package(name) == "report"}
    arrows = {(name, target) for name, path in inside.items() for target, _, _ in own_imports(path)}
    assert not {(name, target) for name, target in arrows if floor(target) > floor(name)}


def test_circles_of_modules_are_noticed_and_there_are_none() -> None:
    below = {name: {target for target, _, _ in own_imports(path)} & set(MODULES) for name, path in MODULES.items()}
    assert not circles(below)
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["a", "b", "c"]]
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def below(module: str) -> List[str]:
    """The adapter of the framework that a library's module `on_NAME` runs on, which is staged with it."""
    name = module.rpartition(".")[2]
    return [name[len("on_") :]] if name.startswith("on_") else []


def test_adapters_and_importers_do_not_import_each_other() -> None:
    for module, path in MODULES.items():
        own = module.split(".")[1:2]
        if package(module) in WITH_FRAMEWORKS and own:
            for target, _, line in own_imports(path):
                allowed = (own, ["common"], below(module))
                inside = package(target) != package(module) or target.split(".")[1:2] in allowed
                assert inside, f"{module}:{line} imports {target}"


def circles(below: Dict[str, Set[str]]) -> List[List[str]]:
    """Groups of modules of which each reaches every other, by what remains once all that end are taken away."""
    left = {name: set(targets) - {name, ""} for name, targets in below.items() if name}
    while True:
        ends = {name for name, targets in left.items() if not targets & set(left)}
        if not ends:
            break
        left = {name: targets for name, targets in left.items() if name not in ends}
    return [sorted(left)] if left else []


def test_private_names_stay_in_their_module() -> None:
    wrong = [
        f"{module}:{line} takes {name} from {target}"
        for module, path in MODULES.items()
        for target, name, line in own_imports(path)
        if name.startswith("_") and name != "__version__" or package(target).startswith("_")
    ]
    assert not wrong
    wrong = []
    for module, path in MODULES.items():
        aliases = module_aliases(path)
        for node in ast.walk(tree_of(path)):
            if (
                not isinstance(node, ast.Attribute)
                or not isinstance(node.value, ast.Name)
                or node.value.id not in aliases
            ):
                continue
            if node.attr.startswith("_") and not node.attr.startswith("__"):
                wrong.append(f"{module}:{node.lineno} takes {node.attr} of {node.value.id}")
    assert not wrong


def module_aliases(path: Path) -> Set[str]:
    """Names under which a file has imported modules of ours."""
    tree = tree_of(path)
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname for alias in node.names if alias.asname and alias.name.startswith(PACKAGE)}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            target = (node.module or "")[len(PACKAGE) + 1 :]
            for alias in node.names:
                if f"{target}.{alias.name}".lstrip(".") in MODULES:
                    names.add(alias.asname or alias.name)
    return names


def test_the_worker_side_imports_nothing_of_the_parent_and_what_every_environment_has() -> None:
    wrong = [
        f"{module}:{line} imports {target}"
        for module, path in MODULES.items()
        for target, _, line in own_imports(path)
        if package(module) in WORKER_SIDE and target and package(target) not in WORKER_SIDE
    ]
    assert not wrong
    known = {PACKAGE, *sys.stdlib_module_names, *WORKER_LIBRARIES}
    wrong = [
        f"{module}:{line} imports {target}"
        for module, path in MODULES.items()
        for target, _, line in imports(path)
        if package(module) in WORKER_SIDE - WITH_FRAMEWORKS and package(target) not in known
    ]
    assert not wrong


def test_models_are_graphs_only_and_heavy_libraries_stay_where_they_are_used() -> None:
    for module, path in MODULES.items():
        if package(module) == "models":
            assert {package(target) for target, _, _ in own_imports(path)} <= {"graph", "models"}, module
    for module, path in MODULES.items():
        for target in {package(target) for target, _, _ in imports(path)} & set(LIBRARIES):
            assert package(module) in LIBRARIES[target], f"{module} imports {target}"
