"""Competitors as users name them: a framework, one of its versions, or the one that an interpreter of theirs has.

"torch" is the pinned version, "torch@2.12.0" another one, "torch@latest" the newest, "torch=/path/to/python" what that
Python has. A competitor's name carries the version where it was given and where two of one framework compete. Cells, and
all that is stored by framework, have that name.
"""

import collections
import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence

from packaging.version import InvalidVersion, Version

from framework_compare import registry
from framework_compare.environments import externals, interpreters, locks, managed
from framework_compare.environments.interpreters import Unavailable
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.plan.values import check_unique, listed

LATEST = "latest"
VERSIONS = "torch, torch@2.12.0, torch@latest"
FORMS = f"{VERSIONS}, torch=/path/to/python"
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Competitors:
    """Names that cells have, in the order given; interpreters and indexes by these."""

    names: list[str]
    python: Mapping[str, str]
    index: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class _Wish:
    """One as it was named; version: "" for the pinned one."""

    base: str
    version: str = ""
    python: str = ""


def find_frameworks(names: object) -> list[str]:
    """Names that cells have, aliases of frameworks resolved; UsageError for one that is given twice."""
    found = []
    for name in map(str, listed("framework", names)):
        base, version, _ = _split(name)  # an interpreter names none of its own
        found.append(registry.find_name("framework", registry.FRAMEWORKS, base) + (f"@{version}" if version else ""))
    check_unique("framework", found)
    return found


def is_framework(name: object) -> bool:
    """Return whether a name is that of a competitor; its version or interpreter need not exist."""
    try:
        registry.find("framework", registry.FRAMEWORKS, _split(str(name))[0])
    except UnknownNameError:
        return False
    return True


def read(
    wanted: object,
    python: Mapping[str, str] | None = None,
    index: Mapping[str, str] | None = None,
    device: str = "cpu",
    say: Say = lambda message: None,
) -> Competitors:
    """Names, versions and interpreters of competitors; what is the same twice gets a name of its own.

    index: by framework, for all its competitors, or by a competitor's name; python: likewise, by framework for the one that
    names no version. UsageError for a version that no index has, with the nearest ones.
    """
    given, python, index = dict(python or {}), dict(python or {}), dict(index or {})
    kind = "cuda" if device.startswith("cuda") else "cpu"
    wishes = [_wish(one, python, kind, say) for one in listed("framework", wanted)]
    several = collections.Counter(wish.base for wish in wishes)
    names: list[str] = []
    for wish in wishes:
        name = _name(wish, several[wish.base] > 1, kind)
        while name in names and (wish.python or name in python):
            name += locks.AGAIN if "@" in name else "@" + locks.AGAIN[1:]
        names.append(name)
        if wish.python:
            python[name] = wish.python
        if wish.base in index:
            index.setdefault(name, index[wish.base])
    python = {name: path for name, path in python.items() if name in names or name not in several}
    _say_of_interpreters(given, names, python, say)
    return Competitors(names, python, index)


def _say_of_interpreters(given: Mapping[str, str], names: Sequence[str], python: Mapping[str, str], say: Say) -> None:
    """Say which interpreter nobody takes, and which has another version than its competitor's name."""
    for asked, path in given.items():
        base, _, version = asked.partition("@")
        here = [name for name in names if name.partition("@")[0] == base]
        if here and path not in [python.get(name) for name in here]:
            why = f"the competitors are {', '.join(here)}" if version else f"each {base} here names a version"
            say(f"python of {asked} is not used, since {why}")
    for name in names:
        if name in python:
            with contextlib.suppress(Unavailable):  # a cell says so
                found = externals.examine(registry.FRAMEWORKS[name.partition("@")[0]], python[name]).version
                if remark := misnamed(name, found):
                    say(f"{python[name]}: {remark}")


def misnamed(competitor: str, found: str | None) -> str:
    """Return what to say of a competitor that runs another version than that of its name; "" if it does not."""
    base, _, version = competitor.partition("@")
    try:
        asked = Version(re.sub(f"({locks.AGAIN})+$", "", version))
        other = bool(found) and Version(Version(str(found)).public) != Version(asked.public)
    except InvalidVersion:  # of "jax", of "jax@b"
        return ""
    return f"{competitor} runs {base} {found}, not the version of its name" if other else ""


def check_interpreters(names: Sequence[str], python: Mapping[str, str] | None) -> None:
    """UsageError for an interpreter of these competitors that cannot run its framework."""
    named = [(base, path) for base, _, path in map(_split, names) if path]
    for name, path in (*named, *(python or {}).items()):
        try:
            externals.examine(registry.framework(name), path)
        except Unavailable as error:
            raise UsageError(str(error)) from None


def twice(a: str, b: str) -> tuple[str, str]:
    """The names of two competitors, of which the second may be the same as the first, word for word."""
    (base, version, path), (other, another, elsewhere) = _split(a), _split(b)
    pinned = locks.pinned(registry.framework(base))
    if a != b and base == other and not (path or elsewhere) and (version or pinned) == (another or pinned):
        raise UsageError(f"{a} and {b} are the same version of {base}; name another, or {a} twice")
    return (a, b) if a != b or "=" in b else (a, f"{b}{locks.AGAIN}" if "@" in b else f"{b}@{locks.AGAIN[1:]}")


def _split(text: str) -> tuple[str, str, str]:
    """Framework, version, interpreter."""
    if text in registry.FRAMEWORKS:
        return text, "", ""
    name, _, path = text.partition("=")
    base, _, version = name.partition("@")
    return base, version, path


def _wish(text: object, python: Mapping[str, str], device: str, say: Say) -> _Wish:
    base, version, path = _split(str(text))
    key = registry.find_name("framework", registry.FRAMEWORKS, base)
    if ("=" in str(text) and not path) or ("@" in str(text).partition("=")[0] and not version) or (version and path):
        raise UsageError(f"framework is {text!r}; allowed: {FORMS}")
    meant = path.removeprefix("=")
    if _is_version(meant) and not os.path.exists(path):
        raise UsageError(f"framework is {text!r}, whose {path!r} is no interpreter; for a version, name {key}@{meant}")
    again = version == locks.AGAIN[1:]  # the same as another, from wherever that comes
    path = path or python.get(f"{key}@{version}" if version else key) or python.get(str(text)) or ""
    path = path or (python.get(key, "") if again else "")
    if path and version.removesuffix(locks.AGAIN) == LATEST:
        raise UsageError(f"python of {text} is {path!r}, which has one version; allowed: {key}={path}")
    if path or not version or again:
        return _Wish(key, version, path)
    return _Wish(key, _version(key, registry.FRAMEWORKS[key], version, device, say))


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


def _version(key: str, entry: registry.Framework, version: str, device: str, say: Say) -> str:
    """A version as indexes write it, which one has or whose environment is there."""
    pinned = locks.pinned(entry, device)
    bare = version.removesuffix(locks.AGAIN)
    suffix = version[len(bare) :]
    if not locks.has_versions(entry, device):
        only = f"only {pinned} is" if pinned else "no version is"
        raise UsageError(
            f"framework is {key}@{version}; {only} pinned for {key}, allowed: {key}, or {key}=/path/to/python"
        )
    if bare == LATEST:
        return _latest(key, entry, pinned, device, say) + suffix
    try:
        asked = Version(bare)
    except InvalidVersion:
        raise UsageError(f"framework is {key}@{version}, which is not a version; allowed: {FORMS}") from None
    if asked.local:
        raise UsageError(f"framework is {key}@{version}; name the version without its build: {key}@{asked.public}")
    if entry.since and asked < Version(entry.since):
        raise UsageError(f"framework is {key}@{version}; allowed: {key}@{entry.since} or later")
    if pinned and asked == Version(pinned):
        return pinned + suffix
    there = [one for one in managed.versions_here(key, device) if one == asked]
    bare = str(there[0] if there else asked.public)
    try:
        if not there:
            bare, _ = locks.release(entry, asked, device)
    except locks.NoRelease as error:
        raise UsageError(f"framework is {key}@{version}; {error}") from None
    except Unavailable as error:  # a cell says so
        say(f"{key}@{version}: {error}")
    return bare + suffix


def _latest(key: str, entry: registry.Framework, pinned: str, device: str, say: Say) -> str:
    """The newest stable release for the Python that is taken first; without a network the newest that is here for it."""
    try:
        listed = [one for one in locks.listed(entry, device, say) if not one.is_prerelease]
        return str(max(listed).public) if listed else pinned
    except Unavailable as error:
        here = managed.versions_here(key, device, interpreters.choose(entry.python, framework=key).minor)
        newest = str(here[-1]) if here else pinned
        say(f"{key}@{LATEST}: {error}; using the newest installed version, {newest}")
        return newest


def _name(wish: _Wish, several: bool, device: str) -> str:
    """Return what cells call a competitor."""
    entry = registry.FRAMEWORKS[wish.base]
    pinned = locks.pinned(entry, device)
    if wish.python:
        if not several:
            return wish.base if not wish.version else f"{wish.base}@{wish.version}"
        try:
            version = externals.examine(entry, wish.python).version
        except Unavailable as error:
            raise UsageError(str(error)) from None
        if version and wish.version == locks.AGAIN[1:]:
            return f"{wish.base}@{version}{locks.AGAIN}"
        return f"{wish.base}@{wish.version or version or locks.AGAIN[1:]}"
    version = wish.version or (pinned if several else "")
    if version == locks.AGAIN[1:] and pinned:
        version = pinned + locks.AGAIN
    return f"{wish.base}@{version}" if version else wish.base
