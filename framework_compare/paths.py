"""Folders that this package makes outside the user's own, and names of files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "FRAMEWORK_COMPARE_CACHE"


def cache_dir() -> Path:
    """The cache folder, absolute, perhaps not there yet: $FRAMEWORK_COMPARE_CACHE, else the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("framework_compare", appauthor=False)


def file_name(text: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80]
