"""Which environments go, by age and by size, and which stay because a process runs in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from framework_compare.environments.managed import Environment


def choose(
    environments: Sequence[Environment], now: float, age_s: float | None, size_bytes: float | None
) -> list[Environment]:
    """Those not used for `age_s` seconds, and then the least recently used until the others take `size_bytes` at most."""
    busy = in_use()
    by_use = sorted(
        (one for one in environments if one.folder and one.folder not in busy), key=lambda one: one.used or 0.0
    )
    doomed = [one for one in by_use if age_s is not None and now - (one.used or 0.0) > age_s]
    left = sum(one.size_bytes or 0 for one in environments) - sum(one.size_bytes or 0 for one in doomed)
    for one in by_use:
        if size_bytes is None or left <= size_bytes:
            break
        if one not in doomed:
            doomed.append(one)
            left -= one.size_bytes or 0
    return doomed


def in_use() -> set[Path]:
    """Folders of environments whose Python some process runs."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command and os.path.basename(os.path.dirname(command[0])) == "bin":
            found.add(Path(command[0]).parents[1])
    return found
