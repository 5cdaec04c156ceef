"""Paths, user and host names out of what is to be published, and a list of what was replaced by what."""

import functools
import getpass
import ipaddress
import os
import platform
import re
from collections.abc import Iterable, Mapping

from framework_compare import registry
from framework_compare.archive.documents import MAIL, MAX_TEXT, PATH, PUBLIC_HOSTS, PUBLIC_URL, URL
from framework_compare.json_types import JSON

KINDS = ("paths", "user names", "host names", "addresses")  # of what is replaced
# What names users and hosts: paths, and what an environment says.
USERS = (
    re.compile(r"[/\\](?:home|Users|u)[/\\]+([\w.-]+)"),
    re.compile(r"(?<![\w./~)\]>])~([A-Za-z_][\w.-]*)"),
    re.compile(r"\b(?:USER|USERNAME|LOGNAME|SUDO_USER)['\"]?\s*[=:]\s*['\"]?([\w.-]+)"),
)
HOSTS = (re.compile(r"\b(?:HOST|HOSTNAME|NODENAME|SLURMD_NODENAME|COMPUTERNAME)['\"]?\s*[=:]\s*['\"]?([\w.-]+)"),)
# "c10::add" and "12:30:00" are none.
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[23][\da-f]{3}|f[cd][\da-f]{2}|fe[89ab][\da-f])(?::[\da-f]{0,4}){1,6}:[\da-f]{1,4}(?!\w)", re.I
)
# A host in a domain. Names of files and of layers have dots, too, so only these endings are of domains.
_DOMAINS = (
    "com|net|org|edu|gov|mil|int|eu|de|fr|uk|ch|at|nl|be|es|pt|pl|cz|dk|se|no|fi|gr|cn|jp|kr|au|ca|us|br|ru|"
    "local|lan|internal|intranet|intern|corp|home|localdomain|cluster|hpc|private|test|example"
)
_HOST = re.compile(
    rf"(?<![\w./@-])(?!(?:{PUBLIC_HOSTS})\b)[a-z][a-z\d-]*(?:\.[a-z\d-]+)*\.(?:{_DOMAINS})(?![\w-]|\.\w)", re.I
)
_PRIVATE_ADDRESS = re.compile(r"\b(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b")
# Names that many machines share tell nothing, and are words of sentences.
_COMMON = {"root", "user", "admin", "ubuntu", "debian", "runner", "nobody", "default", "localhost", "jovyan", "test"}
_LEAST = 3  # letters of a name that is looked for in sentences
_VERSIONS = "packages"  # whose versions look like addresses
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class Scrubber:
    """Replaces names in strings; `replaced` has by kind what was replaced, and how often."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        here = platform.node()
        self.replaced: dict[str, dict[str, int]] = {}
        self._hosts = _pattern([*hosts, here, here.partition(".")[0]])
        self._users = _pattern([*users, *_own_names()])

    def document(self, value: JSON, name: str = "") -> JSON:
        """A document with every string replaced, those of names too."""
        if isinstance(value, str):
            return self.text(value, name == _VERSIONS)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): self.document(one, key if name != _VERSIONS else name)
                for key, one in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [one if type(one) in (int, float, type(None)) else self.document(one, name) for one in value]
        return value

    def text(self, text: str, versions: bool = False) -> str:
        """A string without paths, addresses and names, as a submission may hold it."""
        if text.startswith(("/", "~/", "\\\\")) and "\n" not in text and ": " not in text:
            text = self._note("paths", text, _without_folder(text))
        # Of versions only those that nothing in a version looks like, in this order.
        for pattern, kind, replacement, of_versions in (
            (URL, "addresses", "URL", True),
            (MAIL, "addresses", "EMAIL", True),
            (_PRIVATE_ADDRESS, "addresses", "ADDRESS", False),
            (_IPV6, "addresses", "ADDRESS", False),
            (PATH, "paths", "", True),
            (_HOST, "host names", "HOST", False),
            (self._hosts, "host names", "HOST", True),
            (self._users, "user names", "USER", True),
        ):
            if pattern is not None and (of_versions or not versions):
                text = pattern.sub(functools.partial(self._replacement, kind, replacement), text)
        text = _CONTROL.sub(lambda one: " " if one[0] != "\n" else "\n", text)
        text = text.replace("<", "\u2039").replace(">", "\u203a")
        return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 2] + " \u2026"

    def _replacement(self, kind: str, replacement: str, one: re.Match[str]) -> str:
        if PUBLIC_URL.fullmatch(one[0]) or (one.re is _IPV6 and not _is_address(one[0])):
            return one[0]
        return self._note(kind, one[0], replacement or _without_folder(one[0]))

    def _note(self, kind: str, found: str, replacement: str) -> str:
        counts = self.replaced.setdefault(kind, {})
        counts[f"{found} \u2192 {replacement}"] = counts.get(f"{found} \u2192 {replacement}", 0) + 1
        return replacement


def names_in(value: JSON, patterns: Iterable[re.Pattern[str]]) -> set[str]:
    """Return what the patterns find in the strings of a document: of USERS or HOSTS."""
    if isinstance(value, str):
        return {name for pattern in patterns for name in pattern.findall(value)}
    if isinstance(value, Mapping):
        return names_in(list(value), patterns) | names_in(list(value.values()), patterns)
    several = value if isinstance(value, (list, tuple)) else ()
    return set().union(*(names_in(one, patterns) for one in several if type(one) not in (int, float)))


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _without_folder(path: str) -> str:
    parts = re.split(r"[/\\]+", path.strip("/\\"))
    return "PATH" if parts == [path] and path.startswith("~") else f"PATH/{parts[-1]}"


def _own_names() -> list[str]:
    found = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
    try:
        return [*found, getpass.getuser()]
    except (KeyError, OSError):  # a user of a container who has no entry
        return found


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds these names as words, without those that are common, short, or words of this package."""
    known = {*_COMMON, *registry.FRAMEWORKS, *registry.MODELS, *registry.DATASETS, *registry.ALIASES}
    telling = {name for name in names if len(name) >= _LEAST and name.lower() not in known}
    longest = sorted(telling, key=len, reverse=True)
    return re.compile(rf"(?<![\w])(?:{'|'.join(map(re.escape, longest))})(?![\w])", re.I) if longest else None
