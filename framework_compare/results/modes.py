"""In which execution mode each framework of a study ran, and which others it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from framework_compare.store.study_file import Store

_SAME = {"jit": "compiled"}  # what adapters call it, and what the setting does


class Modes(NamedTuple):
    """ran: what the default came to, "" where it is not known; others: the modes that a framework has besides."""

    ran: str
    others: tuple[str, ...]


def read(store: Store) -> dict[str, Modes]:
    """By framework, of its first run that is ok."""
    rows = store.select(
        "SELECT framework, settings FROM run JOIN cell USING (cell_id) WHERE status = 'ok' ORDER BY run_id"
    )[1]
    found: dict[str, Modes] = {}
    for framework, text in rows:
        settings = json.loads(text)
        ran = str(settings.get("execution", ""))
        others = tuple(
            one for one in settings.get("executions", ()) if one not in ("default", ran, _SAME.get(ran, ran))
        )
        found.setdefault(framework, Modes(ran, others))
    return found
