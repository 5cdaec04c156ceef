"""The pytest plug-in: a sweep over frameworks and models in a user's own suite.

    from framework_compare import sweep

    @sweep(["torch", "mxnet"], ["alexnet", "resnet50"])
    def test_trains(cell, run_cell):
        assert run_cell(cell, dataset="fire-smoke-tiny", batch_size=4, epochs=1).status == "ok"

`--fc-frameworks`, `--fc-models` and `--fc-device` narrow or redirect every sweep from the command line. The cells of a
session make one study, whose table ends the session's summary.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

from framework_compare.protocol import Fields

# pytest loads this module at every start, in every project of the environment: nothing heavy is imported here
if TYPE_CHECKING:
    from framework_compare.comparison import Comparison
    from framework_compare.plan.planning import Names

SUITE = "framework_compare.conformance"
CONFORMANCE = f"{SUITE}.plugin"


@dataclasses.dataclass(frozen=True)
class SweepCell:
    """One point of a sweep; its id is `framework-model-device`."""

    framework: str
    model: str
    device: str
    python: str = ""  # the interpreter of a competitor that was named with one

    @property
    def id(self) -> str:
        return f"{self.framework}-{self.model}-{self.device}"


def sweep(
    frameworks: "Names" | None = None, models: "Names" | None = None, device: "Names" = "cpu"
) -> pytest.MarkDecorator:
    """Decorator that parametrises a test's `cell` over frameworks x models x devices; None means all of them."""
    return pytest.mark.framework_compare_sweep(frameworks=frameworks, models=models, device=device)


OPTIONS = (
    ("--fc-frameworks", "NAMES", "only these frameworks in sweeps, comma-separated"),
    ("--fc-models", "NAMES", "only these models in sweeps, comma-separated"),
    ("--fc-device", "NAMES", "run sweeps on these devices instead, comma-separated"),
    ("--fc-out", "FOLDER", "the study of this session; default: a new one in the cache folder"),
    ("--fc-report", "FILE", "write the report of this session's study, one HTML file"),
    ("--fc-json", "FILE", "write this session's study in the JSON of pytest-benchmark"),
    ("--fc-index", "FRAMEWORK=URL", "install the packages of a framework from this index"),
    ("--fc-python", "FRAMEWORK=PATH", "use an interpreter that already has the framework"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("framework-compare")
    for flag, metavar, text in OPTIONS:
        group.addoption(flag, metavar=metavar, help=text, action="append" if "=" in metavar else "store")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Load the conformance suite's options only with the suite: their names are too common for every session.

    A package named with --pyargs has no initial conftest, so it could not add them itself.
    """
    if any(_is_conformance(text) for text in args) and not early_config.pluginmanager.has_plugin(CONFORMANCE):
        early_config.pluginmanager.import_plugin(CONFORMANCE)


def _is_conformance(text: str) -> bool:
    place = text.partition("::")[0]
    path, suite = Path(place).absolute(), Path(__file__).parent / "conformance"
    return place == SUITE or place.startswith(f"{SUITE}.") or suite in (path, path.parent)


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--fc-out", None)
    if given and not hasattr(config, "workerinput") and Path(given).is_dir() and any(Path(given).iterdir()):
        raise pytest.UsageError(f"--fc-out is {given!r}, which is not empty; allowed: a new or an empty folder")
    config.addinivalue_line("markers", "framework_compare_sweep: one test per framework, model and device (`sweep`)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("framework_compare_sweep")
    if marker is None:
        return
    try:
        cells = _cells(marker.kwargs, metafunc.config)
    except pytest.UsageError as error:  # while tests are collected, pytest would print its own frames
        raise pytest.Collector.CollectError(str(error)) from None
    metafunc.parametrize("cell", cells, ids=[cell.id for cell in cells])


def _cells(wanted: Any, config: pytest.Config) -> list[SweepCell]:
    from framework_compare import registry
    from framework_compare.errors import UsageError
    from framework_compare.plan import competitors, planning
    from framework_compare.plan.values import listed, split_devices

    registry.load_plugins()
    try:
        found = competitors.read(wanted["frameworks"] or list(registry.PLAIN))
        frameworks = list(dict.fromkeys(found.names))  # `latest` may be the pinned version
        models = planning.find_all("model", registry.MODELS, wanted["models"] or list(registry.MODELS))
        chosen = config.getoption("--fc-frameworks")
        if chosen is not None:
            kept = competitors.find_frameworks(chosen.split(","))
            kept += [name for name in frameworks if name.partition("@")[0] in kept]
            frameworks = _kept(frameworks, kept, "framework", chosen)
        chosen = config.getoption("--fc-models")
        if chosen is not None:
            models = _kept(models, planning.find_all("model", registry.MODELS, chosen.split(",")), "model", chosen)
        chosen = config.getoption("--fc-device")
        places = listed("device", wanted["device"]) if chosen is None else split_devices(chosen)
        devices = [planning.check_device(place) for place in places]
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    python = found.python
    return [SweepCell(f, m, d, python.get(f, "")) for f in frameworks for m in models for d in devices]


def _kept(names: list[str], chosen: list[str], kind: str, option: str) -> list[str]:
    kept = [name for name in names if name in chosen]
    if not kept:
        raise pytest.UsageError(f"no {kind} of this sweep ({', '.join(names)}) is among --fc-{kind}s {option}")
    return kept


class _Session:
    """The study that the cells of a session make; under pytest-xdist each process has one of its own."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder: Path | None = None
        self._cells = 0

    def train(self, cell: SweepCell, settings: Fields) -> Any:
        """The row of a cell that is trained as one more of the study; None where the study cannot take it.

        It has a cell with these settings already, or other images under the same name.
        """
        from framework_compare.api import compare
        from framework_compare.errors import StudyError

        folder = self._folder or self._new()
        try:
            found = compare([cell.framework], [cell.model], cell.device, out=folder, extend=True, **settings).frame
        except StudyError:
            if self._folder is None:
                raise
            return None
        if self._folder is None:
            _studies(self._config).append(str(folder))
        more, self._folder, self._cells = len(found) > self._cells, folder, len(found)
        return found.iloc[-1] if more else None

    def _new(self) -> Path:
        from framework_compare.study.opening import new_study_folder

        given, worker = self._config.getoption("--fc-out"), getattr(self._config, "workerinput", {}).get("workerid")
        folder = Path(given) if given else new_study_folder()
        return folder.with_name(f"{folder.name}-{worker}") if worker else folder


_STUDIES = pytest.StashKey[list[str]]()


def _studies(config: pytest.Config) -> list[str]:
    """The folders of the studies of a session."""
    return config.stash.setdefault(_STUDIES, [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of pytest-xdist, for the process that sums up
    if output is not None:
        output["framework_compare_studies"] = _studies(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _studies(node.config).extend(getattr(node, "workeroutput", {}).get("framework_compare_studies", ()))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    report, document = config.getoption("--fc-report"), config.getoption("--fc-json")
    for number, folder in enumerate(_studies(config)):
        from framework_compare.comparison import Comparison

        study = Comparison(folder)
        terminalreporter.section("framework-compare")
        terminalreporter.write(study.table().to_text(terminalreporter._tw.fullwidth, bold=False))
        terminalreporter.write_line(f"study: {folder}")
        if report:
            terminalreporter.write_line(f"report: {study.report(_of_study(report, number))}")
        if document:
            terminalreporter.write_line(f"json: {_write_json(study, _of_study(document, number))}")


def _of_study(file: str, number: int) -> Path:
    """The file of a study of the session: processes of pytest-xdist have one each."""
    path = Path(file)
    return path.with_stem(f"{path.stem}-{number}") if number else path


def _write_json(study: "Comparison", path: Path) -> Path:
    from framework_compare.report import trackers
    from framework_compare.store import schema

    found = trackers.document(study.frame, study.epochs, study.runs, study.machine)
    with schema.study_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def _framework_compare_session(pytestconfig: pytest.Config) -> _Session:
    return _Session(pytestconfig)


def _environments(config: pytest.Config) -> Fields:
    from framework_compare.plan.values import pairs

    return {name: pairs(f"--fc-{name}", config.getoption(f"--fc-{name}")) for name in ("python", "index")}


@pytest.fixture
def run_cell(
    request: pytest.FixtureRequest, tmp_path: Path, _framework_compare_session: _Session
) -> Callable[..., Any]:
    """`run_cell(cell, **settings of compare)` trains one cell and returns its row (a pandas Series with `status`).

    It trains once, unless `repeats` says otherwise. The cell becomes one of the session's study. With an `out`, or where
    that study cannot take it, it has a study of its own.
    """
    from framework_compare.api import compare

    given = _environments(request.config)

    def run(cell: SweepCell, **settings: Any) -> Any:
        own = {cell.framework: cell.python} if cell.python else {}
        settings = {"python": {**given["python"], **own}, "index": given["index"], "repeats": 1, **settings}
        row = None if "out" in settings else _framework_compare_session.train(cell, settings)
        if row is None:
            settings.setdefault("out", Path(tempfile.mkdtemp(dir=tmp_path)) / f"study-{cell.id}")
            row = compare([cell.framework], [cell.model], cell.device, **settings).frame.iloc[0]
        return row

    return run


@pytest.fixture
def duel(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """`duel(a, b, model, dataset, max_slowdown="5%")` measures two competitors in turns, now: `framework_compare.duel`.

    Its result has `passed`, `outcome` and `sentence`.
    """
    from framework_compare import duels

    def run(*competitors: Any, **settings: Any) -> Any:
        out = Path(tempfile.mkdtemp(dir=tmp_path)) / "study"
        return duels.duel(*competitors, **{**_environments(request.config), "out": out, **settings})

    return run
