"""Stage what a worker gets: its side of the source, copied by checksum to its own folder, and environment variables.

A worker must find `framework_compare.adapters` and the rest from any interpreter, but never the parent side nor
what is installed beside it. A folder that holds only what may be imported makes a breach impossible, and its
checksum says which source produced a figure. It holds the adapter that is asked for, a file or a folder, that of its
back end where it has one, and what all adapters share; likewise an importer, where one is asked for.
"""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Iterator

from framework_compare import registry
from framework_compare.errors import UsageError
from framework_compare.paths import cache_dir
from framework_compare.registry import Framework

# What a worker may import, and all that is copied for it: whole packages, so that nobody keeps a list of modules.
WORKER_SIDE = ("errors", "events", "json_types", "protocol", "graph", "batches", "worker")
ADAPTERS, IMPORTERS = "framework_compare.adapters", "framework_compare.importers"
ENTRY = """import sys

from framework_compare.worker.main import main

if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
"""

# What a worker inherits. Everything else of the user's shell stays out: a forgotten OMP_NUM_THREADS or
# PYTHONPATH there would change a figure without a trace.
INHERITED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LD_LIBRARY_PATH"),
    # where CUDA is and which GPUs there are; not how it computes (NVIDIA_TF32_OVERRIDE, CUDA_LAUNCH_BLOCKING)
    *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_MPS_PIPE_DIRECTORY"),
    # where compiled kernels are kept, and how many
    *("CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
)
# How processes of one host reach each other and its GPUs: what a shared host allows, not how a framework computes.
TRANSPORTS = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_", "GLOO_", "UCX_")


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


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def trainer_target(framework: Framework) -> str:
    """ "module:Class" under which the staged worker finds the adapter, or the importer."""
    if framework.importer:
        return framework.importer
    path = registry.source_path(framework.trainer)
    return f"{ADAPTERS}.{path.name if path.is_dir() else path.stem}:{framework.trainer.rpartition(':')[2]}"


def _files(framework: Framework) -> dict[str, bytes]:
    adapter = registry.source_path(framework.trainer)
    if adapter.stem == "common":
        raise UsageError(f"adapter {framework.trainer!r} is called 'common', which is reserved; rename it")
    files = dict(_worker_side())
    places = {_source(f"{ADAPTERS}.common").parent: ADAPTERS, adapter: ADAPTERS}
    if framework.backend:
        places[registry.source_path(registry.framework(framework.backend).trainer)] = ADAPTERS
    if framework.importer:
        files["framework_compare/importers/__init__.py"] = _source(IMPORTERS).read_bytes()
        own = (_source(f"{IMPORTERS}.common").parent, registry.source_path(framework.importer))
        places.update(dict.fromkeys(own, IMPORTERS))  # one that is not a framework's is its adapter, too
    for path, package in places.items():
        files.update(_files_of(path, package, framework.backend))
    files["run_worker.py"] = ENTRY.encode()
    return files


def _worker_side() -> Iterator[tuple[str, bytes]]:
    """Relative path and content of every file of ours that a worker may import, adapters left out."""
    own = _source("framework_compare").parent
    for name in ("__init__", *WORKER_SIDE):
        folder = own / name
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [own / f"{name}.py"]:
            yield f"framework_compare/{path.relative_to(own).as_posix()}", path.read_bytes()
    yield "framework_compare/adapters/__init__.py", _source(ADAPTERS).read_bytes()


def _files_of(adapter: Path, package: str, backend: str) -> dict[str, bytes]:
    """An adapter's file, or all modules of its folder, by their places in the staged one.

    Of several back ends, each in a module `on_NAME`, only the one that is asked for.
    """
    paths = sorted(adapter.rglob("*.py")) if adapter.is_dir() else [adapter]
    paths = [path for path in paths if not path.stem.startswith("on_") or path.stem == f"on_{backend}"]
    folder = package.replace(".", "/")
    return {f"{folder}/{path.relative_to(adapter.parent).as_posix()}": path.read_bytes() for path in paths}


def _source(module: str) -> Path:
    """File of a module of this package."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec and spec.origin else Path()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".half-", dir=folder.parent))
    for name, content in files.items():
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        (half / name).write_bytes(content)
    try:
        half.rename(folder)
    except OSError:  # another process was faster, with the same content
        shutil.rmtree(half)


def worker_environment(*, managed: bool, temporary: Path) -> dict[str, str]:
    """The allow-listed part of this process's environment that a worker gets, and its own temporary folder."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(TRANSPORTS)}
    kept["TMPDIR"] = str(temporary)
    # CUDA numbers GPUs by speed unless told otherwise, NVML by bus: "cuda:1" must be the same one to both.
    kept["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return {**kept, "PYTHONNOUSERSITE": "1"} if managed else kept
