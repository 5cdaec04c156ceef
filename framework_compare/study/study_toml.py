"""A study as a file to run again: the arguments of `compare` in TOML, as they were given."""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from framework_compare import registry
from framework_compare.datasets.objects import is_data
from framework_compare.errors import StudyError, UsageError, check_name
from framework_compare.plan.settings import SETTINGS, column
from framework_compare.protocol import Document, Fields
from framework_compare.store.study_file import REQUEST
from framework_compare.study.request import FIELDS, Request

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MODEL_FILE = re.compile(r"(?P<file>.+\.(?:py(?=:)|onnx|keras))(?P<function>:\w+)?")
MOST_BYTES = 1 << 20  # of a file: TOML of so much takes seconds to read
PRIVATE = ("index",)  # its URL may hold a password
_HEAD = """\
# A study of framework_compare: the arguments of `compare`, those left out at their defaults.
# To run it: framework-compare run --from FILE; options of the command line take precedence.

"""


def stated(request: Request) -> Fields:
    """The keywords of a request that differ from the defaults, as JSON has them; data sets by their whole path.

    None of a request with a network or data in hand, which no file can name.
    """
    models = _listed(request.models)
    if not all(isinstance(one, str) for one in models) or is_data(request.dataset):
        return {}
    defaults = Request([], [])
    given = {name: getattr(request, name) for name in FIELDS if name not in PRIVATE}
    kept = {name: value for name, value in given.items() if value != getattr(defaults, name)}
    if request.rungs is not None:
        kept["rungs"] = dict(request.rungs)
    located = _located(Path.cwd(), {**kept, **request.settings})
    return {name: _plain(value) for name, value in located.items() if value not in (None, {})}


def _located(folder: Path, given: Document) -> Fields:
    """Keywords of a request, with data sets and files of models and losses that lie in a folder by their whole paths."""
    found = dict(given)
    for name, find in (("dataset", _data_in), ("models", _model_in)):
        if name in found:
            found[name] = [find(folder, one) for one in _listed(found[name])]
    if "loss_function" in found:
        found["loss_function"] = _model_in(folder, found["loss_function"])
    return found


def _data_in(folder: Path, dataset: object) -> object:
    """A data set by its whole path where it lies in the folder, else as named."""
    if not isinstance(dataset, (str, os.PathLike)) or registry.data_source(os.fspath(dataset)) is not None:
        return dataset
    path = folder / dataset
    return str(path) if path.exists() else dataset


def _model_in(folder: Path, model: object) -> object:
    """A model of a file (FILE.py:FUNCTION, x.onnx, x.keras) by its whole path where it lies in the folder, else as named."""
    found = _MODEL_FILE.fullmatch(model) if isinstance(model, str) else None
    path = folder / found["file"] if found else None
    return f"{path}{found['function'] or ''}" if found and path and path.is_file() else model


def text(settings: Document, folder: Path) -> str:
    """The file of a study, from what is stored with it; StudyError for one that has no request."""
    import tomli_w

    request = settings.get(REQUEST)
    if not isinstance(request, dict):
        raise StudyError(
            f"{folder} has no stored request, because it is a sweep or was extended; its report shows a command"
        )
    return _HEAD + tomli_w.dumps(request)


def read(path: str | os.PathLike[str], more: Document) -> Fields:
    """The keywords of a request in a file, and `more`, which come first; data sets and files of models that lie beside the
    file get its folder.

    UsageError for a file that cannot be read or is not TOML, for a key that no request has, and for what both lack.
    """
    file = Path(path)
    try:
        document = tomllib.loads(_text_of(file))
    except (OSError, ValueError, RecursionError) as error:  # TOML's errors and wrong UTF-8 are ValueErrors
        why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{file} is not a study to run: {why}; `framework-compare show --toml` writes one") from None
    allowed = list(dict.fromkeys([*FIELDS, *map(column, SETTINGS)]))
    for name in document:
        check_name(f"key of {file.name}", name, allowed)
    request = {**_located(file.absolute().parent, document), **more}
    for name in ("frameworks", "models"):
        if name not in request:
            raise UsageError(
                f"{file} names no {name}; add a line such as {name} = [...], or give them together with the file"
            )
    return request


def _text_of(file: Path) -> str:
    """The text of a file; ValueError for a device, whose text has no end, a pipe, or more than a study needs."""
    if file.exists() and not file.is_file():
        raise ValueError("it is not a regular file")
    with open(file, "rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 10} KiB")
    return content.decode("utf-8")


def _listed(value: object) -> Sequence[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)) else [value]


def _plain(value: object) -> object:
    """A value as JSON and TOML have it: lists for sequences, text for paths."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, Sequence) else str(value)
