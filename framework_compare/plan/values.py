"""How lists and pairs are read from the text of an option."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from framework_compare import registry
from framework_compare.errors import UsageError


def split(text: str, convert: Callable[[str], Any] = str) -> List[Any]:
    """Parts of a comma-separated option, converted; UsageError names the part that cannot be."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
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


def pairs(option: str, given: Optional[List[str]]) -> Dict[str, str]:
    """{"torch": "/path"} from ["torch=/path"]."""
    values = {}
    for text in given or []:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"{option} is {text!r}; allowed: FRAMEWORK=VALUE, such as torch=VALUE")
        values[name] = value
    return values


def by_framework(option: str, given: Optional[List[str]]) -> Dict[str, str]:
    """The same by the registry's name of each framework; UnknownNameError for one that is not registered."""
    return {registry.framework(name).name: value for name, value in pairs(option, given).items()}
