"""Where this package keeps what it makes outside the user's own folders."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "FRAMEWORK_COMPARE_CACHE"


def cache_dir() -> Path:
    """The cache folder, absolute, perhaps not there yet: $FRAMEWORK_COMPARE_CACHE, else the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("framework_compare", appauthor=False)
