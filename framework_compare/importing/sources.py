"""Models that users may give as their own, distinguished from the registry's names; nothing is loaded or run."""

import ast
import dataclasses
import os
import re
from pathlib import Path
from typing import Sequence

from framework_compare.errors import UsageError

MODULE_FILE = "file"
ZOOS = ("torchvision", "timm", "transformers")  # "torchvision:resnet18", "transformers:gpt2:n_layer=2"
ONNX, KERAS, KERAS_FILE = "onnx", "keras", "keras-file"
# The first byte of a file that may be one: of ONNX the number and type of a field that a model has.
ONNX_BEGINS, KERAS_BEGINS = (0x08, 0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72, 0xA2, 0xCA, 0xD2), (0x50,)
FORMS = (
    '"FILE.py:FUNCTION", "FILE.onnx", "FILE.keras", "torchvision:NAME", "timm:NAME",'
    ' "transformers:NAME:KEY=VALUE,...", an nn.Module, a keras.Model'
)
# By the ending of a file that is not read, what is said behind its name.
REFUSED = {
    **dict.fromkeys(
        (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib"),
        ": such a file may run code when it is opened, and it contains weights without layers; it is not opened. Name the"
        " function that makes the model and loads them: FILE.py:FUNCTION",
    ),
    **dict.fromkeys((".safetensors", ".npz", ".npy"), f", which contains weights without layers; allowed: {FORMS}"),
    **dict.fromkeys((".h5", ".pb", ".tflite"), f"; files of that kind are not read; allowed: {FORMS}"),
}


@dataclasses.dataclass(frozen=True)
class Source:
    """A model of the user's, and what it is called after (stem).

    kind: MODULE_FILE (a function of a Python file that gives an nn.Module), KERAS_FILE (one that gives a keras.Model), KERAS
    (a .keras file), ONNX, or one of ZOOS.
    """

    kind: str
    text: str  # as the user wrote it
    stem: str
    name: str = ""  # of the function, or in the zoo
    path: str = ""  # absolute

    def to_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def source_of(model: object) -> Source | None:
    """Return where a model of the user's is; None for a name of the registry. UsageError for what cannot be imported.

    What can be told from the file as it lies there is told before an environment is made for it.
    """
    text = os.fspath(model) if isinstance(model, os.PathLike) else model
    if not isinstance(text, str):
        return None
    zoo, colon, name = text.partition(":")
    if colon and zoo in ZOOS:
        if not name:
            raise UsageError(f"model is {text!r}; name the model after the colon")
        return Source(zoo, text, name.partition(":")[0], name)
    path, colon, name = text.rpartition(":")
    if colon and path.endswith(".py"):
        place = _file(path, text)
        _check_name(place, name, text)
        return Source(KERAS_FILE if _is_of_keras(place) else MODULE_FILE, text, Path(path).stem, name, place)
    suffix = Path(text).suffix.lower()
    if suffix == ".py":
        raise UsageError(f"model is {text!r}; name the function or class in it that returns the model: {text}:build")
    if suffix in (".onnx", ".keras"):
        place = _file(text, text)
        with open(place, "rb") as file:
            begins = file.read(1)
        if not begins or begins[0] not in (ONNX_BEGINS if suffix == ".onnx" else KERAS_BEGINS):
            what = "not an ONNX file, or truncated" if suffix == ".onnx" else "not a .keras file"
            raise UsageError(f"model is {text!r}, which is {what}")
        return Source(suffix[1:], text, Path(text).stem, path=place)
    if suffix in REFUSED:
        raise UsageError(f"model is {text!r}{REFUSED[suffix]}")
    return None


def loss_function(text: str) -> Sequence[str]:
    """File and name of a loss function, FILE.py:FUNCTION; UsageError where there is none."""
    path, _, name = text.rpartition(":")
    place = Path(path).expanduser()
    if not path.endswith(".py") or not place.is_file():
        raise UsageError(
            f"loss_function is {text!r}, and {path or text!r} is not a Python file; allowed: FILE.py:FUNCTION"
        )
    return str(place.absolute()), name


def _file(path: str, text: str) -> str:
    place = Path(path).expanduser()
    if not place.is_file():
        what = "a folder" if place.is_dir() else "no file"
        raise UsageError(f"model is {text!r}, and {path} is {what}; allowed: {FORMS}")
    return str(place.absolute())


def _check_name(path: str, name: str, text: str) -> None:
    """UsageError where nothing in a file can have this name; what another file brings by "*" may."""
    words = Path(path).read_bytes().decode("utf-8", "replace")
    if name.isidentifier() and (re.search(rf"\b{name}\b", words) or re.search(r"import\s*\(?\s*\*", words)):
        return
    known = re.findall(r"^(?:def|class)\s+(\w+)", words, re.MULTILINE)
    raise UsageError(
        f"model is {text!r}, and {path} has no {name!r}; it has {', '.join(known) or 'no function or class'}"
    )


def _is_of_keras(path: str) -> bool:
    """Return whether a Python file imports Keras or TensorFlow and not torch; it is read, not run."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError, OSError):  # the worker says what is the matter
        return False
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names}
    return bool(tops & {"keras", "tensorflow"}) and "torch" not in tops


def is_module(model: object) -> bool:
    """Return whether this is an nn.Module in hand; torch is not imported to find out."""
    return any(base.__module__ == "torch.nn.modules.module" for base in type(model).__mro__)


def is_keras_model(model: object) -> bool:
    """Return whether this is a keras.Model in hand; Keras is not imported to find out."""
    return any(base.__module__ == "keras.src.models.model" and base.__name__ == "Model" for base in type(model).__mro__)
