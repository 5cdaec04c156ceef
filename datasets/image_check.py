"""Decide from its bytes whether a file is an image, its format, and whether it decodes; each file once.

Parent side. Verdicts are kept in the cache folder by path, size and time of change, so that a second study of the
same folder opens no image.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import stat
from pathlib import Path
from typing import Callable, Iterator, Sequence

import PIL
import simplejpeg
from PIL import Image

from framework_compare.batches import preprocess
from framework_compare.errors import DataError
from framework_compare.paths import cache_dir, write_whole

# Twice Pillow's warning level, where Pillow itself refuses: a larger image is taken for a decompression bomb.
MAX_IMAGE_PIXELS = 178_956_970

EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .gif .bmp .dib .webp .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2".split()
)
HIDDEN = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
# (offset, bytes, format as Pillow calls it)
MAGIC = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (8, b"WEBP", "WEBP"),
    (6, b"\0\0\0\0", "BMP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (4, b"ftypavif", "AVIF"),
    (4, b"jP  \r\n\x87\n", "JPEG2000"),
    (0, b"P5\n", "PPM"),
    (0, b"P6\n", "PPM"),
)
_FIRST = {"WEBP": b"RIFF", "BMP": b"BM"}
_PER_TASK = 64
Progress = Callable[[int, int], None]  # is told how many are done, and of how many


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Format of an image ("JPEG", "PNG", ...), and why it is bad, "" if it is not; both "" if it is not an image."""

    format: str
    reason: str = ""


def scan(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of a folder by name, hidden ones left out; DataError if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            seen = (one for one in entries if not one.name.startswith(".") and one.name.lower() not in HIDDEN)
            return sorted(seen, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"folder {str(folder)!r} cannot be read: {error.strerror}") from error


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def subfolders(folder: Path) -> list[Path]:
    """Its folders by name, hidden ones left out."""
    return [Path(entry.path) for entry in scan(folder) if is_folder(entry)]


def check(root: Path, files: Sequence[str], progress: Progress | None = None) -> dict[str, Verdict]:
    """The verdict on each of `files` (absolute, below `root`) that is an image or claims to be one.

    Files not seen before, or changed since, are decoded on all cores. `progress(done, total)` counts files.
    """
    store = cache_dir() / "index" / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]}.json"
    known = _load(store)
    keys = {file: (file[len(str(root)) + 1 :], *_size_and_time(file)) for file in files}
    new = [file for file in files if keys[file] not in known]
    try:
        for file, verdict in _judge_all(new, len(files), progress):
            known[keys[file]] = verdict
    finally:
        if new:
            _save(store, known)
    verdicts = ((file, known[keys[file]]) for file in files)
    return {file: verdict for file, verdict in verdicts if verdict.format or verdict.reason}


def judge(path: str) -> Verdict:
    """Read and decode one file, at the smallest scale that still reads every byte of a JPEG."""
    claims = os.path.splitext(path)[1].lower() in EXTENSIONS
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return Verdict("", "it is not a regular file" if claims else "")
        with open(path, "rb") as file:
            head = file.read(32)
            name = sniff(head)
            data = head + file.read() if name else head
    except OSError as error:
        return Verdict("", f"it cannot be opened: {error.strerror}" if claims else "")
    if not name:
        reason = "its bytes have no known image format" if data else "it is empty"
        return Verdict("", reason if claims else "")
    return Verdict(name, _reason_against(data, name))


def sniff(head: bytes) -> str:
    """Return the image format by the first 32 bytes of a file, "" if none is known."""
    for offset, magic, name in MAGIC:
        if head[offset : offset + len(magic)] == magic and head.startswith(_FIRST.get(name, b"")):
            return name
    return ""


def _reason_against(data: bytes, name: str) -> str:
    try:
        width, height = preprocess.encoded_size(data)
        if width * height > MAX_IMAGE_PIXELS:
            return f"it has {width} x {height} pixels, more than the {MAX_IMAGE_PIXELS} allowed"
        if name == "JPEG":
            with contextlib.suppress(ValueError):
                simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
                return ""
        with Image.open(io.BytesIO(data)) as image:
            image.draft(None, (1, 1))
            image.load()
            preprocess.to_rgb(image.crop((0, 0, 1, 1)))
    except PIL.UnidentifiedImageError:
        return f"Pillow cannot read it as {name}"
    except Exception as error:  # Pillow's plug-ins raise nearly every type there is on damaged files
        return f"it does not decode: {error or type(error).__name__}"
    return ""


def _judge_all(files: Sequence[str], total: int, progress: Progress | None) -> Iterator[tuple[str, Verdict]]:
    """Pairs of file and verdict, as they come, in order."""
    tasks = [files[start : start + _PER_TASK] for start in range(0, len(files), _PER_TASK)]
    done = total - len(files)
    pool = concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)), "image-check")
    try:
        for part, verdicts in zip(tasks, pool.map(lambda part: [judge(file) for file in part], tasks)):
            yield from zip(part, verdicts)
            done += len(part)
            if progress is not None:
                progress(done, total)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _size_and_time(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:  # a broken link: judged anew each time its target may have come
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _made_by() -> list[object]:
    """Return what a verdict depends on besides the file."""
    return [1, PIL.__version__, ".".join(simplejpeg.__version_info__), MAX_IMAGE_PIXELS]


def _load(store: Path) -> dict[tuple[str, int, int], Verdict]:
    try:
        stored = json.loads(store.read_text("utf-8"))
        if stored["made_by"] != _made_by():
            return {}
        return {(name, size, time): Verdict(form, reason) for name, size, time, form, reason in stored["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _save(store: Path, known: dict[tuple[str, int, int], Verdict]) -> None:
    rows = [[*key, verdict.format, verdict.reason] for key, verdict in known.items() if key[1] >= 0]
    # A cache folder that cannot be written costs time in the next study, nothing else.
    with contextlib.suppress(OSError):
        write_whole(store, json.dumps({"made_by": _made_by(), "files": rows}))
