"""A framework's adapter with one change in one of its files."""

import dataclasses
import shutil

from framework_compare import registry
from framework_compare.registry import Framework


def changed(name: str, folder, file: str, old: str, new: str) -> Framework:
    """Return the framework with a copy of its adapter in folder, where new replaces old in one file."""
    entry = registry.framework(name)
    shutil.copytree(registry.source_path(entry.trainer), folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / file).read_text()
    assert source.count(old) == 1, f"{file} of {name} has {old!r} {source.count(old)} times"
    (folder / file).write_text(source.replace(old, new))
    return dataclasses.replace(entry, trainer=f"{folder}:{entry.trainer.rpartition(':')[2]}")
