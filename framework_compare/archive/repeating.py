"""Files that repeat a study: its request or command, and its lock files. Each must belong to the study beside it."""

import functools
import json
import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from framework_compare import registry
from framework_compare.archive import documents
from framework_compare.archive.agreement import public
from framework_compare.archive.documents import LOCKS, REQUEST, Refused, shown
from framework_compare.archive.records import Tables
from framework_compare.environments import venvs
from framework_compare.errors import FrameworkCompareError
from framework_compare.json_types import JSON
from framework_compare.plan.planning import expand_configs
from framework_compare.plan.settings import BY_ARRAYS, SETTINGS, column
from framework_compare.plan.values import split
from framework_compare.protocol import Document, Fields
from framework_compare.registry import device_kind
from framework_compare.study.request import FIELDS
from framework_compare.study.run_options import check_sample
from framework_compare.study.schedules import REPEATS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_REQUEST_LINES = 500
FROM_REQUEST = f"framework-compare run --from {REQUEST}"
_PIN = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[\w,-]+\])?==([\w.!+*-]+)(?: *;[^#]{0,200}?)?((?:\s+--hash=sha256:[0-9a-f]{64})*)"
)
_NO_COMMAND = re.compile(r"[;&|`$\n]|://")  # a second command, an address
PRIVATE = {"python", "index", "out"}  # of a request: interpreters, package indexes, a folder
_KEYS = {*FIELDS, *map(column, SETTINGS)} - PRIVATE
_OF_MACHINE = {"threads", "loader_workers"}  # as many as a machine has, unless they are asked for
# Options of runs that the settings of a study state, too.
_OPTIONS = set("across_models disturbance_threshold profile retries_when_disturbed sampling_hz schedule verify".split())
_BY_DATA = {"num_classes", "loss", "device"}  # the device is compared by its kind


def check(manifest: Document, contents: Mapping[str, bytes], study: Tables) -> None:
    """Refused where the request, the command or a lock is of another study, or more than text; contents: of the files."""
    command = manifest["command"]
    if REQUEST not in contents:
        _check_request("its command", _of_command(command), study)
    elif command != FROM_REQUEST:
        raise Refused(f"its command is {shown(command)}; allowed beside {REQUEST}: {FROM_REQUEST}")
    else:
        text = documents.text(REQUEST, contents[REQUEST])
        request = parsed(text)
        _check_request(REQUEST, request, study)
        _check_repeats(request, study)
        import tomli_w

        if "".join(text.split()) != "".join(tomli_w.dumps(request).split()):  # the site shows the request as it is
            raise Refused(f"{REQUEST} has a comment, or is not written as `publish` writes it")
    _check_locks(set(contents), study.environments)
    for label, facts in study.environments.items():
        name = lock_name(label)
        if name in contents:
            _check_lock(name, documents.text(name, contents[name]).splitlines(), facts)


def parsed(text: str) -> Fields:
    """The request in the text of its file; Refused for what is no TOML."""
    if len(text.splitlines()) > MAX_REQUEST_LINES:
        raise Refused(f"{REQUEST} has more than {MAX_REQUEST_LINES} lines")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{REQUEST} is not TOML: {shown(str(error))}") from None


def _of_command(command: str) -> Fields:
    """The request that a command states: its options by name, each with a list of values."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if words[:2] != ["framework-compare", "run"] or _NO_COMMAND.search(command):
        raise Refused(f"its command is {shown(command)}; allowed: one `framework-compare run` without an address")
    request: Fields = {}
    places, rest = iter(("frameworks", "models")), iter(words[2:])
    for word in rest:
        name = word[2:].replace("-", "_") if word.startswith("--") else next(places, "dataset")
        values = next(rest, "") if word.startswith("--") else word
        parts = split(values) if name == "models" else values.split(",")
        request.setdefault(name, []).extend(map(_number, parts))
    return request


def _number(text: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_request(source: str, request: Document, study: Tables) -> None:
    """Refused for a request with other frameworks, models or settings than the cells of the records have."""
    if not {"frameworks", "models"} <= set(request) or PRIVATE & set(request):
        raise Refused(f"{source} must name frameworks and models, and neither interpreters nor package indexes")
    if set(request) - _KEYS:
        raise Refused(f"{source} has {shown(min(set(request) - _KEYS))}, which no request has")
    cells = study.rows("cell")
    named = [str(one) for one in _listed(request["frameworks"])]
    asked = {_known(re.split("[@=]", one)[0]) for one in named}
    measured = {str(cell["framework"]).partition("@")[0] for cell in cells} - set(registry.AS_WRITTEN)
    _check_names(source, asked, measured)
    _check_names(source, _models(map(_known, _listed(request["models"]))), _models(cell["model"] for cell in cells))
    parts = [one.partition("@") for one in named]
    pinned = {f"{_known(base)}@{version}" for base, _, version in parts if version not in ("", "latest")}
    if pinned - {str(cell["framework"]) for cell in cells}:
        raise Refused(f"{source} asks for {shown(min(pinned))}, which its records do not have")
    _check_data(source, request, study)
    _check_options(source, request, study.settings)
    if not {"rungs", "one_at_a_time"} & set(request):
        _check_settings(source, request, cells)


def _models(names: Iterable[str]) -> set[str]:
    """Names of models; those of files of a user's, which get other names in a study, are one."""
    return {name if registry.model_of_all(name) else "a model of its own" for name in names}


def _check_names(source: str, asked: set[str], measured: set[str]) -> None:
    if measured - asked:
        raise Refused(f"{source} does not ask for {shown(min(measured - asked))}, which its records have")
    if asked - measured:
        raise Refused(f"{source} asks for {shown(min(asked - measured))}, which its records do not have")


def _check_data(source: str, request: Document, study: Tables) -> None:
    """Refused for a data set of a cell that the request does not name, and for epochs of more samples than it asks for."""
    asked = [re.split(r"[/\\]", str(one).rstrip("/\\"))[-1] for one in _listed(request.get("dataset", []))]
    named = {_known(name) for one in asked for name in (one, one.partition(".")[0], one.rpartition(".")[0])}
    for cell in study.rows("cell"):
        entry = registry.model_of_all(cell["model"])
        wanted = named if asked else {entry.dataset} if entry else {cell["dataset"]}
        if str(cell["dataset"]).lower() not in wanted:
            names = shown(", ".join(asked) or min(wanted))
            raise Refused(f"{source} asks for the data set {names}, but a cell has {shown(cell['dataset'])}")
    limit, most = _single(request.get("limit")), max(study.column("epoch", "images"), default=0)
    if isinstance(limit, int) and most > limit:
        raise Refused(f"{source} asks for {limit} samples, but an epoch has {most}")


def _check_options(source: str, request: Document, settings: Document) -> None:
    """Refused where runs were started with other options than the request has."""
    for name in sorted(_OPTIONS & set(request) & set(settings)):
        if _single(request[name]) != settings[name]:
            raise Refused(
                f"{source} asks for {name} {shown(request[name])}, but its records have {shown(settings[name])}"
            )
    strategy = settings.get("strategy") or {}
    asked, had = check_sample(_single(request.get("sample")), None, None), strategy.get("sample_s") or 0.0
    if strategy.get("name") == "product" and asked != had:
        raise Refused(f"{source} asks for samples of {asked:g} s, but its records have {had:g} s")


def _single(value: JSON) -> JSON:
    """The value of a list of one, as options of commands are."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _check_settings(source: str, request: Document, cells: Sequence[Document]) -> None:
    """Refused for a setting of a cell that a run of the request would not have."""
    columns = {column(name): name for name in SETTINGS}
    given = {columns[name]: value for name, value in request.items() if name in columns and name != "device"}
    given = {name: _single(value) for name, value in given.items()}
    unstated = _OF_MACHINE - given.keys()
    if "epochs" not in given and {"sample", "budget"} & request.keys():
        unstated.add("epochs")  # as many as the sample held
    kinds = {device_kind(str(one)) for one in _listed(request.get("device", "cpu"))}
    if math.prod(len(_listed(value)) for value in given.values()) > len(cells):
        raise Refused(f"{source} asks for more settings than its records have cells ({len(cells)})")
    for cell in cells:
        entry = registry.model_of_all(cell["model"])
        whole = entry is not None and not entry.of_arrays
        names = (SETTINGS.keys() if entry else given.keys()) - _BY_DATA - unstated
        configs = expand_configs(
            {**(entry.settings if entry else {}), **{n: v for n, v in given.items() if n != "loss"}}
        )
        for name in sorted(names - (set() if whole else {*BY_ARRAYS, "pipeline"})):
            value = cell["config"].get(name, getattr(configs[0], name))
            if all(value != getattr(one, name) for one in configs):
                wanted = ", ".join(dict.fromkeys(str(getattr(one, name)) for one in configs))
                raise Refused(f"{source} asks for {column(name)} {shown(wanted)}, but a cell has {shown(value)}")
        if device_kind(cell["device"]) not in kinds:
            raise Refused(f"{source} asks for {', '.join(sorted(kinds))}, but a cell ran on {shown(cell['device'])}")


def _check_repeats(request: Document, study: Tables) -> None:
    """Refused where a block is missing, or there are more than were asked for."""
    counts = set(Counter(run["cell_id"] for run in study.runs.values() if run.get("retry_of") is None).values())
    wanted = request.get("repeats", REPEATS)
    if "budget" not in request and "rungs" not in request and counts != {wanted}:
        raise Refused(f"{REQUEST} asks for {shown(wanted)} blocks, but its records have {max(counts)}")


def _known(name: object) -> str:
    key = str(name).lower()
    return registry.ALIASES.get(key, key)


def _listed(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, list) else [value]


def lock_name(label: str) -> str:
    """The file with the packages of an environment, by its scrubbed label."""
    return f"{LOCKS}/{re.sub('[^A-Za-z0-9._@+-]+', '-', label).strip('-')}.txt"


def _check_locks(names: set[str], environments: Document) -> None:
    """Every environment whose packages are known has a lock, and every lock belongs to one."""
    locks = {name for name in names if name.startswith(LOCKS)}
    wanted = {lock_name(label) for label, facts in environments.items() if facts.get("packages")}
    if locks != wanted:
        odd = min(locks ^ wanted)
        raise Refused(f"{odd} is {'no lock of an environment of its records' if odd in locks else 'missing'}")


def _check_lock(name: str, lines: Sequence[str], facts: Document) -> None:
    """A lock pins packages of its environment and nothing else: the framework among them, with checksums that are known."""
    pins = [_PIN.fullmatch(line.strip()) for line in lines]
    wanted: dict[str, str] = {}
    for line, pin in zip(lines, pins):
        if pin is None:
            raise Refused(f"{name} has the line {shown(line)}; allowed: NAME==VERSION with checksums")
        key = venvs.normal_name(pin[1])
        if key in wanted:
            raise Refused(f"{name} has {shown(pin[1])} twice")
        wanted[key] = pin[2]
        known = _checksums().get((key, pin[2]))
        if pin[3] and known and not set(pin[3].split()) <= known:
            raise Refused(f"{name} has a checksum of {shown(pin[1])} {pin[2]} that no file of that release has")
    packages = facts["packages"]
    if not wanted or any(packages.get(package) != version for package, version in wanted.items()):
        raise Refused(f"{name} pins other packages or other versions than its environment has")
    version = public(facts.get("version"))
    if version in map(public, packages.values()) and version not in map(public, wanted.values()):
        raise Refused(f"{name} pins no package of the version {version}, which its environment has")


@functools.lru_cache(maxsize=1)
def _checksums() -> Mapping[tuple[str, str], set[str]]:
    """Return the checksums in this package's requirements by package and version."""
    found: dict[tuple[str, str], set[str]] = {}
    for spec in registry.FRAMEWORKS.values():
        for device in ("cpu", "cuda"):
            try:
                lines = venvs.requirement_lines(venvs.requirements_path(spec, device))
            except (FrameworkCompareError, OSError):  # of a plug-in, or without a build for the device
                continue
            for pin in filter(None, map(_PIN.fullmatch, lines)):
                found.setdefault((venvs.normal_name(pin[1]), pin[2]), set()).update(pin[3].split())
    return found
