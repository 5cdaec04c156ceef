"""Every error this package raises on purpose: one tree, each message one sentence a user can act on."""

from __future__ import annotations

import difflib
from typing import Any, Iterable, TypeVar


class FrameworkCompareError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(FrameworkCompareError, ValueError):
    """The request is invalid; the message says what is allowed (exit code 2)."""


class UnknownNameError(UsageError):
    """A name is unknown; the message suggests the nearest known one."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        known = list(known)
        near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.7)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        super().__init__(f"unknown {kind} {name!r}{meant}; allowed: {', '.join(known)}")


class DataError(UsageError):
    """A data set cannot be read as requested; the message names the folder, class or image."""


class EnvironmentUnavailable(FrameworkCompareError):
    """A framework's environment cannot be made or used; its cells become `not-installed`."""


class StudyError(UsageError):
    """A study folder cannot be opened, or belongs to something else."""


class Unsupported(FrameworkCompareError):
    """A framework does not support what a cell asks for; the cell shows the reason."""


class ProtocolError(FrameworkCompareError):
    """A worker sent something that is not an event, or an adapter's class lacks a part of the protocol."""


Name = TypeVar("Name")


def check_name(kind: str, name: Name, known: Iterable[Any]) -> Name:
    """Return a name that is one of those known; UnknownNameError for any other."""
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return name


MOST = 10**6  # of any count, where no other bound is said


def check_count(name: str, value: object, least: int = 1, most: float = MOST, otherwise: str = "") -> None:
    """UsageError unless `value` is a whole number from `least` to `most`; `otherwise` names what else is allowed."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(
            f"{name} is {value!r}; allowed: a whole number of at least {least} and at most {most:.0f}{otherwise}"
        )
