"""A study as Jupyter shows it: verdicts, tables of times, and their figure."""

from __future__ import annotations

from framework_compare.report import kinds
from framework_compare.report.figures import files
from framework_compare.report.figures.subject import Subject
from framework_compare.report.page.report import uri_of
from framework_compare.report.renderers import environment
from framework_compare.report.study import Study


def html(study: Study) -> str:
    """A fragment of HTML without scripts."""
    tables = kinds.build(study.frame, "time", lambda: study.block_times, lambda: study.modes)
    subject = Subject(study)
    parts = files.draw(subject, "epoch-time") if len(subject.worked) else {}
    images = [uri_of(part.svg) for part in parts.values()]
    return environment().get_template("notebook.html").render(tables=tables, images=images)
