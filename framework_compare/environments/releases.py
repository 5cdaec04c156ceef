"""Releases of a package on the indexes and in the folders of pip's settings, with wheels for a Python of this machine."""

import base64
import dataclasses
import html.parser
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from framework_compare.environments import uv_command
from framework_compare.environments.interpreters import Minor, Unavailable
from framework_compare.environments.uv_command import public_url

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_TIMEOUT_S = 30


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a package as an index lists it."""

    name: str
    requires_python: str = ""
    yanked: bool = False


def released(package: str, python: Minor, say: Callable[[str], None] = lambda message: None) -> list[Version]:
    """Versions of a package that have a wheel for a Python here and that pip's constraints allow, oldest first.

    Pre-releases are among them, yanked ones are not. Raises Unavailable where an index cannot be read and no other has
    the package; where another has it, `say` gets a message, as there may be newer releases.
    """
    environment = uv_command.read().environment()
    found: set[Version] = set()
    failures = []
    places = [*_places(package, environment)]
    if not places:
        raise Unavailable(
            f"the releases of {package} are unknown, as pip's settings name no index and no folder", "allow an index"
        )
    for place in places:
        try:
            found.update(_fitting(package, _read(place, environment), python))
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            failures.append(f"{public_url(place)}: {' '.join(str(reason).split())}")
    if failures and not found:
        raise Unavailable(
            f"the releases of {package} are unknown, as no index responds ({failures[0]})", "check the network"
        )
    if failures:
        say(f"{package}: an index does not respond ({failures[0]}), so only releases from other indexes are known")
    allowed = _constraint(package)
    return sorted(version for version in found if allowed.contains(version, prereleases=True))


def _constraint(package: str) -> SpecifierSet:
    """Return what the constraint files of pip's settings say of a package; uv reads those behind a URL itself."""
    allowed = SpecifierSet()
    for path in map(Path, uv_command.read().constraints):
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                requirement = Requirement(line.partition(" #")[0].strip())
            except InvalidRequirement:
                continue
            if canonicalize_name(requirement.name) == canonicalize_name(package):
                allowed &= requirement.specifier
    return allowed


def _places(package: str, environment: Mapping[str, str]) -> Iterator[str]:
    """URLs and folders that list files of a package."""
    name = canonicalize_name(package)
    settings = uv_command.read()
    if not settings.no_index:
        for index in dict.fromkeys(settings.indexes):
            yield f"{index.rpartition('=')[2] if '=' in index.partition('//')[0] else index}".rstrip("/") + f"/{name}/"
    yield from filter(None, (link.strip() for link in environment.get("UV_FIND_LINKS", "").split(",")))


def _read(place: str, environment: Mapping[str, str]) -> list[File]:
    """Return what is listed there; nothing where the package is not. OSError or ValueError where that cannot be read."""
    url = urllib.parse.urlsplit(place)
    if url.scheme in ("", "file"):
        folder = Path(urllib.request.url2pathname(url.path)) if url.scheme else Path(place).expanduser()
        page = folder / "index.html"
        if page.is_file():
            return _of_page(page.read_text(encoding="utf-8"))
        return [File(path.name) for path in folder.glob("*.whl")] if folder.is_dir() else []
    try:
        context = ssl.create_default_context(cafile=environment.get("SSL_CERT_FILE") or None)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if proxy := environment.get("ALL_PROXY"):
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(_request(place), timeout=_TIMEOUT_S) as answer:
            text, kind = answer.read().decode("utf-8"), answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):  # how indexes say that they do not have it
            return []
        raise
    if not kind.endswith("json"):
        return _of_page(text)
    return [  # PEP 691
        File(str(one["filename"]), str(one.get("requires-python") or ""), bool(one.get("yanked")))
        for one in json.loads(text)["files"]
    ]


def _request(place: str) -> urllib.request.Request:
    """A URL may hold a user's name and password."""
    url = urllib.parse.urlsplit(place)
    request = urllib.request.Request(
        urllib.parse.urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2])), headers={"Accept": _ACCEPT}
    )
    if url.username:
        login = ":".join(urllib.parse.unquote(part or "") for part in (url.username, url.password))
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    return request


class _Anchors(html.parser.HTMLParser):
    """The files that a page of PEP 503 links to."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            name = urllib.parse.unquote(urllib.parse.urlsplit(given["href"] or "").path.rpartition("/")[2])
            self.files.append(File(name, given.get("data-requires-python") or "", "data-yanked" in given))


def _of_page(text: str) -> list[File]:
    anchors = _Anchors()
    anchors.feed(text)
    return anchors.files


def _fitting(package: str, files: Iterable[File], python: Minor) -> Iterator[Version]:
    interpreter, version = "cp{}{}".format(*python), Version("{}.{}".format(*python))
    supported = {*cpython_tags(python, [interpreter]), *compatible_tags(python, interpreter)}
    for file in files:
        try:
            name, release, _, tags = parse_wheel_filename(file.name)
            allowed = SpecifierSet(file.requires_python).contains(version, prereleases=True)
        except (InvalidWheelFilename, InvalidSpecifier):
            continue
        if name == canonicalize_name(package) and allowed and not file.yanked and tags & supported:
            yield release
