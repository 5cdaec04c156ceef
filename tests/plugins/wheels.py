"""Wheels of a framework of one line, and an index of one package."""

import zipfile
from pathlib import Path


def write_wheel(folder: Path, tag: str = "py3-none-any", version: str = "1.0", name: str = "tinyfw") -> Path:
    """tinyfw, a framework of one line."""
    meta = f"{name}-{version}.dist-info/"
    files = {
        f"{name}/__init__.py": f"__version__ = '{version}'\n",
        meta + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        meta + "WHEEL": f"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, meta + "RECORD"])
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, meta + "RECORD": record}.items():
            wheel.writestr(file, text)
    return path


def install(folder: Path, module: str, source: str, group: str, entry: str) -> Path:
    """Put a distribution into a folder as pip leaves it: a module, and metadata with one entry point."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (folder / f"{module}.py").write_text(source)
    return folder


def add_to_index(index: Path, wheel: Path) -> None:
    """A package of one file."""
    page = index / wheel.name.partition("-")[0]
    page.mkdir(parents=True)
    wheel.rename(page / wheel.name)
    (page / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')
