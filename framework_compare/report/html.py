"""A table in HTML, and the templates of all that is HTML; what they print is escaped."""

from __future__ import annotations

import re
from typing import Any

from framework_compare.report.tables import Table, clean


def environment() -> Any:
    """Where templates are looked up."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("framework_compare.report.page", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["clean"] = clean
    made.filters["code"] = code
    return made


def code(text: str) -> Any:
    """Escaped text in which what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(clean(text)))))


def html(table: Table) -> str:
    """A fragment without scripts: verdicts and caption above the table, notes below."""
    return str(environment().get_template("table.html").module.whole(table))
