"""Names of a user's models: a function or class of a Python file, called, and keywords: "gpt2:n_layer=2,head=lm"."""

import importlib.util
import inspect
import os
import sys
import traceback
from typing import Any, List

from framework_compare.errors import UsageError

_QUOTES = ("'", '"')


def object_of(path: str, name: str) -> Any:
    """Return the object of a file with this name; UsageError if it cannot be imported or has no such name."""
    sys.path.insert(0, os.path.dirname(path))  # files beside it may be imported by it
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import would; dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be imported: {one_line(error)}") from error
    made = getattr(module, name, None)
    if made is None:
        names = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == spec.name
        ]
        raise UsageError(f"{path} has no {name!r}; it has {', '.join(names) or 'no function or class'}")
    return made


def made_by(path: str, name: str) -> Any:
    """Return what a function or class of a file gives, called without arguments, or what stands there under that name.

    UsageError, in one line, where it cannot be imported, has no such name, or fails.
    """
    made = object_of(path, name)
    try:
        return made() if inspect.isclass(made) or inspect.isroutine(made) else made
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name}() of {path} fails: {one_line(error)}; it is called without arguments") from error


def one_line(error: BaseException) -> str:
    """An exception in one line."""
    words = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {words[:300]}"


def place_of(error: BaseException) -> str:
    """Return where in the user's own source an exception arose: " at net.py:31 (if x.sum() > 0:)"; "" where it is elsewhere."""
    libraries = tuple(os.path.join(sys.prefix, name) for name in ("lib", "lib64"))
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.abspath(frame.filename)
        if os.path.isfile(path) and not path.startswith((*libraries, os.path.dirname(os.__file__), ours)):
            return f" at {os.path.basename(path)}:{frame.lineno} ({(frame.line or '').strip()[:80]})"
    return ""


def is_open(text: str) -> bool:
    """Return whether a bracket or a quote of a text is not closed."""
    quote, depth = "", 0
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return bool(quote) or depth > 0


def parts_of(text: str) -> List[str]:
    """Split a text at the commas that are in no brackets and no quotes."""
    parts: List[str] = []
    for part in text.split(","):
        if parts and is_open(parts[-1]):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [part for part in parts if part]
