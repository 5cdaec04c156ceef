"""A study as one JSON document, described by `study.schema.json` beside this file."""

import dataclasses
import json
from importlib import resources
from pathlib import Path

from framework_compare import registry
from framework_compare.json_types import JSON
from framework_compare.protocol import Fields
from framework_compare.report.renderers import DIGITS
from framework_compare.report.study import Study, plain, rounded
from framework_compare.results import ratios
from framework_compare.results.metrics import METRICS
from framework_compare.results.speed_verdicts import winners
from framework_compare.store.study_file import REQUEST

SCHEMA_VERSION = 1  # rises when a field goes or changes its meaning, not when one comes


def text(study: Study) -> str:
    """The document, indented; it ends in a line break."""
    return json.dumps(document(study), indent=1, allow_nan=False) + "\n"


def document(study: Study) -> Fields:
    """Cells with every column of the frame in SI units, verdicts, machine and packages; what is missing is null."""
    runs = study.runs
    started = sorted(text for text in runs["started_at"] if text)
    records, verdicts = list(study.frame.itertuples()), study.verdicts()
    best = ratios.to_best(records)
    cells = study.frame.assign(ratio_to_best=[best.get(place) for place in study.frame.index])
    return {
        "schema_version": SCHEMA_VERSION,
        "framework_compare": str(study.settings.get("framework_compare") or "unknown"),
        "study": Path(study.folder).name,
        "started_at": started[0] if started else None,
        "machine": _values(study.machine),
        # The request has paths of the machine, and this is made to be passed on.
        "settings": _values({name: value for name, value in study.settings.items() if name != REQUEST}),
        "environments": _values(study.environments),
        "labels": list(registry.labels(study.frame["framework"])),
        "metrics": {
            name: {"label": one.label, "better": one.better, "shown_in": one.unit, "scale": one.scale}
            for name, one in METRICS.items()
        },
        "cells": rounded(cells, DIGITS),
        "verdicts": [_values(dataclasses.asdict(one)) for one in verdicts],
        "winners": [
            {name: _values(getattr(one, name)) for name in ("model", "condition", "framework", "excluded")}
            | {"reason": one.why()}
            for one in winners(records, verdicts)
        ],
    }


def schema() -> Fields:
    """The JSON schema of the document (draft 2020-12)."""
    file = resources.files("framework_compare.report").joinpath("study.schema.json")
    return json.loads(file.read_text(encoding="utf-8"))


def _values(value: object) -> JSON:
    """Any value as JSON has it: no NaN, no infinity, no types of numpy."""
    if isinstance(value, dict):
        return {str(key): _values(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_values, value))
    return value if isinstance(value, int) else plain(value, DIGITS)
