"""Lock files of versions: the requirements of a framework at another version than the pinned one.

uv resolves them once, with the checksum of every file, as near to the pinned versions of all other packages as it can.
They stay in the cache beside the environments, so that a version is the same wherever its environment is made again.
"""

import dataclasses
import datetime
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from framework_compare import registry
from framework_compare.environments import interpreters, releases, venvs
from framework_compare.environments.installer import NO_INDEX
from framework_compare.environments.interpreters import Minor, Unavailable
from framework_compare.environments.uv_command import Failed, Uv, public_url
from framework_compare.paths import write_whole
from framework_compare.registry import Framework, device_kind

AGAIN = "-b"  # behind a version: the same one a second time, as a competitor of its own
_LAST_DIRECT = "simplejpeg"  # requirements name what adapters import down to it, then what these depend on
_FILE = re.compile(r"(?P<base>.+)-(?P<version>[^-]+)-(?P<kind>cpu|cuda)-cp(?P<major>\d)(?P<minor>\d+)\.txt")


def split(name: str) -> tuple[str, str]:
    """ "jax" and "0.9.0" of "jax@0.9.0"; "" is the pinned version."""
    base, _, version = name.partition("@")
    return base, version.removesuffix(AGAIN) if version != AGAIN[1:] else ""


def pinned(spec: Framework, device: str = "cpu") -> str:
    """The version that a framework's requirements pin, without the name of a build; "" where they pin none."""
    if not spec.requirements_on(device):
        return ""
    try:
        pins = venvs.pins_of(spec, device)
        pin = next(pin for pin in pins if _is(pin, spec.library or pins[0]))
        return str(Version(pin.partition(" ")[0].rpartition("=")[2]).public)
    except (OSError, IndexError, StopIteration, InvalidVersion):
        return ""


def package(spec: Framework, device: str = "cpu") -> str:
    """The package of a framework on a device: its library, or by convention the first of its requirements."""
    return spec.library or venvs.read_pins(venvs.requirements_path(spec, device))[0].partition("=")[0]


def has_versions(spec: Framework, device: str = "cpu") -> bool:
    """Return whether other versions of a framework can be installed."""
    return bool(pinned(spec, device)) and spec.foreign is None


class NoRelease(Unavailable):
    """No index has a version for a Python of this machine."""


@dataclasses.dataclass(frozen=True)
class Lock:
    """The lock file of a version, and the Python that it is for."""

    path: Path
    python: Minor


def find(root: Path, name: str, device: str) -> Lock | None:
    """The lock of a version under `root`: for the Python that is taken first, else for the newest; None without any."""
    base, version = split(name)
    spec, kind = registry.framework(base), device_kind(device)
    fitting = {
        (int(found["major"]), int(found["minor"])): path
        for path in root.glob(f"{base}-{version}-{kind}-cp*.txt")
        if (found := _FILE.fullmatch(path.name)) and found["version"] == version
    }
    first = interpreters.choose(spec.python, framework=name).minor
    if not fitting:
        return None
    python = first if first in fitting else max(fitting)
    return Lock(fitting[python], python)


def known(root: Path, base: str, device: str) -> list[Version]:
    """Versions of a framework that have a lock, oldest first."""
    kind = device_kind(device)
    files = filter(None, (_FILE.fullmatch(path.name) for path in root.glob(f"{base}-*-{kind}-cp*.txt")))
    return sorted({Version(found["version"]) for found in files if found["base"] == base})


def keep(root: Path, spec: Framework, python: Minor, device: str) -> None:
    """Copy the requirements of the pinned version among the locks, where it stays when the pin moves."""
    version, kind = pinned(spec, device), device_kind(device)
    if not has_versions(spec, device):
        return
    path = root / f"{spec.name}-{version}-{kind}-cp{python[0]}{python[1]}.txt"
    text = venvs.requirements_path(spec, kind).read_text(encoding="utf-8")
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_whole(path, text)


def requirements(spec: Framework, lock: Lock, name: str, device: str) -> Framework:
    """The framework with the requirements of a lock in place of its own."""
    spec = dataclasses.replace(spec, name=name, python=(lock.python, lock.python), environment="")
    if device_kind(device) == "cuda":
        return dataclasses.replace(spec, cuda_requirements=str(lock.path))
    return dataclasses.replace(spec, requirements=str(lock.path), cuda_requirements="")  # no other build in its place


def listed(spec: Framework, device: str, say: Callable[[str], None] = lambda message: None) -> list[Version]:
    """Releases of a framework for the Python of this machine that is taken first, oldest first. Raises Unavailable."""
    return releases.released(package(spec, device), interpreters.choose(spec.python, framework=spec.name).minor, say)


def release(spec: Framework, asked: Version, device: str) -> tuple[str, Minor]:
    """A version as indexes write it, and its Python: the one that is taken first, else the newest that fits.

    Raises NoRelease with the nearest ones where no index has it, Unavailable where one that cannot be read may have it.
    """
    name, seen = package(spec, device), []
    unread: list[str] = []
    first = interpreters.choose(spec.python, framework=spec.name).minor
    for minor in (first, *(minor for minor in interpreters.minors(spec.python) if minor != first)):
        there = releases.released(name, minor, unread.append)
        found = [one for one in there if Version(one.public) == asked]
        if found:
            return found[0].public, minor
        seen += there
    if unread:
        raise Unavailable(f"no index that responds has {name} {asked} ({unread[0]})", "check the network")
    raise NoRelease(
        f"{spec.library or spec.name} has no release {asked} with a wheel for a Python of this machine",
        nearest(asked, seen),
    )


def nearest(asked: Version, there: Sequence[Version]) -> str:
    """Return what to name instead of a version that is not there."""
    stable = sorted({Version(one.public) for one in there if not one.is_prerelease})
    below = [one for one in stable if one < asked][-2:]
    above = [one for one in stable if one > asked][:2]
    if not stable:
        return "no index lists a release for this machine"
    return f"the nearest are {', '.join(map(str, (*below, *above)))}"


def make(root: Path, spec: Framework, version: str, device: str, index: str | None, say: Callable[[str], None]) -> Lock:
    """Resolve a version by uv and write its lock. Raises Unavailable."""
    kind = device_kind(device)
    _, python = release(spec, Version(version), device)
    interpreter = interpreters.choose((python, python), framework=spec.name)
    path = root / f"{spec.name}-{version}-{kind}-cp{python[0]}{python[1]}.txt"
    root.mkdir(parents=True, exist_ok=True)
    pins = venvs.read_pins(venvs.requirements_path(spec, kind))
    asked, half, log = (path.with_suffix(end) for end in (".in", ".part", ".log"))
    extra = f"[{spec.cuda_extra}]" if kind == "cuda" and spec.cuda_extra else ""
    asked.write_text("\n".join(_asked(package(spec, kind), version, extra, pins)), encoding="utf-8")
    say(f"{spec.name}@{version}: resolving its dependencies for Python {interpreter.version}")
    default = spec.cpu_index if kind == "cpu" and index is None else ""
    with log.open("w", encoding="utf-8") as output:
        uv = Uv(f"{spec.name}@{version}", output, say)

        def resolve(*indexes: str) -> list[str]:
            half.write_text("\n".join(pins), encoding="utf-8")  # uv prefers what the file has
            uv.run(
                *("pip", "compile", str(asked), "-o", str(half), "--generate-hashes", "--no-header", "--no-annotate"),
                *("--only-binary", ":all:", "--python", str(interpreter.path)),
                *("--index-strategy", "unsafe-first-match", *uv.links, *uv.limits, *indexes),
            )
            return venvs.requirement_lines(half)

        try:
            lines = resolve(*(("--index", index) if index and index != NO_INDEX else ()))
        except Failed as failure:
            raise Unavailable(
                f"{spec.name}@{version}: uv could not resolve it ({public_url(str(failure))})",
                f"name another version, or an interpreter that has it: {spec.name}=/path/to/python; uv's output is in {log}",
            ) from None
        if default and "+" not in next(line for line in lines if _is(line, pins[0])):
            try:
                lines = resolve("--index", default)
            except Failed as failure:
                say(
                    f"{spec.name}@{version}: its index of CPU builds, {default}, does not respond ({failure}); its GPU"
                    " build is installed, several GB"
                )
    lines.sort(key=lambda line: not _is(line, pins[0]))  # by convention the framework is the first
    today = datetime.date.today().isoformat()
    half.write_text(
        f"# {spec.name} {version}, {kind}, Python {python[0]}.{python[1]}, resolved {today}\n"
        + "".join(re.sub(r"\s+--hash", " \\\n    --hash", line) + "\n" for line in lines),
        encoding="utf-8",
    )
    os.replace(half, path)
    asked.unlink(missing_ok=True)
    return Lock(path, python)


def _asked(package: str, version: str, extra: str, pins: Sequence[str]) -> list[str]:
    """The framework at a version, and what its adapter imports at any."""
    names = [pin.partition("=")[0] for pin in pins]
    last = names.index(_LAST_DIRECT) + 1 if _LAST_DIRECT in names else len(names)
    others = (name for name in dict.fromkeys(names[:last]) if not _is(name, package))
    return [f"{package}{extra}=={version}", *others]


def _is(line: str, pin: str) -> bool:
    return venvs.normal_name(line.partition("=")[0]) == venvs.normal_name(pin.partition("=")[0])
