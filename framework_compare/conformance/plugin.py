"""The suite's options and fixtures; framework_compare.pytest_plugin loads it when the suite is requested."""

from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest

from framework_compare import registry
from framework_compare.conformance import graphs
from framework_compare.conformance.trial import Trial, entry_of
from framework_compare.errors import UsageError
from framework_compare.parity.verify import Where
from framework_compare.plan import planning
from framework_compare.plan.values import by_framework

TRIALS = pytest.StashKey[Dict[str, Trial]]()
NO_FRAMEWORK = (
    "no framework is given; say which adapter to test: --frameworks NAME for a registered one,"
    " or --frameworks path/to/adapter.py:Class"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("framework-compare conformance")
    group.addoption(
        "--frameworks",
        metavar="NAME",
        action="append",
        help="adapter to test: a registered name, an alias, or path/to/adapter.py:Class; comma-separated or repeated",
    )
    group.addoption("--models", metavar="NAMES", help="also check the parity levels on these models, comma-separated")
    group.addoption("--device", metavar="NAME", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    group.addoption(
        "--python", metavar="FRAMEWORK=PATH", action="append", help="use an interpreter that already has the framework"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Check the request before anything is collected; one sentence says what is missing."""
    try:
        session.config.stash[TRIALS] = _trials(session.config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _trials(config: pytest.Config) -> Dict[str, Trial]:
    asked = _split(config.getoption("--frameworks"))
    if not asked:
        raise UsageError(NO_FRAMEWORK)
    graphs.register()
    names = [entry_of(text).name for text in asked]
    python, index = (by_framework(name, config.getoption(name)) for name in ("--python", "--fc-index"))
    device = planning.check_device(config.getoption("--device"))
    _networks(config)
    return {name: Trial(name, device, Where(python, index)) for name in names}


def _networks(config: pytest.Config) -> List[str]:
    models = config.getoption("--models")
    return [*graphs.NAMES, *(planning.find_all("model", registry.image_models(), _split([models])) if models else [])]


def _split(given: "List[str] | None") -> List[str]:
    return [part.strip() for text in given or [] for part in text.split(",") if part.strip()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = metafunc.config
    if "adapter" in metafunc.fixturenames:
        trials: Dict[str, Trial] = config.stash[TRIALS]
        metafunc.parametrize("adapter", list(trials), indirect=True, scope="session")
    if "network" in metafunc.fixturenames:
        metafunc.parametrize("network", _networks(config), scope="session")


@pytest.fixture(scope="session")
def adapter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """The adapter under test, whatever state it is in."""
    trial = request.config.stash[TRIALS][request.param]
    if trial.folder == Path():
        trial.folder = tmp_path_factory.mktemp(f"conformance-{trial.framework}")
    trial.say = _reporter(request.config)
    yield trial


def _reporter(config: pytest.Config) -> Callable[[str], None]:
    terminal = config.pluginmanager.get_plugin("terminalreporter")

    def report(message: str) -> None:
        if terminal and config.option.verbose > 0:
            terminal.write_line(message)

    return report


@pytest.fixture(scope="session")
def ready(adapter: Trial) -> Trial:
    """The adapter under test, which has its methods and starts; a test of it is skipped where it does not."""
    why = adapter.why_not_ready()
    if why:
        pytest.skip(why)
    return adapter
