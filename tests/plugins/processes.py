"""Processes that tests start: whether one still runs, and waiting for what happens in them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, List, Tuple

import psutil


def write_script(path: Path, text: str) -> Path:
    """Write a shell script that can be executed."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # what init has not reaped yet is dead
    except psutil.NoSuchProcess:
        return False


def naming(word: object) -> List[Tuple[psutil.Process, List[str]]]:
    """All on this host whose command line has the word, such as a folder, with that line."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        found += [(process, line)] if str(word) in " ".join(line) else []
    return found


def wait_until(happened: Callable[[], Any], what: str, limit_s: float = 20.0) -> None:
    assert wait_for(happened, limit_s), f"waited {limit_s:g} s in vain for: {what}"


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> bool:
    """Return whether the condition holds within these seconds."""
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)
    return bool(condition())
