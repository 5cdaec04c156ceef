"""uv, run with pip's settings, none of which it reads: indexes, find-links, constraints, certificates, proxy.

It takes what its cache has where no index can be reached; a failure is said in one sentence.
"""

import configparser
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

import platformdirs
from uv import find_uv_bin

from framework_compare.environments.interpreters import Unavailable

_DOWNLOAD = re.compile(r"Downloading (\S+) \(([\d.]+[MG]iB)\)")
NETWORK = re.compile(r"Failed to fetch|error sending request|timed out")
# uv's variable for each option of pip's, and what separates several values there.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "retries": ("UV_HTTP_RETRIES", ""),
}
PYPI = "https://pypi.org/simple"
_CONSTRAINTS, _NO_INDEX = "constraint", "no-index"  # for which the installer gives options
_PROXY = "proxy"
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")  # uv prefers the last two, and capitals
_TRUE, _FALSE = ("1", "on", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no", "off")


class PipSettings(NamedTuple):
    """Options of pip's that uv has, too, by pip's names."""

    options: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        return sorted(name for name in self.options if name in (*_VARIABLES, _CONSTRAINTS, _NO_INDEX, _PROXY))

    @property
    def constraints(self) -> list[str]:
        """Files or URLs."""
        return [os.path.expanduser(path) for path in self.options.get(_CONSTRAINTS, "").split()]

    @property
    def no_index(self) -> bool:
        return self.options.get(_NO_INDEX, "").lower() in _TRUE

    @property
    def indexes(self) -> list[str]:
        """Return the indexes that uv asks, in its order: the default one last."""
        handed = self.environment()
        extra = f"{handed.get('UV_INDEX', '')} {handed.get('UV_EXTRA_INDEX_URL', '')}".split()
        return [*extra, handed.get("UV_DEFAULT_INDEX") or handed.get("UV_INDEX_URL") or PYPI]

    def environment(self) -> dict[str, str]:
        """This process' variables and uv's own; one that is set already stays, except a proxy, as in pip."""
        handed = {}
        for name, (variable, separator) in _VARIABLES.items():
            if name in self.options:
                value = self.options[name]
                parts = value.split() if separator else [value]
                handed[variable] = separator.join(_as_uv_takes_it(name, part) for part in parts)
        proxy = self.options.get(_PROXY)
        return {**handed, **os.environ, **(dict.fromkeys(_PROXIES, proxy) if proxy else {})}


class Failed(Exception):
    """A command ended badly; its message is the reason that uv gave."""


class Uv:
    """Runs uv for one framework; output goes to `log`, and `say` gets a message for each slow download."""

    def __init__(self, framework: str, log: TextIO, say: Callable[[str], None]) -> None:
        self.framework, self.log, self.say = framework, log, say
        self.settings = read()
        log.write(f"from pip's settings: {', '.join(self.settings.names) or 'nothing'}\n")

    @property
    def limits(self) -> tuple[str, ...]:
        """Options for the constraints of pip's settings."""
        return tuple(part for path in self.settings.constraints for part in ("--constraint", path))

    @property
    def links(self) -> tuple[str, ...]:
        return ("--no-index",) if self.settings.no_index else ()

    def run(self, *arguments: str) -> None:
        """Run uv; where no index can be reached, with what its cache has."""
        try:
            self._run(*arguments)
        except Failed as failure:
            if not NETWORK.search(str(failure)):
                raise
            self.say(f"{self.framework}: {failure}; trying uv's cache")
            try:
                self._run(*arguments, "--offline")
            except Failed:
                raise failure from None

    def succeeds(self, *arguments: str, given: str) -> bool:
        """Return whether a command ends well, with a text as its input; what it prints is dropped."""
        command, environment = self._command(*arguments)
        done = subprocess.run(command, env=environment, input=given, capture_output=True, encoding="utf-8")
        return not done.returncode

    def _command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """A command of uv and its variables."""
        environment, own_index = self.settings.environment(), "--default-index" in arguments
        for name in ("PYTHONPATH", "PYTHONHOME", *(("UV_INDEX", "UV_EXTRA_INDEX_URL") if own_index else ())):
            environment.pop(name, None)
        return [find_uv_bin(), *arguments, "--no-config", "--no-progress", "--color", "never"], environment

    def _run(self, *arguments: str) -> None:
        command, environment = self._command(*arguments)
        self.log.write("$ " + " ".join(public_url(part) or "" for part in command) + "\n")
        self.log.flush()
        lines = []
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        ) as child:  # fmt: skip
            try:
                for line in child.stdout or ():
                    self.log.write(line)
                    lines.append(line)
                    if match := _DOWNLOAD.match(line):
                        self.say(f"{self.framework}: downloading {match[1]} ({match[2]})")
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            raise Failed(reason(lines))


def _as_uv_takes_it(name: str, value: str) -> str:
    """A value of pip's for uv, which expands no ~ and counts whole seconds."""
    if name in ("find-links", "cert", "client-cert"):
        return os.path.expanduser(value)
    if name in ("timeout", "default-timeout"):
        try:
            return str(max(1, math.ceil(float(value))))
        except (ValueError, OverflowError):
            return value  # which uv refuses, and says so
    return value


def public_url(url: str | None) -> str | None:
    """A URL without the user name and password it may hold, fit to be stored and shown."""
    return re.sub(r"(?<=//)[^/@]*@", "", url) if url else url


def reason(lines: list[str]) -> str:
    """Return why uv failed, from what it printed: "error: ..." and its causes, the last of which is the first."""
    text = re.split(r"^hint: ", "".join(lines), flags=re.MULTILINE)[0]
    error = re.split(r"^error: ", text, flags=re.MULTILINE)[-1]
    parts = [" ".join(part.split()).rstrip(".") for part in re.split(r"^\s*cause: ", error, flags=re.MULTILINE)]
    parts[-1] = re.sub(r" Expected: .* Computed: (sha256:\w{12}).*", r" (it has \1...)", parts[-1])
    told = ": ".join(parts if len(parts) < 3 else (*parts[:2], parts[-1])) or "it printed nothing"
    return told if len(told) <= 400 else f"{told[:397]}..."


def read() -> PipSettings:
    """Return what pip would use here: its files, of which the later ones win, then PIP_* variables. Raises Unavailable."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(_files(), encoding="utf-8")
    except (configparser.Error, UnicodeError) as error:
        why = " ".join(str(error).split())
        raise Unavailable(f"pip's settings cannot be read ({why})", "fix that file (`pip config debug`)") from None
    options: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            options.update({_option(key): value for key, value in parser.items(section) if value})
    named = {_option(key[4:]): value for key, value in os.environ.items() if key.startswith("PIP_")}
    options.update({key: value for key, value in named.items() if value})
    if (banned := options.get(_NO_INDEX, "no")).lower() not in (*_TRUE, *_FALSE):
        raise Unavailable(f"pip's setting {_NO_INDEX} is {banned!r}, neither yes nor no", "fix it (`pip config debug`)")
    return PipSettings(options)


def _option(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _files() -> list[Path]:
    chosen = os.environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    named = [Path(chosen)] if chosen and os.path.exists(chosen) else []  # takes the place of the user's own
    everyones = platformdirs.site_config_dir("pip", appauthor=False, multipath=True).split(os.pathsep)
    own = [Path.home() / ".pip", platformdirs.user_config_path("pip", appauthor=False)]
    folders = [*map(Path, reversed(everyones)), Path("/etc"), *([] if named else own), Path(sys.prefix)]
    return [*(folder / "pip.conf" for folder in folders), *named]
