"""A study as one HTML file: answers, figures as SVG that scripts replace by interactive ones, tables, evidence."""

from __future__ import annotations

import dataclasses
import datetime
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from framework_compare import __version__, registry
from framework_compare.errors import UsageError
from framework_compare.plan import settings
from framework_compare.protocol import Document, Fields
from framework_compare.report import headlines, kinds, provenance, renderers
from framework_compare.report.figures import files, marks
from framework_compare.report.figures.catalogue import FIGURES, QUESTIONS, Figure
from framework_compare.report.figures.files import Drawn, javascript, packed
from framework_compare.report.figures.subject import Subject
from framework_compare.report.names import title as named
from framework_compare.report.page.lights import lights, standing
from framework_compare.report.renderers import environment
from framework_compare.report.resource_tables import OWN, PSS, RSS
from framework_compare.report.study import Study
from framework_compare.report.table_notes import setting_value, setting_words, shared_settings, varies, warnings_of
from framework_compare.report.tables import Table, clean
from framework_compare.results.columns import Record
from framework_compare.results.metrics import METRICS, Metric
from framework_compare.results.speed_verdicts import Verdict
from framework_compare.store import schema
from framework_compare.store.study_file import REQUEST

WIDTHS = (files.PAGE_WIDTH, 690.0, 300.0)  # of figures, in pixels; the page takes the widest that fits
MAX_PANELS = 24  # models and settings that the figures show; tables and CSV have all
MAX_ROWS = 1000  # of the table of cells
MAX_CSV = 1_000_000  # characters of CSV within the page
MAX_NARROW = 100_000  # characters of the stills of a figure for phones, which scroll that for laptops if there are more
MAX_VERDICTS = 100
MAX_RESULTS = 20  # of a citation
MAX_VALUES = 12  # of a setting in which cells differ
STATED = ("batch_size", "image_size", "epochs", "threads")  # whether or not they are at their defaults
UNFAILED = ("ok", "planned", "running")  # of runs
CELL_METRICS = (
    *("epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", "images_per_s", "data_wait_share", "pss_peak_bytes"),
    *("peak_rss_bytes", "cpu_percent_mean", "threads_max", "gpu_percent_mean", "gpu_process_memory_peak_bytes"),
    *("gpu_j_per_image", "first_step_s", "loss_last", "wall_s"),
)
_TAG = re.compile(r"<[^<>]*>")


class Panel(NamedTuple):
    """A part of a figure: its stills for the widest and the narrowest of WIDTHS, which the usual view alone has, and a
    specification for each of WIDTHS."""

    still: Drawn
    narrow: Drawn
    specs: Document


class Section(NamedTuple):
    """A figure, and its views that have data: what they show of this study, their captions, and their parts by title."""

    name: str
    figure: Figure
    views: Mapping[str, tuple[str, str, Mapping[str, Panel]]]


def write(study: Study, path: str | Path, more: Sequence[Table] = ()) -> Path:
    """Write the report of a study as one HTML file, `more` tables behind its own; StudyError where it cannot be written."""
    target = Path(path).absolute()
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"the report is {str(path)!r}; allowed: a file that ends in .html")
    text = render(study, more)
    with schema.study_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return target


def render(study: Study, more: Sequence[Table] = ()) -> str:
    """The report as text."""
    page = environment()
    page.filters.update(
        markdown=renderers.markdown,
        latex=renderers.latex,
        uri=uri_of,
        source=source_of,
        packed=packed,
        named=named,
        log=_log,
    )
    return page.get_template("report.html").render(**_content(study, more))


def _content(study: Study, more: Sequence[Table]) -> Fields:
    cells = study.frame
    subject = Subject(study)
    sections, absent, left = _sections(subject)
    labels = registry.labels(cells["framework"])
    verdicts = study.verdicts() if len(cells) <= MAX_ROWS else []
    text = renderers.csv(cells)
    answers = lights(cells, subject.whole_epochs())
    state, words = standing(answers)
    tables = [dataclasses.replace(one, warnings=()) for one in (*_tables(study), *more)]  # warnings have a section
    questions = {question: [one for one in sections if one.figure.question == question] for question in QUESTIONS}
    return {
        "title": clean(Path(study.folder).name),
        "facts": provenance.facts(study),
        "lights": answers,
        "state": state,
        "standing": words,
        "citation": citation(study, verdicts, words),
        "verdicts": headlines.answers(list(cells.itertuples()), verdicts, study.modes),
        "verdict_remarks": [*headlines.remarks(verdicts), *labels],
        "labels": labels,
        "judged": [headlines.with_display_names(one) for one in verdicts[:MAX_VERDICTS]],
        "more_verdicts": max(0, len(verdicts) - MAX_VERDICTS),
        "frameworks": list(zip(subject.frameworks, subject.marks()[0])),
        "questions": {question: some for question, some in questions.items() if some},
        "absent": absent,
        "left": left,
        "what_shown": MAX_PANELS,
        "widths": WIDTHS,
        "tables": tables,
        "cells": list(subject.cells.head(MAX_ROWS).itertuples()),
        "metrics": _metrics(subject),
        "more_cells": max(0, len(cells) - MAX_ROWS),
        "failures": list(study.runs[~study.runs["status"].isin(UNFAILED)].head(MAX_VERDICTS).itertuples()),
        "warnings": warnings_of(cells.itertuples()),
        "settings": _settings(cells),
        "environments": _packages(study),
        "command": command(study),
        "csv": quote(text) if len(text) <= MAX_CSV else "",
        "script": javascript() if sections else "",
        "version": __version__,
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _sections(subject: Subject) -> tuple[list[Section], list[Figure], int]:
    """The figures with data, those without, and how many panels are left out of all of them."""
    shown = subject.conditions[:MAX_PANELS]
    left = len(subject.conditions) - len(shown)
    if left:
        subject = Subject(subject.study, conditions=shown)
    if not len(subject.worked):
        return [], list(FIGURES.values()), left
    names = sorted(FIGURES, key=lambda name: QUESTIONS.index(FIGURES[name].question))
    views = {name: _views(subject, name) for name in names}
    absent = [FIGURES[name] for name, found in views.items() if not found]
    sections = [Section(name, FIGURES[name], found) for name, found in views.items() if found]
    return sections, absent, left


def _views(subject: Subject, name: str) -> dict[str, tuple[str, str, Mapping[str, Panel]]]:
    views: dict[str, tuple[str, str, Mapping[str, Panel]]] = {}
    for view, one in FIGURES[name].views.items():
        stills = () if views else (WIDTHS[0], WIDTHS[-1])
        drawn = [files.draw(subject, name, width, view=view, still=width in stills) for width in WIDTHS]
        if not drawn[0] and not views:  # without data for the usual view there is none for another
            break
        parts = {
            title: Panel(
                files.roomy(still),
                files.roomy(drawn[-1][title]),
                files.responsive([one[title].spec for one in drawn]),
            )
            for title, still in drawn[0].items()
        }
        if sum(len(part.narrow.svg) for part in parts.values()) > MAX_NARROW:
            parts = {title: part._replace(narrow=part.narrow._replace(svg="")) for title, part in parts.items()}
        finding = subject.worded(one.finding(subject))
        how = subject.worded(marks.caption(one.caption, [still.spec for still in drawn[0].values()]))
        views.update({subject.worded(view): (finding, how, parts)} if parts else {})
    return views


def uri_of(svg: str) -> Markup:
    """An image within an attribute of a page: it runs nothing and shares no name with it."""
    single = _TAG.sub(lambda tag: tag[0] if "'" in tag[0] else tag[0].replace('"', "'"), svg)  # one letter, not three
    return Markup("data:image/svg+xml," + quote(single, safe=" =:/;,'()!*@+$[]{}|^`\n"))


def source_of(svg: str) -> Markup:
    """The same for `srcset`, which ends an address at white space."""
    return Markup(uri_of(svg).replace(" ", "%20").replace("\n", "%0A"))


def _metrics(subject: Subject) -> dict[str, Metric]:
    """The columns of the table of cells: those with figures, and one of memory alone; all in the data's unit."""
    known = [name for name in CELL_METRICS if subject.cells[name].notna().any()]
    on_gpu = OWN in known and subject.cells["device"].map(registry.device_kind).ne("cpu").all()
    others = {PSS, RSS} if on_gpu else {RSS} if PSS in known else set()
    shown = {name: METRICS[name] for name in known if name not in others}
    worded = subject.worded
    return {
        name: dataclasses.replace(one, label=worded(one.label), unit=worded(one.unit)) for name, one in shown.items()
    }


# The kinds that a report shows, where the study has them; profiles have a figure, and the roofline needs peaks.
SHOWN = tuple(
    """
time startup resources speedup stack modes devices quality gains search inference generation energy
""".split()
)


def _tables(study: Study) -> list[Table]:
    """The tables of time and resources, and the others that the study has figures for."""
    blocks, tables = partial(getattr, study, "block_times"), []
    for kind in SHOWN if len(study.frame) <= MAX_ROWS else ():
        tables += kinds.build(getattr(study, kinds.KINDS[kind].frame), kind, blocks)[:12]
    return tables


def _log(text: object) -> str:
    """The last lines of a log, printable, with their indents."""
    lines = text.splitlines()[-30:] if isinstance(text, str) else ()
    return "\n".join(" " * (len(line) - len(line.lstrip(" "))) + clean(line) for line in lines)


def _settings(cells: pd.DataFrame) -> list[tuple[str, str, str]]:
    """(name, values, meaning) of every setting of a cell."""
    rows = []
    for name, setting in settings.SETTINGS.items():
        column = settings.column(name)
        if column in cells:
            values = dict.fromkeys(clean(setting_value(column, one)) for one in cells[column].dropna().head(10_000))
            rows.append((column, ", ".join(list(values)[:20]), setting.meaning))
    return rows


def _packages(study: Study) -> list[tuple[str, list[str]]]:
    return [
        (named(framework), [clean(f"{name} {version}") for name, version in facts["packages"].items()])
        for framework, facts in study.environments.items()
        if isinstance(facts.get("packages"), dict)  # any program may have written the study
    ]


def command(study: Study) -> str:
    """The lines of a shell that run the study again: its request as a file, with its budget, limits and paths.

    Of a study that keeps no request (an earlier version's, a sweep) they are its plan as options, without defaults.
    """
    if study.settings.get(REQUEST):
        return f"cat > study.toml <<'END'\n{study.to_toml().strip()}\nEND\nframework-compare run --from study.toml"
    cells = study.frame
    words = ["framework-compare", "run"]
    for flag, column in (("--frameworks", "framework"), ("--models", "model")):
        words += [flag, ",".join(_values(cells[column]))]
    for name in _values(cells["dataset"]):
        words += ["--dataset", name]
    for name, setting in settings.SETTINGS.items():
        column = settings.column(name)
        if column in cells and setting.role != settings.OF_DATASET:
            values, default = _values(cells[column]), getattr(settings.DEFAULTS, name)
            if values != [clean(_number(default))] or setting.all_cores:
                words += [f"--{column.replace('_', '-')}", ",".join(values)]
    repeats = int(study.runs["repeat"].max()) if len(study.runs) else 1
    return shlex.join([*words, *(["--repeats", str(repeats)] if repeats > 1 else [])])


def _values(column: pd.Series) -> list[str]:
    return list(dict.fromkeys(clean(_number(value)) for value in column.dropna()))


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def citation(study: Study, verdicts: Iterable[Verdict], words: str) -> str:
    """A study in a few lines to paste into a text: what was measured where, with which versions, and what came out.

    words: for its `standing`.
    """
    facts = dict(provenance.facts(study))
    cells = list(study.frame.itertuples())
    names = {"Machine": "Machine", "System": "System", "Frameworks": "Versions", "Data": "Data"}
    verdicts = sorted(verdicts, key=lambda verdict: not verdict.shown)  # what is shown comes first
    results = [clean(headlines.with_display_names(one).sentence).replace("`", "") for one in verdicts[:MAX_RESULTS]]
    left = [f"{len(verdicts) - MAX_RESULTS} more results are in the report."] if len(verdicts) > MAX_RESULTS else []
    return "\n".join(
        [
            f"Study {clean(Path(study.folder).name)}, measured {facts.get('Measured', '')} with {facts['Version']}.",
            *(f"{shown}: {facts[name]}." for name, shown in names.items() if name in facts),
            *([f"Settings: {clean(_cited_settings(cells))}."] if cells else []),
            *(f"Result: {one.rstrip('.')}." for one in results),
            *left,
            *headlines.remarks(verdicts),
            f"Checks: {words[0].lower()}{words[1:]}.",
        ]
    )


def _cited_settings(cells: Sequence[Record]) -> str:
    """Return what all cells share, then the values of STATED in which they differ."""
    differing = []
    for name in STATED:
        column = settings.column(name)
        if varies(cells, column):
            values = list(dict.fromkeys(setting_words(column, getattr(cell, column)) for cell in cells))
            differing.append(" or ".join([*values[:MAX_VALUES], *(["others"] if len(values) > MAX_VALUES else [])]))
    return ", ".join([shared_settings(cells, (), ("device", *STATED)), *differing])


def fragment(study: Study) -> str:
    """A fragment of HTML without scripts."""
    tables = kinds.build(study.frame, "time", lambda: study.block_times, lambda: study.modes)
    subject = Subject(study)
    parts = files.draw(subject, "epoch-time") if len(subject.worked) else {}
    images = [uri_of(part.svg) for part in parts.values()]
    return environment().get_template("notebook.html").render(tables=tables, images=images)
