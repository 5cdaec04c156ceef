"""The rendered fire, smoke and no_fire sets, of the sizes of the reference study, made when first asked for."""

import concurrent.futures
import functools
import json
import os
from pathlib import Path

import filelock
import PIL

from framework_compare.datasets import render
from framework_compare.datasets.image_check import Progress
from framework_compare.errors import DataError
from framework_compare.paths import cache_dir, write_whole
from framework_compare.protocol import ImageFiles

MARKER = ".complete.json"  # written last; hidden, so that it is not an image
SETS = {  # images of each class, and the seed
    "fire-smoke-small": ({"fire": 264, "smoke": 264, "no_fire": 263}, 791),
    "fire-smoke-big": ({"fire": 2001, "smoke": 2001, "no_fire": 2001}, 6003),
    "fire-smoke-tiny": ({"fire": 16, "smoke": 16, "no_fire": 16}, 48),
}
BYTES_PER_IMAGE = 290_000  # on disk, about


def unmade(name: str) -> ImageFiles | None:
    """The images that a set will hold which is not there yet; None where it is there, or is none of ours."""
    if name not in SETS or _is_complete(_folder(name), _wanted(name)):
        return None
    classes = tuple(SETS[name][0])
    wanted = _wanted(name)
    paths = tuple(str(_folder(name) / kind / _file(kind, number)) for kind, number in wanted)
    return ImageFiles(classes, paths, tuple(classes.index(kind) for kind, _ in wanted), ("JPEG",) * len(wanted))


def size_bytes(name: str) -> int:
    """Return what a set takes on disk, about."""
    return BYTES_PER_IMAGE * len(_wanted(name))


def _folder(name: str) -> Path:
    return cache_dir() / "datasets" / f"{name}-v{render.VERSION}"


def _wanted(name: str) -> list[tuple[str, int]]:
    return [(kind, number) for kind, count in SETS[name][0].items() for number in range(count)]


def make(name: str, progress: Progress | None = None) -> Path:
    """The finished set's folder; what an interrupted making left is kept and completed.

    progress(done, total) counts images drawn. The big set takes 1.7 GB, and fifteen minutes of one core, the first time.
    """
    folder, wanted, (counts, seed) = _folder(name), _wanted(name), SETS[name]
    if _is_complete(folder, wanted):
        return folder
    try:
        for kind in counts:
            (folder / kind).mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{folder}.lock"):
            if not _is_complete(folder, wanted):
                _draw_missing(folder, wanted, seed, progress)
                marker = {"images": len(wanted), "seed": seed, "pillow": PIL.__version__}
                write_whole(folder / MARKER, json.dumps(marker))
    except OSError as error:
        raise DataError(f"data set {name!r} cannot be made in {str(folder)!r}: {error}") from error
    return folder


def _is_complete(folder: Path, wanted: list[tuple[str, int]]) -> bool:
    return (folder / MARKER).exists() and not _missing(folder, wanted)


def _missing(folder: Path, wanted: list[tuple[str, int]]) -> list[tuple[str, int]]:
    there = {kind: set(os.listdir(folder / kind)) for kind in {kind for kind, _ in wanted} if (folder / kind).is_dir()}
    return [(kind, number) for kind, number in wanted if _file(kind, number) not in there.get(kind, ())]


def _file(kind: str, number: int) -> str:
    return f"{kind}_{number:05d}.jpg"


def _draw_missing(folder: Path, wanted: list[tuple[str, int]], seed: int, progress: Progress | None) -> None:
    missing = _missing(folder, wanted)

    def draw(one: tuple[str, int]) -> None:
        kind, number = one
        write_whole(folder / kind / _file(kind, number), render.image(seed, kind, number))

    # Threads: what takes time (transforms, enlarging, JPEG) leaves the interpreter's lock.
    pool = concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)), "render")
    try:
        for done, _ in enumerate(pool.map(draw, missing), len(wanted) - len(missing) + 1):
            if progress is not None:
                progress(done, len(wanted))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


small, big, tiny = (functools.partial(make, name) for name in SETS)
