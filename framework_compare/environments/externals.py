"""A Python that is not ours to change (conda, a container, a machine where nothing may be installed): look, only."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

from framework_compare.environments import venvs
from framework_compare.environments.interpreters import Unavailable
from framework_compare.environments.venvs import Environment
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


def given(spec: Framework, python: str | Path | None) -> Environment:
    """Return what a user's interpreter has or, without one, the Python that runs here."""
    if python is not None:
        return examine(spec, python)
    if spec.imports and importlib.util.find_spec(spec.imports) is None:
        raise Unavailable(
            f"{spec.name} has no requirements, so it runs on {sys.executable}, which has no module {spec.imports}",
            "install it there, or name an interpreter that has it",
        )
    packages = venvs.packages_in(sys.path)
    version = packages.get(venvs.normal_name(spec.imports))
    return Environment(spec.name, Path(sys.executable), version, False, sys.version.split()[0], packages)


def examine(spec: Framework, python: str | Path) -> Environment:
    """Check that a Python (a path, a command, or the folder of an environment) has a framework; nothing is imported.

    Raises Unavailable where it does not run, or lacks the framework, numpy or Pillow.
    """
    named = Path(python).expanduser()
    named = named / "bin/python" if named.is_dir() else named
    found = shutil.which(named)
    if found is None:
        fault = "is not an executable file" if named.exists() else "does not exist"
        raise Unavailable(f"{spec.name}: the interpreter {named} {fault}", f"check --python {spec.name}=...")
    path = Path(found).absolute()  # links are kept: an environment's Python is one
    answer = _ask(spec, path)
    missing = [_NEEDED.get(name, name) for name in (spec.imports, *_NEEDED) if name and name not in answer["there"]]
    if missing:
        raise Unavailable(
            f"{spec.name}: {path} (Python {answer['python']}) lacks {', '.join(missing)}",
            "install it there, or name another interpreter",
        )
    packages = {venvs.normal_name(name): version for name, version in answer["packages"].items()}
    version = answer["version"] if spec.imports else None
    slow = f"simplejpeg is not installed in {path}, so Pillow decodes the JPEGs there"
    notes = () if "simplejpeg" in answer["there"] else (slow,)
    return Environment(spec.name, path, version, False, answer["python"], packages, notes=notes)


def _ask(spec: Framework, path: Path) -> Fields:
    command = [str(path), "-c", _PROBE, spec.imports or next(iter(_NEEDED)), *_NEEDED, "simplejpeg"]
    errors = ""
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        errors = answer.stderr.strip() or "it printed nothing"
        return json.loads(answer.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        why = errors.splitlines()[-1] if errors else error
    raise Unavailable(f"{spec.name}: {path} does not run as Python ({why})", f"check --python {spec.name}=...")
