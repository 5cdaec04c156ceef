"""The worker's side of the source, copied by checksum to a folder of its own.

A worker must find `framework_compare.adapters` and the rest from any interpreter, but never the parent side nor
what is installed beside it. A folder that holds only what may be imported makes a breach impossible, and its
checksum says which source produced a figure.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Dict, Iterator, Tuple

from framework_compare.errors import UsageError
from framework_compare.paths import cache_dir
from framework_compare.registry import Framework

# What a worker may import, and all that is copied for it: whole packages, so that nobody keeps a list of modules.
WORKER_SIDE = ("errors", "events", "protocol", "graph", "batches", "worker")
ENTRY = "import sys\n\nfrom framework_compare.worker.main import main\n\nif __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n"


def stage(framework: Framework) -> Path:
    """Folder whose `run_worker.py` runs this framework's jobs; made once for each state of the source."""
    files = _files(framework)
    folder = cache_dir() / "worker" / f"{framework.name}-{_digest(files)[:16]}"
    if not folder.is_dir():
        _write(folder, files)
    return folder


def checksum(framework: Framework) -> str:
    """SHA-256 of all that `stage` would give a worker now; nothing is written."""
    return _digest(_files(framework))


def _digest(files: Dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def trainer_target(framework: Framework) -> str:
    """ "module:Class" under which the staged worker finds the adapter."""
    module, _, name = framework.trainer.rpartition(":")
    return f"framework_compare.adapters.{_source(module).stem}:{name}"


def _files(framework: Framework) -> Dict[str, bytes]:
    adapter = _source(framework.trainer.rpartition(":")[0])
    if adapter.name == "__init__.py":
        raise UsageError(f"adapter {framework.trainer!r} is a package; an adapter is one file, the only one staged")
    files = dict(_worker_side())
    files[f"framework_compare/adapters/{adapter.name}"] = adapter.read_bytes()
    files["run_worker.py"] = ENTRY.encode()
    return files


def _worker_side() -> Iterator[Tuple[str, bytes]]:
    """Relative path and content of every file of ours that a worker may import, adapters left out."""
    own = _source("framework_compare").parent
    for name in ("__init__", *WORKER_SIDE):
        folder = own / name
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [own / f"{name}.py"]:
            yield f"framework_compare/{path.relative_to(own).as_posix()}", path.read_bytes()
    yield "framework_compare/adapters/__init__.py", _source("framework_compare.adapters").read_bytes()


def _source(module: str) -> Path:
    """File of a module, given by its dotted name or, for a plug-in, by its path."""
    if module.endswith(".py"):
        path = Path(module)
    else:
        spec = importlib.util.find_spec(module)
        path = Path(spec.origin) if spec and spec.origin else Path()
    if not path.is_file():
        raise UsageError(f"adapter {module!r} is no file; allowed: a module name or the path of a .py file")
    return path


def _write(folder: Path, files: Dict[str, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".half-", dir=folder.parent))
    for name, content in files.items():
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        (half / name).write_bytes(content)
    try:
        half.rename(folder)
    except OSError:  # another process was faster, with the same content
        shutil.rmtree(half)
