"""A study for a paper: BibTeX entries and a paragraph on its methods, made of what was measured."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from framework_compare import registry
from framework_compare.archive.conditions import of_figures
from framework_compare.comparison import Comparison
from framework_compare.errors import check_name
from framework_compare.protocol import MODES
from framework_compare.report import headlines, provenance
from framework_compare.report.latex import escape_latex
from framework_compare.report.names import in_order, listed, title
from framework_compare.report.table_notes import setting_words
from framework_compare.report.tables import known
from framework_compare.results.parity import PROVED

REPOSITORY = "https://example.org/framework_compare"  # a placeholder: the project has no public address yet
AUTHORS = "framework_compare contributors"
# Settings that a reader needs, in the order of the sentence.
_SETTINGS = tuple("device batch_size image_size precision execution optimizer learning_rate epochs threads".split())


STYLES = ("text", "latex")  # of the paragraph


def cite(study: Comparison, style: str = "text") -> str:
    """BibTeX of the software and of the study, an empty line, and the paragraph; StudyError where no cell worked."""
    check_name("style", style, STYLES)
    from framework_compare.report import json_document

    found = of_figures(json_document.document(study))
    version = str(study.settings.get("framework_compare") or "unknown")
    fields = {"author": f"{{{AUTHORS}}}", "title": "framework_compare", "version": version, "year": _started(study)[:4]}
    software = _entry("software", "framework_compare", {**fields, "url": REPOSITORY, "note": "placeholder address"})
    methods = paragraph(study, list(found.values()))
    return "\n".join([software, _data(study), methods if style == "text" else f"{escape_latex(methods.strip())}\n"])


def _data(study: Comparison) -> str:
    names = listed(title(name) for name in in_order(list(study.frame["framework"])))
    models = listed(title(name) for name in dict.fromkeys(study.frame["model"]))
    started = _started(study)
    what = f"{_timed(study.frame).capitalize()} times of {models} in {names}"
    # Styles would write a bare title in small letters.
    fields = {"author": "{YOUR NAME}", "title": f"{{{what}}}", "year": started[:4]}
    note = f"Measured {started[:10]} on {dict(provenance.facts(study)).get('Machine', 'an unknown machine')}"
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"study-{Path(study.folder).name}").strip("-")
    return _entry("misc", key, {**fields, "note": note})


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = []
    for name, value in fields.items():
        braced = value.startswith("{") and value.endswith("}")  # which LaTeX leaves as they are
        text = value if name == "url" else f"{{{escape_latex(value[1:-1])}}}" if braced else escape_latex(value)
        lines.append(f"  {name} = {{{text}}},\n")
    return f"@{kind}{{{key},\n{''.join(lines)}}}\n"


def paragraph(study: Comparison, reservations: Iterable[str]) -> str:
    """Machine, versions, design, intervals and results in sentences; `reservations` are what a reader must know."""
    facts = dict(provenance.facts(study))
    cells = study.frame[study.frame["status"] == "ok"]
    verdicts = study.verdicts()
    version = str(study.settings.get("framework_compare") or "unknown")
    frameworks = listed(facts.get("Frameworks", "unknown versions").split(", "))
    counts = sorted({one.comparisons for one in verdicts if one.corrected})
    corrected = f"; significance is Holm-corrected for {' and '.join(map(str, counts))} comparisons" if counts else ""
    sentences = [
        f"We measured the {_timed(cells)} time of {_sized(cells)} in {frameworks} with "
        f"framework_compare {version} on {facts.get('Machine', 'an unknown machine')} ({facts.get('System', 'unknown system')}).",
        f"Data: {facts.get('Data', ', '.join(dict.fromkeys(cells['dataset'])))}. Settings: {_settings(cells)}.",
        _design(cells),
        _parity(cells),
        "Ratios of epoch times are taken over paired blocks; intervals are 95 % confidence intervals (Student's t on "
        f"logarithms of ratios){corrected}.",
        *(f"{line.rstrip('.')}." for line in headlines.answers(list(study.frame.itertuples()), verdicts, study.modes)),
        # Behind a semicolon they say what to do, which is nothing for a paper.
        *(f"Reservation: {sentence.partition(';')[0]}." for sentence in reservations),
    ]
    return " ".join(sentences) + "\n"


def _timed(cells: Any) -> str:
    named = ("training" if mode == "train" else mode for mode in MODES if mode in set(cells["mode"]))
    return " and ".join(named)


def _sized(cells: Any) -> str:
    """Models with the numbers of their parameters."""
    sizes = {title(row.model): row.parameters for row in cells.itertuples()}
    return listed(f"{name} ({size:,.0f} parameters)" if known(size) else name for name, size in sizes.items())


def _settings(cells: Any) -> str:
    words = []
    for name in _SETTINGS:
        rows = cells[[registry.unit(model) == "image" for model in cells["model"]]] if name == "image_size" else cells
        values = list(dict.fromkeys(rows[name].dropna())) if name in cells else []
        if values:
            words.append(" and ".join(setting_words(name, value) for value in values[:4]))
    return ", ".join(words)


def _design(cells: Any) -> str:
    fewest, most = int(cells["runs_ok"].min()), int(cells["runs_ok"].max())
    runs = f"{fewest} times" if fewest == most else f"{fewest} to {most} times"
    in_turns = {str(one) for one in cells["schedule"].dropna()} == {"interleaved"}
    turns = "; the workers of a block ran at the same time and trained in turns" if in_turns else ""
    return (
        f"Each combination ran {runs}, each time in a new process, in blocks of random order{turns}. Times exclude start-up, "
        "compilation and warm-up."
    )


def _parity(cells: Any) -> str:
    proved = sum(parity in PROVED for parity in cells["parity"])
    which = "All" if proved == len(cells) else f"{proved} of {len(cells)}"
    return f"{which} implementations were verified against a float64 reference to compute the same function."


def _started(study: Comparison) -> str:
    return min((text for text in study.runs["started_at"] if text), default=str(datetime.date.today()))
