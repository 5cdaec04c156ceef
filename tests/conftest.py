"""What tests share: the test framework and model, small real pictures, the real data where it is beside the project."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, Tuple

import numpy as np
import pytest
from PIL import Image

from framework_compare import registry
from framework_compare.datasets import fire_smoke
from framework_compare.parity.network import oracle
from framework_compare.parity.verify import Where
from framework_compare.parity.workers import RunTasks
from framework_compare.protocol import TrainConfig
from framework_compare.registry import Framework
from framework_compare.samplers.disturbance import DisturbanceLog

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent
REAL_PICTURES = HERE.parent.parent / "shared" / "data" / "fire_smoke_791"
COLOURS = {"fire": (220, 90, 20), "smoke": (150, 150, 150), "no_fire": (40, 130, 60)}

sys.path.insert(0, str(HERE / "plugins"))


def pytest_collection_modifyitems(config: pytest.Config, items: "list[pytest.Item]") -> None:
    """Tests marked `slow` run only where `-m` names them."""
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told of what others take of the CPU, so that no run is repeated for them; test_disturbances is of that."""
    monkeypatch.setattr(DisturbanceLog, "shares", lambda *_: None)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """Registers the test framework `tiny` and the test model `linear`; the framework's name."""
    entry = Framework("tiny", f"{HERE / 'plugins' / 'tiny.py'}:TinyTrainer", "", "numpy", ((3, 8), (3, 99)))
    monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
    monkeypatch.setitem(registry.MODELS, "linear", "linear:build")
    return "tiny"


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> str:
    """Registers the test framework `faulty`, and a model named after each of its faults; the framework's name."""
    from faulty import FAULTS

    entry = Framework("faulty", f"{HERE / 'plugins' / 'faulty.py'}:FaultyTrainer", "", "numpy", ((3, 8), (3, 99)))
    monkeypatch.setitem(registry.FRAMEWORKS, "faulty", entry)
    for name in FAULTS:
        monkeypatch.setitem(registry.MODELS, name, f"faults:{name}")
    return "faulty"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 13 small JPEG pictures in three classes that differ in colour."""
    folder = tmp_path_factory.mktemp("pictures") / "colours"
    rng = np.random.default_rng(0)
    for label, (name, colour) in enumerate(COLOURS.items()):
        (folder / name).mkdir(parents=True)
        for number in range(4 + (label == 0)):
            noise = rng.normal(0, 25, (48, 64, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg", quality=90)
    return folder


@pytest.fixture(scope="session")
def real_pictures() -> Path:
    """The 791 real photos where they are beside the project, else rendered ones."""
    return REAL_PICTURES if REAL_PICTURES.is_dir() else fire_smoke.tiny()


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


@pytest.fixture
def register_mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Callable[[str], None]:
    """Registers the framework `mutated`: the float32 reference, and a class Mutated(ReferenceTrainer) of the source given."""

    def register(source: str) -> None:
        trainer = (HERE / "plugins" / "reference_trainer.py").read_text()
        path = tmp_path / "mutated.py"
        path.write_text(Path(oracle.__file__).read_text() + trainer + source)
        entry = Framework("mutated", f"{path}:Mutated", "", "numpy", ((3, 8), (3, 99)))
        monkeypatch.setitem(registry.FRAMEWORKS, "mutated", entry)

    return register


@pytest.fixture
def ask_mutated(tmp_path: Path, register_mutated: Callable[[str], None]) -> Callable[..., Tuple[RunTasks, TrainConfig]]:
    """What asks a worker of `mutated`, with settings of TrainConfig, as the ladder's judges want it."""

    def ask(source: str, **settings: Any) -> Tuple[RunTasks, TrainConfig]:
        register_mutated(source)
        environment = Where(python={"mutated": sys.executable}).environment("mutated", print)
        config = TrainConfig(threads=1, **settings)
        return RunTasks(tmp_path / "asked", "mutated", config, environment), config

    (tmp_path / "asked").mkdir()
    return ask


@pytest.fixture(scope="session")
def mixed_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 pictures of every kind a user's folder may hold: grey, CMYK, progressive JPEG, palette, alpha, wrong ending."""
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
