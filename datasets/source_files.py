"""The user's own files as bytes, text and rows: every fault is one sentence with the file and the line.

Parent side. No message repeats what a file says, except a number or a date that is wrong: texts are people's posts.
"""

import csv
import gzip
import hashlib
import math
import zlib
from pathlib import Path
from typing import Callable, Iterable, Mapping, NamedTuple, Sequence, TypeVar

from framework_compare.datasets import image_check
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

csv.field_size_limit(1 << 24)
MOST_BYTES = 1 << 31  # of a packed file, unpacked
# What folders, arrays and splits are called that are a part of the data.
PARTS = {"train": ("train", "training"), "validation": ("val", "valid", "validation"), "test": ("test", "testing")}

# sha256 of public files, as they were read when the project's own counts were made
KNOWN = {
    "192204063468a632b2601f6e833c42d7875b618d1a6e5c9529ad8ca58ee6be75": "Kaggle tweet-sentiment-extraction, train.csv",
    "2117732e744d8f1692786c7ebb919c52dadd406f082b43fe1e625a51f2cadd0f": "Broad Twitter Corpus, train",
    "9f7d33bcd195cecf9767357a5f1fe0ba879af6c55ebb68b8e846bff23c4e7fa5": "Broad Twitter Corpus, dev",
    "3bd2387dfc98ebc9d8b77d8b9c59826262e9beadce71ce8edde272821b9c87c8": "Broad Twitter Corpus, test",
    "dc9e29df12d96fe0a348b6de869928e7dbb304f9d5cf32300f5873ac037a6938": "IBM 2000-2013, bokeh-sampledata 2026.1",
    "e3b1dcb773cb8cf878a9fa6a7a6afea5a47eeb991831db42fc96d6bed99cdffa": "Google 2004-2013, bokeh-sampledata 2026.1",
    "698c203a14aa31941d2251175330c9199f3ccdb31597abbba2a3e35416257a72": "Pima Indians diabetes",
    "167310007f03058885c7e95e6c0b19c20de5c7fd3031f4cbdadc9014a523d80b": "MNIST, 10,000 test digits, images",
    "fc607395669ec21321ea83e4b82c0544b7e8e63ff5b34337c06bc0a17cc0da3c": "MNIST, 10,000 test digits, labels",
}


T = TypeVar("T")


class Row(NamedTuple):
    """A row of a CSV file by its column names; `place` is file and line for messages."""

    place: str
    values: Mapping[str, str]


def read_bytes(path: Path) -> bytes:
    """Bytes of a file, unpacked where its name ends in .gz; DataError if it is missing, empty or damaged."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                data = file.read(MOST_BYTES + 1)  # a small file may unpack to more than any memory
        else:
            data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"file {str(path)!r} does not exist") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"file {str(path)!r} cannot be read: {error}") from None
    if not data:
        raise DataError(f"file {str(path)!r} is empty; give one with data")
    if len(data) > MOST_BYTES:
        raise DataError(f"file {str(path)!r} unpacks to more than {MOST_BYTES >> 30} GiB; give a part of it")
    return data


def read_text(path: Path) -> str:
    """UTF-8 text of a file, a byte order mark dropped; DataError if it is an image or other bytes."""
    data = read_bytes(path)
    image = image_check.sniff(data[:32])
    if image:
        raise DataError(f"file {str(path)!r} is a {image} image where text is needed; give the text file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(f"file {str(path)!r}, line {line}: not UTF-8 text; convert the file to UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"file {str(path)!r}, line {line}: it has a zero byte, so it is not text; give the text file")
    if not text.strip():
        raise DataError(f"file {str(path)!r} holds no text; give one with data")
    return text


def read_lines(path: Path) -> list[str]:
    """Lines of a text file; only line feeds end one, since posts hold other separators."""
    return read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_rows(path: Path, columns: Sequence[str]) -> list[Row]:
    """Rows of a CSV file with a header that has `columns` at least; DataError names a missing column or a short row."""
    header, records = read_table(path)
    missing = [column for column in columns if column not in header]
    if missing:
        names = ", ".join(name[:30] for name in header[:20])
        raise DataError(f"file {str(path)!r} has no column {missing[0]!r}; its columns are: {names}")
    check_once(path, header, columns)
    return [Row(f"file {str(path)!r}, line {line}", dict(zip(header, record))) for line, record in records]


def read_table(path: Path, delimiter: str = ",") -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a CSV file, and its rows, each with its line; all are as long as the header."""
    reader = csv.reader([line + "\n" for line in read_lines(path)], delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    header: list[str] = []
    try:
        for record in reader:
            if not header:
                header = [name.strip() for name in record]
            elif record:
                if len(record) != len(header):
                    raise DataError(
                        f"file {str(path)!r}, line {reader.line_num}: {len(record)} columns where the header has"
                        f" {len(header)}; fix the row"
                    )
                rows.append((reader.line_num, record))
    except csv.Error as error:
        raise DataError(f"file {str(path)!r}, line {reader.line_num}: not CSV: {error}; fix the row") from None
    if not rows:
        raise DataError(f"file {str(path)!r} has a header and no rows; give one with data")
    return header, rows


def number(row: Row, column: str) -> float:
    """A finite number of a row; DataError shows any other text."""
    text = row.values[column].strip()
    try:
        value = float(text.replace("_", "?"))  # Python reads 1_000 as a number
    except ValueError:
        what = "is empty" if not text else f"is {text[:20]!r}"
        raise DataError(f"{row.place}: {column} {what}, not a number; fix or remove the row") from None
    if not math.isfinite(value):
        raise DataError(f"{row.place}: {column} is {text[:20]!r}; a finite number is needed; fix or remove the row")
    return value


def source(paths: Iterable[Path]) -> list[Fields]:
    """Name, sha256 and, where it is a public file, its description, for a data set's facts."""
    described = []
    for path in paths:
        checksum = file_checksum(path)
        described.append({"file": path.name, "sha256": checksum, "known_as": KNOWN.get(checksum)})
    return described


def file_checksum(path: Path) -> str:
    """sha256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def one_file(path: Path, patterns: Sequence[str], what: str) -> Path:
    """`path` if it is a file, else the only file in that folder whose name fits one of `patterns`."""
    if path.is_file():
        return path
    fitting = sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})
    if len(fitting) != 1:
        names = ", ".join(file.name for file in fitting) or "none"
        raise DataError(f"folder {str(path)!r}: {what} must be one file like {' or '.join(patterns)}; it has {names}")
    return fitting[0]


def read_or_generate(
    path: Path | None,
    patterns: Sequence[str],
    what: str,
    read: Callable[[Path], T],
    generate: Callable[[int], T],
    seed: int,
) -> tuple[T, Fields]:
    """Return what the only file holds, or a stand-in where no path is given, and the facts on where it is from."""
    if path is None:
        return generate(seed), stand_in(seed)
    file = one_file(path, patterns, what)
    return read(file), {"generated": False, "source": source([file])}


def one_line(error: object) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())[:200]


def stand_in(seed: int) -> Fields:
    """The facts of generated data."""
    return {"generated": True, "source": [], "seed": seed}


def check_once(path: Path, header: Sequence[str], columns: Sequence[str]) -> None:
    """DataError for a column that a header has twice."""
    twice = [name for name in columns if header.count(name) > 1]
    if twice:
        raise DataError(f"file {str(path)!r} has column {twice[0]!r} twice; keep one")
