"""What tests share: the test framework and model, small real images, the real data where it is beside the project."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import os
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, List

import numpy as np
import pytest
import vl_convert
from PIL import Image

from framework_compare import compare, registry
from framework_compare.comparison import Comparison
from framework_compare.datasets import fire_smoke, render
from framework_compare.environments import externals
from framework_compare.launch import supervised_worker
from framework_compare.registry import Framework
from framework_compare.samplers.disturbance import DisturbanceLog
from framework_compare.study import schedules

pytest_plugins = ["pytester", "duel_fixtures", "environment_fixtures", "parity_fixtures"]  # of plugins/
HERE = Path(__file__).parent
REAL_IMAGES = HERE.parent.parent / "shared" / "data" / "fire_smoke_791"
COLOURS = {"fire": (220, 90, 20), "smoke": (150, 150, 150), "no_fire": (40, 130, 60)}

# A node of its own, so that timings of another suite on this host are not waited for.
os.environ["SLURMD_NODENAME"] = f"tests-{os.getpid()}"
sys.path.insert(0, str(HERE / "plugins"))
import browser_page  # noqa: E402
import drawn_study  # noqa: E402
import slurm_cluster  # noqa: E402
import warm_workers  # noqa: E402

# Files whose tests share nothing that takes long to make: any process may run any of them.
APART = (
    "test_busy_loops.py",
    "test_cells.py",
    "test_duel_fallbacks.py",
    "test_duel_sabotage.py",
    "test_duels.py",
    "test_faults.py",
    "test_parity.py",
    "test_parity_studies.py",
    "test_pipeline_judges.py",
    "test_parity_training.py",
    "test_parity_precisions.py",
    "test_resume.py",
)
ANSWERS = ("test_frozen.py", "test_model_zoos.py", "test_networks.py", "test_reading_ahead.py")
REPORTS = ("test_report.py", "test_report_browser.py", "test_report_stills.py")  # of one study, drawn once per process
TOGETHER = {**dict.fromkeys(ANSWERS, "answers"), **dict.fromkeys(REPORTS, "reports")}
LONG = (
    "tests/real/",
    "answers",
    "reports",
    "tests/test_bisection",
    "tests/test_conformance",
    "tests/test_environment",
    "tests/test_interrupts",
    "tests/test_linters",
    "tests/test_real_limits",
    "tests/test_report",
    "tests/test_slurm",
    "tests/test_nodes",
)


def pytest_configure(config: pytest.Config) -> None:
    """A lock that all processes of this run of the suite know."""
    if hasattr(config, "workerinput"):
        name = f"framework-compare-tests-{os.getuid()}-{config.workerinput['testrunuid']}"
        config.stash[LOCKS] = tuple(Path(tempfile.gettempdir()) / f"{name}.{kind}" for kind in ("turn", "lock"))


LOCKS = pytest.StashKey["tuple[Path, ...]"]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: "List[pytest.Item]") -> None:
    """Tests marked `nightly` run only where `-m` names them or is empty; see `_turn_of` for several processes."""
    wanted = config.option.markexpr
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly and wanted and "nightly" not in wanted:
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=nightly)
    if hasattr(config, "workerinput"):
        lonely = {_unit(item.nodeid) for item in items if item.get_closest_marker("alone")}
        items.sort(key=lambda item: _turn_of(_unit(item.nodeid), lonely))


def _turn_of(unit: str, lonely: Collection[str]) -> int:
    """LONG units first, so that the processes end together; last those with tests for which all the others wait."""
    return 2 if unit in lonely else 0 if unit.startswith(LONG) else 1


def _unit(nodeid: str) -> str:
    """Tests of the same unit run in the same process."""
    path = nodeid.partition("::")[0]
    name = path.rpartition("/")[2]
    return nodeid if name in APART else TOGETHER.get(name, path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests run in one process, which makes what they share once; those of APART run in any."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    config.option.loadscopereorder = False  # those with most tests are not the longest
    return ByUnit(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Beside a test marked `alone` none runs, of all the processes that share this run of the suite."""
    with _turn(item):
        return (yield)


@contextlib.contextmanager
def _turn(item: pytest.Item) -> Iterator[None]:
    """Many tests hold the lock at once, one that is to be alone holds it by itself, and none overtakes it."""
    if LOCKS not in item.config.stash:
        yield
        return
    alone = item.get_closest_marker("alone") is not None
    turn, lock = (os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600) for path in item.config.stash[LOCKS])
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield
    finally:
        os.close(turn)
        os.close(lock)


def pytest_unconfigure(config: pytest.Config) -> None:
    for path in config.stash.get(LOCKS, ()):
        path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def worker_server() -> Iterator[warm_workers.Server]:
    server = warm_workers.Server()
    yield server
    server.close()


@pytest.fixture(scope="session", autouse=True)
def disturbances() -> Iterator["dict[str, bool]"]:
    """Nothing is told of what others take of the CPU, so that no run is repeated for them, unless `told` is set."""
    switch, shares = {"told": False}, DisturbanceLog.shares
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DisturbanceLog, "shares", lambda log, *of: shares(log, *of) if switch["told"] else None)
        yield switch


@pytest.fixture
def told(disturbances: "dict[str, bool]", monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what the others are not told."""
    monkeypatch.setitem(disturbances, "told", True)


@pytest.fixture(scope="session", autouse=True)
def one_run() -> Iterator[None]:
    """A cell runs once where a test does not ask for more, so that the suite ends sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "REPEATS", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def asked_once() -> Iterator["set[str]"]:
    """What this interpreter has is asked of it once per process, and so of others that a fixture adds and nobody changes."""
    unchanged, answers, ask = {sys.executable}, {}, externals._ask

    def answer(spec: Framework, path: Path) -> Any:
        key = spec.imports, path, os.environ.get("PYTHONPATH")
        if str(path) not in unchanged:
            return ask(spec, path)
        if key not in answers:
            answers[key] = ask(spec, path)
        return answers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(externals, "_ask", answer)
        yield unchanged


@pytest.fixture(scope="session", autouse=True)
def drawn_once() -> Iterator[None]:
    """An image of a rendered set, and a chart of the same specification, are drawn once per process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "image", functools.lru_cache(64)(render.image))
        patch.setattr(vl_convert, "vegalite_to_svg", functools.lru_cache(500)(vl_convert.vegalite_to_svg))
        yield


@pytest.fixture
def warm(request: pytest.FixtureRequest, worker_server: warm_workers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in this interpreter are forked from one that has started: see plugins/warm_workers.py.

    In a test marked `cold` they start as a user's do.
    """
    if not request.node.get_closest_marker("cold"):
        monkeypatch.setattr(supervised_worker, "subprocess", warm_workers.Subprocess(worker_server))


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm_cluster.Cluster]:
    """A Slurm of two nodes on this host."""
    reason = slurm_cluster.lacking()
    if reason:
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    made = None
    try:
        made = slurm_cluster.Cluster(place)
        yield made
    finally:
        if made:
            made.stop()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, warm: None) -> str:
    """Registers the test framework `tiny` and the test model `linear`; the framework's name."""
    return _register_tiny(monkeypatch)


def _register_tiny(patch: pytest.MonkeyPatch) -> str:
    entry = Framework("tiny", f"{HERE / 'plugins' / 'tiny.py'}:TinyTrainer", "", "numpy", ((3, 8), (3, 99)))
    patch.setitem(registry.FRAMEWORKS, "tiny", entry)
    patch.setitem(registry.MODELS, "linear", registry.Model("linear:build"))
    return "tiny"


@pytest.fixture(scope="session")
def train_once(
    worker_server: warm_workers.Server, images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Comparison]:
    """Makes a study of one cell that `tiny` trains for two epochs, for several tests, which leave it as it is."""

    def train(**settings: Any) -> Comparison:
        place = tmp_path_factory.mktemp("trained")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FRAMEWORK_COMPARE_CACHE", str(place / "cache"))
            patch.setattr(supervised_worker, "subprocess", warm_workers.Subprocess(worker_server))
            quick = {"batch_size": 4, "epochs": 2, "threads": 1, "loader_workers": 1, "image_size": 32}
            request = {"dataset": images, "out": place / "study", "learning_rate": 0.5, **quick, **settings}
            return compare(_register_tiny(patch), "linear", **request)

    return train


@pytest.fixture(scope="session")
def trained(train_once: Callable[..., Comparison]) -> Comparison:
    return train_once()


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: str) -> Callable[..., str]:
    """Registers a test framework whose steps have a known length, with methods and fields of plugins/paced.py; its name."""

    def register(name: str, methods: str = "", **fields: float) -> str:
        sources = [(HERE / "plugins" / file).read_text() for file in ("tiny.py", "paced.py")]
        body = "".join(f"    {field} = {value!r}\n" for field, value in {"name": name, **fields}.items())
        path = tmp_path / f"{name}.py"
        path.write_text("".join(sources) + body + textwrap.indent(textwrap.dedent(methods), "    "))
        entry = Framework(name, f"{path}:Paced", "", "numpy", ((3, 8), (3, 99)))
        monkeypatch.setitem(registry.FRAMEWORKS, name, entry)
        return name

    return register


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, warm: None) -> str:
    """Registers the test framework `faulty`, and a model named after each of its faults; the framework's name."""
    from faulty import FAULTS

    entry = Framework("faulty", f"{HERE / 'plugins' / 'faulty.py'}:FaultyTrainer", "", "numpy", ((3, 8), (3, 99)))
    monkeypatch.setitem(registry.FRAMEWORKS, "faulty", entry)
    for name in FAULTS:
        monkeypatch.setitem(registry.MODELS, name, registry.Model(f"linear:{name}"))
    return "faulty"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 13 small JPEG images in three classes that differ in colour."""
    folder = tmp_path_factory.mktemp("images") / "colours"
    rng = np.random.default_rng(0)
    for label, (name, colour) in enumerate(COLOURS.items()):
        (folder / name).mkdir(parents=True)
        for number in range(4 + (label == 0)):
            noise = rng.normal(0, 25, (48, 64, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg", quality=90)
    return folder


@pytest.fixture(scope="session")
def real_images() -> Path:
    """The 791 real photos where they are beside the project, else rendered ones."""
    return REAL_IMAGES if REAL_IMAGES.is_dir() else fire_smoke.tiny()


@pytest.fixture(scope="session")
def some_images() -> Path:
    """48 rendered images, 16 of each of three classes."""
    return fire_smoke.tiny()


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A study with everything that a report may draw, made without training; tests leave it as it is."""
    return drawn_study.study(tmp_path_factory.mktemp("drawn") / "study")


@pytest.fixture(scope="session")
def report_file(comparison: Comparison) -> Path:
    """Its report, which takes seconds to draw; tests leave it as it is."""
    return comparison.report(comparison.folder.parent / "report.html")


@pytest.fixture
def one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have their figures for the widest pages alone: for tests of what else is in them, in a third of the time."""
    from framework_compare.report.page import report

    monkeypatch.setattr(report, "WIDTHS", report.WIDTHS[:1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browser_page.launched() as opened:
        yield opened


@pytest.fixture(scope="session")
def benchmark() -> Iterator[Callable[[str], Any]]:
    """Imports a script of benchmarks/ by its name."""
    folder = str(HERE.parent / "benchmarks")
    sys.path.append(folder)
    yield importlib.import_module
    sys.path.remove(folder)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own."""
    monkeypatch.setenv("FRAMEWORK_COMPARE_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"


@pytest.fixture(scope="session")
def mixed_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 images of every kind a user's folder may hold: grey, CMYK, progressive JPEG, palette, alpha, wrong ending."""
    folder = tmp_path_factory.mktemp("mixed") / "kinds"
    rng = np.random.default_rng(1)
    rgb = Image.fromarray(rng.integers(0, 255, (90, 120, 3), dtype=np.uint8))
    kinds = {
        "a/rgb.jpg": (rgb, {"format": "JPEG"}),
        "a/grey.jpg": (rgb.convert("L"), {"format": "JPEG"}),
        "a/cmyk.jpg": (rgb.convert("CMYK"), {"format": "JPEG"}),
        "a/progressive.jpg": (rgb, {"format": "JPEG", "progressive": True}),
        "a/tall.jpg": (rgb.resize((40, 300)), {"format": "JPEG"}),
        "b/palette.png": (rgb.convert("P"), {"format": "PNG"}),
        "b/alpha.png": (rgb.convert("RGBA"), {"format": "PNG"}),
        "b/webp.webp": (rgb, {"format": "WEBP"}),
        "b/png called.jpg": (rgb, {"format": "PNG"}),
        "b/bitmap.bmp": (rgb, {"format": "BMP"}),
    }
    for name, (image, options) in kinds.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(folder / name, **options)
    return folder
