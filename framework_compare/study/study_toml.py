"""A study as a file to run again: the arguments of `compare` in TOML, as they were given."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Union

from framework_compare import registry
from framework_compare.errors import StudyError, UnknownNameError, UsageError
from framework_compare.plan.settings import FORMER, SETTINGS, column
from framework_compare.store.study_file import REQUEST

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Where a study is and how it goes on is no part of its request.
APART = ("out", "watcher", "retry", "extend", "executor", "dry_run")
_MODEL_FILE = re.compile(r"(?P<file>.+\.(?:py(?=:)|onnx|keras))(?P<function>:\w+)?")
PRIVATE = ("index",)  # its URL may hold a password
_HEAD = """\
# A study of framework_compare: the arguments of `compare`, those left out at their defaults.
# To run it: framework-compare run --from FILE; options of the command line come first.

"""


def stated(call: Callable[..., Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments of a call that differ from its defaults, as JSON has them; data sets by their whole path.

    None of a call with a network in hand, which no file can name.
    """
    models = given.get("models")
    if not isinstance(models, (list, tuple, str)) or not all(isinstance(one, str) for one in models):
        return {}
    parameters = inspect.signature(call).parameters
    given = {**given, **given.get("settings", {})}
    kept = {
        name: value
        for name, value in given.items()
        if name not in ("settings", *APART, *PRIVATE) and not (name in parameters and value == parameters[name].default)
    }
    if "rungs" in kept:
        kept["rungs"] = dict(kept["rungs"])
    if "dataset" in kept:
        kept["dataset"] = [_absolute(one) for one in _listed(kept["dataset"])]
    if "models" in kept:
        kept["models"] = [_model_in(Path.cwd(), one) for one in _listed(kept["models"])]
    return {name: _plain(value) for name, value in kept.items() if value is not None and value != {}}


def _model_in(folder: Path, model: Any) -> Any:
    """A model of a file (FILE.py:FUNCTION, x.onnx, x.keras) by its whole path where it lies in the folder, else as named."""
    found = _MODEL_FILE.fullmatch(model) if isinstance(model, str) else None
    path = folder / found["file"] if found else None
    return f"{path}{found['function'] or ''}" if found and path and path.is_file() else model


def text(settings: Mapping[str, Any], folder: Path) -> str:
    """The file of a study, from what is stored with it; StudyError for one that has no request."""
    import tomli_w

    request = settings.get(REQUEST)
    if not isinstance(request, dict):
        raise StudyError(
            f"{folder} keeps no request, as studies of an earlier version and sweeps; its report has the command"
        )
    return _HEAD + tomli_w.dumps(request)


def read(
    path: Union[str, "os.PathLike[str]"], call: Callable[..., Any], more: Optional[Mapping[str, Any]] = None
) -> Dict[str, Any]:
    """The arguments of `call` in a file, and `more`, which come first; data sets and files of models that lie beside the
    file get its folder.

    UsageError for a file that cannot be read or is no TOML, for a key that is no argument, and, where `more` is given, for
    arguments that both lack.
    """
    file = Path(path)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOML's errors and wrong UTF-8 are ValueErrors
        raise UsageError(f"{file} is no study to run: {error}; `framework-compare show --toml` writes one") from None
    parameters = inspect.signature(call).parameters
    allowed = [name for name in parameters if name not in ("settings", *APART)]
    allowed = list(dict.fromkeys([*allowed, *map(column, SETTINGS)]))
    for name in document:
        if name not in (*allowed, *FORMER):
            raise UnknownNameError(f"key of {file.name}", name, allowed)
    if "dataset" in document:
        document["dataset"] = [_beside(file, one) for one in _listed(document["dataset"])]
    if "models" in document:
        document["models"] = [_model_in(file.absolute().parent, one) for one in _listed(document["models"])]
    return document if more is None else _whole(file, {**document, **more}, parameters)


def _whole(file: Path, request: Dict[str, Any], parameters: Mapping[str, inspect.Parameter]) -> Dict[str, Any]:
    for name, parameter in parameters.items():
        needed = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
        if needed and name not in request:
            raise UsageError(f"{file} names no {name}; add a line such as {name} = [...], or give them beside the file")
    return request


def _listed(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)) else [value]


def _absolute(dataset: Any) -> str:
    name = os.fspath(dataset)
    return str(Path(name).absolute()) if registry.data_source(name) is None and Path(name).exists() else str(name)


def _beside(file: Path, dataset: Any) -> Any:
    """A data set of a file: its name, or the path of what lies beside the file."""
    if not isinstance(dataset, str) or registry.data_source(dataset) is not None:
        return dataset
    path = file.absolute().parent / dataset
    return str(path) if path.exists() else dataset


def _plain(value: Any) -> Any:
    """A value as JSON and TOML have it: lists for sequences, text for paths."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, Sequence) else str(value)
