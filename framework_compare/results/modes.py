"""In which execution mode each framework of a study ran, and which others it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from framework_compare.store.study_file import Store

_SAME = {"jit": "compiled"}  # what adapters call it, and what the setting does


class Modes(NamedTuple):
    """ran: the mode of all its runs, "" where they differ or it is unknown; others: the modes it has besides."""

    ran: str
    others: tuple[str, ...]


def read(store: Store) -> dict[str, Modes]:
    """Return the modes of each framework's runs that are ok."""
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
        known = found.setdefault(framework, Modes(ran, others))
        if known.ran != ran:
            found[framework] = Modes("", ())
    return found
