"""A Python that is not ours to change (conda, a container, a machine where nothing may be installed): look, only."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from framework_compare.environments import venvs
from framework_compare.environments.interpreters import Unavailable
from framework_compare.protocol import Fields
from framework_compare.registry import Framework

_TIMEOUT_S = 60
_NEEDED = {"numpy": "numpy", "PIL": "Pillow"}  # module -> package
# Read by whatever Python the user named, old ones too: nothing newer than Python 3.8 in it.
_PROBE = """
import sys
if sys.path and sys.path[0] == "":
    del sys.path[0]  # a folder named like the framework in the current one is not the framework
import json
from importlib.util import find_spec
def there(module):
    spec = find_spec(module)
    return spec is not None and spec.origin is not None
packages, owner = {}, None
try:
    from importlib.metadata import distributions
    for one in distributions():
        name = one.metadata["Name"]
        if not name or name in packages:
            continue
        packages[name] = one.version
        if sys.argv[1] in (one.read_text("top_level.txt") or "").split():
            owner = owner or name
except ImportError:
    pass
version = packages.get(sys.argv[1]) or packages.get(owner)
print("\\n" + json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], "packages": packages, "version": version,
                          "there": [module for module in sys.argv[1:] if there(module)]}))
"""


@dataclasses.dataclass(frozen=True)
class External:
    """What a user's interpreter has; `version` is the framework's, None where no package metadata says it."""

    python: Path
    interpreter: str
    version: str | None
    packages: Mapping[str, str]
    notes: tuple[str, ...]


def examine(spec: Framework, python: str | Path) -> External:
    """Check that a Python (a path, a command, or the folder of an environment) has a framework; nothing is imported.

    Raises Unavailable where it does not run, or lacks the framework, numpy or Pillow.
    """
    path = _executable(spec, python)
    answer = _ask(spec, path)
    missing = [_NEEDED.get(name, name) for name in (spec.imports, *_NEEDED) if name and name not in answer["there"]]
    if missing:
        raise Unavailable(
            f"{spec.name}: {path} (Python {answer['python']}) has no {' and no '.join(missing)}",
            "install it there, or name another interpreter",
        )
    notes = (
        ()
        if "simplejpeg" in answer["there"]
        else (f"simplejpeg is not installed in {path}, so Pillow decodes the JPEGs there",)
    )
    packages = {venvs.normal_name(name): version for name, version in answer["packages"].items()}
    return External(path, answer["python"], answer["version"] if spec.imports else None, packages, notes)


def _executable(spec: Framework, python: str | Path) -> Path:
    given = Path(python).expanduser()
    path = given / "bin/python" if given.is_dir() else given
    found = shutil.which(path)
    if found is None:
        fault = "is not an executable file" if path.exists() else "does not exist"
        raise Unavailable(f"{spec.name}: the interpreter {path} {fault}", f"check --python {spec.name}=...")
    return Path(found).absolute()  # links are kept: an environment's Python is one


def _ask(spec: Framework, path: Path) -> Fields:
    command = [str(path), "-c", _PROBE, spec.imports or next(iter(_NEEDED)), *_NEEDED, "simplejpeg"]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _unanswered(spec, path, str(error)) from None
    try:
        return json.loads(answer.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise _unanswered(spec, path, (answer.stderr.strip() or "it printed nothing").splitlines()[-1]) from None


def _unanswered(spec: Framework, path: Path, why: str) -> Unavailable:
    return Unavailable(f"{spec.name}: {path} does not run as Python ({why})", f"check --python {spec.name}=...")
