"""The oracle as a framework: an adapter's folder for a worker, which has no other way to the parent's modules."""

from __future__ import annotations

from pathlib import Path

from framework_compare.parity.network import oracle, rounding

PLUGINS = Path(__file__).parent
NETWORK = Path(rounding.__file__).parent


def write_adapter(folder: Path, source: str = "") -> Path:
    """A folder of the oracle, its roundings and the trainers of reference_trainer.py and ranks.py.

    What the trainers' module has, the source given can name; `.oracle`, `.rounding` and `.ranks` it can import.
    """
    for path in (*Path(oracle.__file__).parent.glob("*.py"), Path(rounding.__file__)):
        _copy(path, folder / path.relative_to(NETWORK))
    for name in ("reference_trainer.py", "ranks.py"):
        _copy(PLUGINS / name, folder / name)
    (folder / "__init__.py").write_text(f"from .reference_trainer import *\n{source}")
    return folder


def _copy(path: Path, place: Path) -> None:
    """The modules of the folder import each other relatively: a worker knows them by the folder's name."""
    dots = ".." if place.parent.name == "oracle" else "."
    text = path.read_text().replace("from framework_compare.parity.network.", f"from {dots}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text.replace("from reference_trainer ", "from .reference_trainer "))
