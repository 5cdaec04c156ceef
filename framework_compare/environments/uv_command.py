"""Run uv with pip's settings, with what its cache has where no index can be reached; say in one sentence why it failed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import TextIO

from uv import find_uv_bin

from framework_compare.environments import pip_settings

_DOWNLOAD = re.compile(r"Downloading (\S+) \(([\d.]+[MG]iB)\)")
NETWORK = re.compile(r"Failed to fetch|error sending request|timed out")


class Failed(Exception):
    """A command ended badly; its message is the reason that uv gave."""


class Uv:
    """Runs uv for one framework; output goes to `log`, and `say` gets a message for each slow download."""

    def __init__(self, framework: str, log: TextIO, say: Callable[[str], None]) -> None:
        self.framework, self.log, self.say = framework, log, say
        self.settings = pip_settings.read()
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
        """Whether a command ends well, with a text as its input; what it prints is dropped."""
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


def public_url(url: str | None) -> str | None:
    """A URL without the user name and password it may hold, fit to be stored and shown."""
    return re.sub(r"(?<=//)[^/@]*@", "", url) if url else url


def reason(lines: list[str]) -> str:
    """Why uv failed, from what it printed: "error: ..." and its causes, the last of which is the first."""
    text = re.split(r"^hint: ", "".join(lines), flags=re.MULTILINE)[0]
    error = re.split(r"^error: ", text, flags=re.MULTILINE)[-1]
    parts = [" ".join(part.split()).rstrip(".") for part in re.split(r"^\s*cause: ", error, flags=re.MULTILINE)]
    parts[-1] = re.sub(r" Expected: .* Computed: (sha256:\w{12}).*", r" (it has \1...)", parts[-1])
    told = ": ".join(parts if len(parts) < 3 else (*parts[:2], parts[-1])) or "it printed nothing"
    return told if len(told) <= 400 else f"{told[:397]}..."
