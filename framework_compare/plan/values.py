"""Read lists and pairs from the text of an option."""

import math
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from framework_compare import registry
from framework_compare.environments.installer import NO_INDEX
from framework_compare.errors import UsageError
from framework_compare.importers.common.sources import is_open


def listed(kind: str, wanted: object) -> list[Any]:
    """Return what a user lists, one name being a list of one; UsageError for nothing and for what is not a list."""
    if not isinstance(wanted, (str, os.PathLike, Iterable)) or isinstance(wanted, Mapping):
        raise UsageError(f"{kind} is {wanted!r}; allowed: a name or a list of names")
    given = [wanted] if isinstance(wanted, (str, os.PathLike)) else list(wanted)
    if not given:
        raise UsageError(f"no {kind} is given; at least one is needed")
    return given


def check_unique(kind: str, names: Iterable[object]) -> None:
    """UsageError for a name that is given twice."""
    names = list(names)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{kind} {twice[0]!r} is given twice; name each once")


def split(text: str, convert: Callable[[str], Any] = str) -> List[Any]:
    """Parts of a comma-separated option, converted; UsageError names the part that cannot be.

    A keyword belongs to the model before it, as in "transformers:gpt2:n_layer=2,n_embd=64", also one in brackets or quotes.
    """
    parts: List[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        before = parts[-1] if parts and parts[-1].startswith("transformers:") else ""
        if before and (re.match(r"\w+=", part) or is_open(before)):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    try:
        return [convert(part) for part in parts]
    except ValueError:
        numbers = "whole numbers" if convert is int else "numbers"
        raise UsageError(f"{text!r} is not a comma-separated list of {numbers}") from None


def split_devices(text: str) -> List[str]:
    """Devices of a comma-separated option: a number alone belongs to the device before it, as in "cpu,cuda:0,1"."""
    devices: List[str] = []
    for part in split(text):
        if part.isdecimal() and devices and ":" in devices[-1]:
            devices[-1] += f",{part}"
        else:
            devices.append(part)
    return devices


def pairs(
    option: str, given: Optional[List[str]], example: str = "FRAMEWORK=VALUE, such as torch=VALUE"
) -> Dict[str, str]:
    """{"torch": "/path"} from ["torch=/path"]."""
    values = {}
    for text in given or []:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"{option} is {text!r}; allowed: {example}")
        values[name] = value
    return values


def by_framework(option: str, given: Optional[List[str]]) -> Dict[str, str]:
    """The same by the registry's name of each framework; UnknownNameError for one that is not registered."""
    return {registry.framework(name).name: value for name, value in pairs(option, given).items()}


def check_indexes(index: Mapping[str, str]) -> Mapping[str, str]:
    """Package indexes by framework, as they are; UsageError for what pip would not take for one, and leave out."""
    for name, value in index.items():
        if value != NO_INDEX and not re.match(r"(https?|file)://.", value) and not os.path.isdir(value):
            raise UsageError(
                f"index of {name} is {value!r}; allowed: a URL such as https://HOST/simple, a folder, or none"
            )
    return index


MOST_S = 366 * 86400.0
_UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)\s*")


def seconds(name: str, value: object) -> float:
    """Seconds of a time such as "30min", "1h30min" or 1800; UsageError for anything else."""
    given = value.strip() if isinstance(value, str) else value
    if isinstance(given, str) and _NUMBER.fullmatch(given):
        given = float(given)
    if isinstance(given, str) and _DURATION.sub("", given) == "":
        given = sum(float(count) * _UNITS_S[unit] for count, unit in _DURATION.findall(given))
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 < given <= MOST_S:
        raise UsageError(
            f'{name} is {value!r}; allowed: a time such as "30min", "1h30min", "30d", or a number of seconds; at most a year'
        )
    return float(given)


def share(name: str, value: Any) -> float:
    """A share of 1, from 0.05 or "5%"; UsageError for anything else."""
    given, _ = _share(value)
    if not 0 < given < 1:
        raise UsageError(f"{name} is {value!r}; allowed: a share above 0 and below 1, such as 0.05 or 5%")
    return given


def slowdown(name: str, value: Any) -> float:
    """Return how much longer something may take, from 0, 0.05, "5%" or "150%"; UsageError for anything else."""
    given, percent = _share(value)
    if not (0 <= given < 1 or percent and 0 <= given < math.inf):
        raise UsageError(
            f"{name} is {value!r}; allowed: a share from 0 to below 1, such as 0.05, or percent, such as 5%"
        )
    return given


def _share(value: Any) -> tuple[float, bool]:
    """A share, NaN for what is none, and whether it was given in percent."""
    text = value.strip() if isinstance(value, str) else value
    percent = isinstance(text, str) and text.endswith("%")
    try:
        return (math.nan if isinstance(value, bool) else float(text[:-1]) / 100 if percent else float(text)), percent
    except (TypeError, ValueError):
        return math.nan, percent
