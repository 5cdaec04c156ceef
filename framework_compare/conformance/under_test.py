"""From what `--framework` says to an entry of the registry."""

from __future__ import annotations

from pathlib import Path

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.registry import Framework

ANY_PYTHON = ((3, 8), (3, 99))


def entry_of(text: str) -> Framework:
    """A registered framework by name or alias, or one registered now from `path/to/adapter.py:Class`, or its folder.

    The latter is called after its file. It runs in an environment of the requirements beside it (`adapter.txt`, in a
    folder `requirements.txt`), in the interpreter that --python names, or in that of pytest.
    """
    place, separator, name = text.rpartition(":")
    if text.endswith(".py") or (separator and (place.endswith(".py") or Path(place).is_dir())):
        return _register(Path(place if separator else text), name if separator else "")
    return registry.framework(text)


def _register(path: Path, trainer: str) -> Framework:
    if not trainer.isidentifier():
        raise UsageError(f"--framework {path} names no class; write it as {path}:Class")
    if not (path.is_file() or (path / "__init__.py").is_file()):
        raise UsageError(f"--framework {path}:{trainer}: there is no file {path.absolute()}")
    path = path.absolute()
    name = registry.ALIASES.get(path.stem.lower(), path.stem.lower())
    requirements = path / "requirements.txt" if path.is_dir() else path.with_suffix(".txt")
    entry = Framework(name, f"{path}:{trainer}", str(requirements) if requirements.is_file() else "", "", ANY_PYTHON)
    registry.register_framework(entry)
    return entry
