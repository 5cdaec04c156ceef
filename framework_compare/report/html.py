"""A table in HTML, and the templates of all that is HTML; what they print is escaped."""

from __future__ import annotations

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
    return made


def html(table: Table) -> str:
    """A fragment without scripts: verdicts and caption above the table, notes below."""
    return str(environment().get_template("table.html").module.whole(table))
