"""Files of a submission, which anybody may have written: read within limits, or refused in one sentence."""

import hashlib
import json
import math
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import NoReturn

from framework_compare import registry
from framework_compare.errors import FrameworkCompareError
from framework_compare.json_types import JSON
from framework_compare.protocol import Fields

MANIFEST, STUDY, RECORDS, PARITY, REQUEST = "manifest.json", "study.json", "records.json", "parity.json", "study.toml"
LOCKS = "locks"
# The most bytes of each file; the sum is what a reviewer and a repository bear.
MAX_BYTES = {MANIFEST: 1 << 18, STUDY: 8 << 20, RECORDS: 48 << 20, PARITY: 2 << 20, REQUEST: 1 << 16}
MAX_LOCK_BYTES, MAX_LOCKS = 1 << 20, 20
MAX_TEXT = 4000  # characters of one string
MAX_DEPTH = 12
MAX_DIGITS = 18  # of a whole number: SQLite has 64 bits
_LOCK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,80}\.txt")
_CONTROL = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# An absolute path, as in " /home/me/x", "//host/x", "~/x", "~me", "C:\x" or "\\host\x"; "images/s" and "https://" are none.
PATH = re.compile(
    r"(?<![\w./~)\]>])(?!(?<=:)//)(?:(?:~|~[A-Za-z_][\w.-]*)?/+[\w.@+~%=-]+(?:/[\w.@+~%= -]*[\w.@+~%=-])*"
    r"|~[A-Za-z_][\w.-]*|[A-Za-z]:\\[^\s\"']+|\\\\+[\w.$-]+(?:\\+[^\s\"'\\]+)+)"
)

PUBLIC_HOSTS = r"pypi\.org|files\.pythonhosted\.org|download\.pytorch\.org|github\.com|doi\.org"
URL = re.compile(r"\b[a-z][a-z0-9+]*://[^\s\"'<>]*[^\s\"'<>.,;:)]", re.I)
PUBLIC_URL = re.compile(rf"https?://(?:{PUBLIC_HOSTS})/[^@?#]*", re.I)
# The version of "jax@0.9.2" begins with a digit, which no host does.
MAIL = re.compile(
    rf"\b(?!(?:{'|'.join(registry.FRAMEWORKS)})@)[\w.+-]+@(?:[\w-]+(?:\.[\w-]+)*\.[A-Za-z][\w-]+|[A-Za-z][\w-]*)\b",
    re.I,
)
_WORD = re.compile(r"[^\W\d_]+")
_LOOK_ALIKE = {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "FULLWIDTH", "MATHEMATICAL"}
_PILE = re.compile(r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{2}")


class Refused(FrameworkCompareError):
    """A submission that cannot be accepted; the message says why in one sentence."""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def written(document: JSON) -> bytes:
    """A document as the file of a submission; ValueError for NaN and infinity."""
    return (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode("utf-8")


def packed(document: JSON) -> bytes:
    """A document without indents: that of the records, which are long."""
    return (json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False) + "\n").encode("utf-8")


def names_in(folder: Path) -> list[str]:
    """The names of a submission's files; Refused for one that no submission has, and for what is not a plain file."""
    if folder.is_symlink() or not folder.is_dir():
        raise Refused(
            f"{folder.name} is not a folder; a submission is a plain folder, neither an archive file nor a link"
        )
    names = []
    for entry in os.scandir(folder):
        if entry.name == LOCKS and entry.is_dir(follow_symlinks=False):
            locks = [one.name for one in os.scandir(entry.path)]
            names += [f"{LOCKS}/{name}" for name in locks]
        else:
            names.append(entry.name)
    for name in sorted(names):
        lock = name.partition(f"{LOCKS}/")[2]
        if name not in MAX_BYTES and not (lock and _LOCK.fullmatch(lock)):
            raise Refused(
                f"{shown(name)} is not a file of a submission; allowed: {', '.join(MAX_BYTES)}, {LOCKS}/NAME.txt"
            )
    if sum(name.startswith(LOCKS) for name in names) > MAX_LOCKS:
        raise Refused(f"{LOCKS} has more than {MAX_LOCKS} files; a study has one per framework")
    return sorted(names)


def read(folder: Path, name: str) -> bytes:
    """The content of a file; Refused for a link, a device, an executable or too large a file."""
    limit = MAX_BYTES.get(name, MAX_LOCK_BYTES)
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Refused(f"{name} is missing; publish the study again") from None
    except OSError as error:
        raise Refused(f"{name} cannot be read as a plain file ({error.strerror}); links are not allowed") from None
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise Refused(f"{name} is a link or not a plain file; a submission has plain files only")
        if found.st_mode & 0o7111:
            raise Refused(f"{name} is executable; remove that permission (chmod -x)")
        if found.st_size > limit:
            raise Refused(f"{name} has {found.st_size} bytes; allowed: {limit}")
        return file.read(limit + 1)


def text(name: str, content: bytes) -> str:
    """A text file in UTF-8 without control characters, markup or paths."""
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None
    for number, line in enumerate(decoded.split("\n"), 1):
        fault = fault_of(line)
        if fault:
            raise Refused(f"line {number} of {name} {fault}")
    return decoded


def parse(name: str, content: bytes) -> JSON:
    """A JSON document whose strings are plain text; Refused for whatever readers could disagree on."""
    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise Refused(f"{name} is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise Refused(f"{name} is not valid JSON: {error}") from None
    _check(name, document, "", 0)
    return document


def fault_of(value: str) -> str:
    """Return what is wrong with a string, "" for plain text."""
    if len(value) > MAX_TEXT:
        return f"has {len(value)} characters; allowed: {MAX_TEXT}"
    if "<" in value or ">" in value:
        return f"has markup ({shown(value)}); `publish` writes \u2039 and \u203a"
    if not value.isascii() or not value.isprintable():
        for character in value:
            if unicodedata.category(character) in _CONTROL:
                return f"has the control character U+{ord(character):04X}"
        for word in _WORD.findall(value):
            # Latin letters beside look-alikes of another alphabet, or beside styled ones
            alphabets = {unicodedata.name(letter, "").partition(" ")[0] for letter in word if letter.isalpha()}
            if "LATIN" in alphabets and alphabets & _LOOK_ALIKE:
                return f"has {shown(word)}, a word whose letters look like those of another alphabet"
        if _PILE.search(unicodedata.normalize("NFC", value)):
            return "has several marks on one letter"
    if "/" in value or "\\" in value or "~" in value:
        path = PATH.search(value)
        if path:
            return f"names the path {shown(path[0])}; `publish` removes folders"
    if "://" in value or "@" in value:
        found = [one[0] for one in URL.finditer(value) if not PUBLIC_URL.fullmatch(one[0])]
        found += [one[0] for one in MAIL.finditer(value)]
        if found:
            return f"has the address {shown(found[0])}; `publish` removes addresses"
    return ""


def shown(value: object) -> str:
    """A value for a sentence: printable and short."""
    printed = ascii(value)
    return printed if len(printed) <= 60 else printed[:57] + "..."


def _check(name: str, value: JSON, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Refused(f"{name} is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        fault = fault_of(value)
        if fault:
            raise Refused(f"{where or 'the text'} of {name} {fault}")
    elif isinstance(value, dict):
        for key, one in value.items():
            fault = fault_of(key)
            if fault:
                raise Refused(f"a name in {name} {fault}")
            _check(name, one, f"{where}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for one in value:
            if type(one) not in (int, float, type(None)):
                _check(name, one, where, depth + 1)


def _unique(pairs: list[tuple[str, JSON]]) -> Fields:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {shown(twice)} occurs twice in one object")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{shown(digits)} is larger than any float")
    return number


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits; allowed: {MAX_DIGITS}")
    return int(digits)
