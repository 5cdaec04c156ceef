"""A managed environment on disk: what it is made from, whether it is whole, how it is deleted."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from framework_compare import registry
from framework_compare.environments import gpu_builds, interpreters
from framework_compare.environments.interpreters import Interpreter, Unavailable
from framework_compare.errors import UsageError
from framework_compare.paths import write_whole
from framework_compare.protocol import Fields
from framework_compare.registry import ForeignWheels, Framework, device_kind

MARKER = "environment.json"  # written last: an environment without it was never finished
_FIELDS = {
    "framework", "checksum", "pins", "interpreter", "index", "created", "size_bytes", "site_files", "site_bytes"
}  # fmt: skip  # and "device", which markers of before there were GPU environments lack
_START_TIMEOUT_S = 20


@dataclasses.dataclass(frozen=True)
class Environment:
    """A Python that has a framework. `version` is the framework's, `interpreter` Python's own, both as text.

    `packages` are normalised names with versions. A managed environment is ours: it has a folder and a size.
    """

    framework: str
    python: Path
    version: str | None  # None where no package metadata says it
    managed: bool
    interpreter: str
    packages: Mapping[str, str]
    size_bytes: int | None = None
    requirements_checksum: str | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    device: str = "cpu"  # the kind of device a managed one was made for; of the user's own nobody asks
    used: float | None = dataclasses.field(default=None, compare=False)  # when a managed one was, Unix seconds


@dataclasses.dataclass(frozen=True)
class Plan:
    """Plan of a framework's environment: the folder that it has or will have, and what it is made from."""

    framework: str
    requirements: Path
    pins: tuple[str, ...]
    interpreter: Interpreter
    checksum: str  # of pins, Python's minor version and platform
    folder: Path
    device: str = "cpu"  # the kind of device its pins are for
    default_index: str = ""  # the package index of the framework's own packages, where no other has them
    foreign: ForeignWheels | None = None  # its requirements as an absolute path
    own: frozenset[str] = frozenset()  # normalised names of the packages that its own index has
    larger: Path | None = None  # requirements of the build for GPUs, for a CPU where no index has one for that
    elsewhere: str = ""  # the index that has what PyPI has not, for the user to name

    @property
    def python(self) -> Path:
        return python_in(self.folder)

    @property
    def log(self) -> Path:
        return log_of(self.folder)


def remedy_without_build(spec: Framework) -> str:
    """Return what a user does where no build for a device is pinned; of a foreign wheel the adapter takes no other."""
    if spec.foreign:
        return "run it on a CPU, which its only wheel is built for"
    return f"name an interpreter that has a build for it: --python {spec.name}=/path/to/python"


def plan(spec: Framework, root: Path, device: str = "cpu") -> Plan:
    """Return how a framework's environment for a device is to be made under `root`.

    Raises Unavailable where no build for the device is pinned, no Python fits or the requirements cannot be read.
    """
    kind = device_kind(device)
    if not spec.requirements_on(kind):
        raise Unavailable(
            f"{spec.name}: its adapter has no requirements for device {kind!r}", remedy_without_build(spec)
        )
    path = requirements_path(spec, kind)
    try:
        pins = pins_of(spec, kind)
    except OSError as error:
        raise Unavailable(
            f"{spec.name}: its requirements {path} cannot be read ({error.strerror})", "reinstall its package"
        ) from None
    if not pins:
        remedy = (
            f"`framework-compare env remove {spec.name}` deletes it" if "@" in spec.name else "reinstall its package"
        )
        raise Unavailable(f"{spec.name}: its requirements {path} name no package", remedy)
    interpreter = interpreters.choose(spec.python, framework=spec.name)
    parts = (*pins, "python {}.{}".format(*interpreter.minor), platform.system(), platform.machine())
    checksum = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    default = spec.cpu_index if kind == "cpu" else ""
    build = None if kind == "cpu" else gpu_builds.BUILDS.get(spec.name)
    return Plan(
        spec.name, path, pins, interpreter, checksum, root / f"{spec.name}-{checksum[:12]}", kind, default,
        foreign=_foreign(spec),
        own=frozenset(map(normal_name, (_name(pins[0]), *spec.companions))),  # the first is the framework itself
        larger=requirements_path(spec, "cuda") if default and spec.cuda_requirements else None,
        elsewhere=build.index if build else "",
    )  # fmt: skip


def _foreign(spec: Framework) -> ForeignWheels | None:
    if spec.foreign is None:
        return None
    return spec.foreign._replace(requirements=str(_beside_adapter(spec, spec.foreign.requirements)))


def requirements_path(spec: Framework, device: str = "cpu") -> Path:
    """The requirements file of a framework for a device: absolute as given, in its adapter's folder or beside its file."""
    return _beside_adapter(spec, spec.requirements_on(device))


def pins_of(spec: Framework, device: str = "cpu") -> tuple[str, ...]:
    """All requirements of a framework for a device, those of foreign wheels first; OSError if a file cannot be read."""
    foreign = _foreign(spec)
    return (*(read_pins(Path(foreign.requirements)) if foreign else ()), *read_pins(requirements_path(spec, device)))


def _beside_adapter(spec: Framework, name: str) -> Path:
    given = Path(name)
    if given.is_absolute():
        return given
    try:
        adapter = registry.source_path(spec.trainer)
    except UsageError:
        return given
    return (adapter if adapter.is_dir() else adapter.parent) / given


def read_pins(path: Path) -> tuple[str, ...]:
    """The requirements of a file, one a line, in its order, without comments and checksums."""
    return tuple(re.sub(r"\s+--hash=\S+", "", line) for line in requirement_lines(path))


def requirement_lines(path: Path, names: Collection[str] = ()) -> list[str]:
    """The same with checksums; of the packages of these normalised names alone, where some are given."""
    whole = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in whole.splitlines())
    return [line for line in lines if line and (not names or normal_name(_name(line)) in names)]


def _name(pin: str) -> str:
    return pin.partition("=")[0]


def fault(planned: Plan, *, index: str | None = None) -> str:
    """Return why the environment of a plan cannot be used as it is, empty if it can; the framework is not imported.

    `index` is the URL that the framework's own packages must be from, None for any. Every file of its packages is looked
    at and none is read: about 0.02 ms a file.
    """
    if not planned.folder.exists():
        return "it does not exist yet"
    stored = marker(planned.folder)
    if stored is None:
        return "its installation has not finished"
    if stored["checksum"] != planned.checksum:
        return "it was made from other requirements"
    if index is not None and stored["index"] != index:
        return f"it was made without the package index {index}"
    if not _starts(planned.python):
        return "its Python no longer runs"
    if survey(site_packages(planned.folder)) != (stored["site_files"], stored["site_bytes"]):
        return "files of its packages are missing or changed"
    return ""


def delete(folder: Path) -> None:
    """Delete an environment, its marker first, so that nobody takes the rest for whole; nothing there is fine."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise Unavailable(f"the environment {folder} cannot be deleted", "delete it yourself")


def marker(folder: Path) -> Fields | None:
    """Return what was written about an environment when it was finished, None where that is not there or not whole."""
    try:
        fields = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) and fields.keys() >= _FIELDS else None


def write_marker(planned: Plan, index: str | None) -> None:
    """Say that an environment is finished; `index` is the URL that the framework's own packages are from, if from one."""
    site_files, site_bytes = survey(site_packages(planned.folder))
    fields = {
        "framework": planned.framework,
        "device": planned.device,
        "checksum": planned.checksum,
        "pins": planned.pins,
        "interpreter": planned.interpreter.version,
        "index": index,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "size_bytes": survey(planned.folder, bytecode=True)[1],
        "site_files": site_files,
        "site_bytes": site_bytes,
    }
    write_whole(planned.folder / MARKER, json.dumps(fields, indent=1))


def survey(folder: Path, *, bytecode: bool = False) -> tuple[int, int]:
    """Number of files under a folder, and their bytes; links count as themselves, __pycache__ only if asked."""
    files = total = 0
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        files += 1
                        total += entry.stat(follow_symlinks=False).st_size
                    elif bytecode or entry.name != "__pycache__":
                        waiting.append(Path(entry.path))
        except FileNotFoundError:
            continue  # deleted since its folder was read: it does not count
    return files, total


def packages_in(search_path: Iterable[str]) -> dict[str, str]:
    """Normalised names and versions of the distributions found on a search path, without starting its Python."""
    packages: dict[str, str] = {}
    for one in importlib.metadata.distributions(path=list(search_path)):
        # importlib's own `metadata` parses all of the text, which takes seven times as long
        text = one.read_text("METADATA") or one.read_text("PKG-INFO") or ""
        fields = dict(re.findall(r"^(Name|Version): *(\S+)", text.partition("\n\n")[0], re.MULTILINE))
        if len(fields) == 2:
            packages.setdefault(normal_name(fields["Name"]), fields["Version"])  # the first on the path is imported
    return packages


def normal_name(distribution: str) -> str:
    """A distribution's name as indexes compare it: opt_einsum and Opt-Einsum are opt-einsum."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def site_packages(folder: Path) -> Path:
    return next(iter(folder.glob("lib/python3.*/site-packages")), folder / "lib")


def python_in(folder: Path) -> Path:
    return folder / "bin/python"


def log_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".log")


def _starts(python: Path) -> bool:
    command = [str(python), "-I", "-S", "-c", "pass"]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_START_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
