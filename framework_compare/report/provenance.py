"""The machine, versions and date of a study, which every figure of it needs beside it."""

from __future__ import annotations

import html as markup
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING

from framework_compare.json_types import JSON
from framework_compare.protocol import Document, Fields
from framework_compare.report import renderers, terminal
from framework_compare.report.names import title as named
from framework_compare.report.study import Study
from framework_compare.report.table_notes import data_words, unit_of
from framework_compare.report.tables import clean

if TYPE_CHECKING:
    import pandas as pd


def line(study: Study) -> str:
    """The same in one line: machine, versions, date."""
    parts = dict(facts(study))
    words = [parts.get(name, "") for name in ("Machine", "System", "Frameworks", "Measured", "Version")]
    return " · ".join(filter(None, words))


def text(study: Study, style: str, width: int | None = None) -> str:
    """The line as it stands above tables of a style; "" for csv, which has no place for it. width: of a terminal."""
    words = line(study)
    forms = {
        "terminal": "\n".join(terminal.wrap(f"Measured on {words}", width or 80)),
        "html": f"<p>{markup.escape(words)}</p>",
        "latex": f"% Measured on {words}",
        **dict.fromkeys(("markdown", "github"), renderers.escape_markdown(words)),
    }
    return f"{forms[style]}\n" if style in forms else ""


def facts(study: Study) -> list[tuple[str, str]]:
    """Machine, versions, date and data, by name."""
    machine, runs = study.machine, study.runs
    versions = study.frame[["framework", "framework_version"]].dropna().drop_duplicates()
    container = "in a container" if machine.get("container") else ""
    datasets = (study.settings.get("datasets") or {}).items()
    system = *(str(machine.get(name) or "") for name in ("os", "kernel")), container
    nodes = runs["node_id"].nunique()  # that measured parts of the study, where some did
    where = "" if not nodes else "1 node of a cluster: " if nodes == 1 else f"{nodes} nodes of a cluster, each "
    parts = [
        ("Machine", where + _machine(machine)),
        ("System", ", ".join(filter(None, system))),
        ("Frameworks", ", ".join(starmap(_with_version, versions.itertuples(index=False, name=None)))),
        ("Measured", _period(sorted(text for text in runs["started_at"] if text))),
        ("Data", "; ".join(_dataset(name, facts, study.frame) for name, facts in datasets)),
        ("Version", f"framework_compare {study.settings.get('framework_compare', 'unknown')}"),
    ]
    return [(name, clean(text)) for name, text in parts if text]


def _period(started: Sequence[str]) -> str:
    """The days on which runs began, from the first to the last; times are UTC."""
    if not started:
        return "not yet"
    first, last = (text[:16].replace("T", " ") for text in (started[0], started[-1]))
    return f"{first} UTC" if first == last else f"{first} to {last[11:] if last[:10] == first[:10] else last} UTC"


def _machine(machine: Fields) -> str:
    memory = machine.get("memory_bytes")
    parts = [
        str(machine.get("cpu") or ""),
        f"{machine['available_cores']} cores" if machine.get("available_cores") else "",
        f"{memory / 1e9:.0f} GB memory" if isinstance(memory, (int, float)) else "",
        *(f"{count} x {name}" if count > 1 else name for name, count in Counter(gpu_names(machine)).items()),
    ]
    return ", ".join(filter(None, parts))


def gpu_names(machine: Document) -> list[str]:
    """The name of each GPU of a machine, as `samplers.nvml.describe_gpus` found them."""
    found = machine.get("gpus") or ()
    devices = (found.get("devices") or ()) if isinstance(found, Mapping) else found
    return [str(gpu.get("name") or "GPU") if isinstance(gpu, Mapping) else str(gpu) for gpu in devices]


def _dataset(name: str, facts: JSON, cells: pd.DataFrame) -> str:
    """A data set with its number of images, or of what else its cells train on."""
    samples = facts.get("images") if isinstance(facts, dict) else None
    own = [cell for cell in cells.itertuples() if cell.dataset == name]
    generated = any(cell.generated is True for cell in own)
    return f"{name} ({data_words(samples, unit_of(own), generated)})" if isinstance(samples, int) else str(name)


def _with_version(framework: str, version: str) -> str:
    """A framework's name and version; a competitor's name may have it already."""
    name = named(framework)
    return name if "@" in framework and version.partition("+")[0] in name else f"{name} {version}"
