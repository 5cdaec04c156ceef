"""pip's settings, handed to uv, which reads none of them: indexes, find-links, constraints, certificates, proxy."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import platformdirs

from framework_compare.environments.interpreters import Unavailable

# uv's variable for each option of pip's, and what separates several values there.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "proxy": ("ALL_PROXY", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "retries": ("UV_HTTP_RETRIES", ""),
}
PYPI = "https://pypi.org/simple"
_CONSTRAINTS, _NO_INDEX = "constraint", "no-index"  # for which the installer gives options


class PipSettings(NamedTuple):
    """Options of pip's that uv has, too, by pip's names."""

    options: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        return sorted(name for name in self.options if name in (*_VARIABLES, _CONSTRAINTS, _NO_INDEX))

    @property
    def constraints(self) -> list[str]:
        """Files or URLs."""
        return self.options.get(_CONSTRAINTS, "").split()

    @property
    def no_index(self) -> bool:
        return self.options.get(_NO_INDEX, "").lower() in ("1", "true", "yes", "on")

    @property
    def indexes(self) -> list[str]:
        """Those that uv asks, in its order: the default one last."""
        handed = self.environment()
        extra = f"{handed.get('UV_INDEX', '')} {handed.get('UV_EXTRA_INDEX_URL', '')}".split()
        return [*extra, handed.get("UV_DEFAULT_INDEX") or handed.get("UV_INDEX_URL") or PYPI]

    def environment(self) -> dict[str, str]:
        """This process' variables and uv's own; one of uv's that is set already stays."""
        handed = {}
        for name, (variable, separator) in _VARIABLES.items():
            if name in self.options:
                value = self.options[name]
                handed[variable] = separator.join(value.split()) if separator else value
        return {**handed, **os.environ}


def read() -> PipSettings:
    """What pip would use here: its files, of which the later ones win, then PIP_* variables. Raises Unavailable."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(_files(), encoding="utf-8")
    except (configparser.Error, UnicodeError) as error:
        why = " ".join(str(error).split())
        raise Unavailable(f"pip's settings cannot be read ({why})", "fix that file (`pip config debug`)") from None
    options: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            options.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    named = {key[4:].lower().replace("_", "-"): value for key, value in os.environ.items() if key.startswith("PIP_")}
    options.update({key: value for key, value in named.items() if value})
    return PipSettings(options)


def _files() -> list[Path]:
    chosen = os.environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    named = [Path(chosen)] if chosen and os.path.exists(chosen) else []  # takes the place of the user's own
    everyones = platformdirs.site_config_dir("pip", appauthor=False, multipath=True).split(os.pathsep)
    own = [Path.home() / ".pip", platformdirs.user_config_path("pip", appauthor=False)]
    folders = [*map(Path, reversed(everyones)), Path("/etc"), *([] if named else own), Path(sys.prefix)]
    return [*(folder / "pip.conf" for folder in folders), *named]
