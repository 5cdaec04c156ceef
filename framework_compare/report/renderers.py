"""A table as text: Markdown and HTML; `terminal` and `latex` have modules of their own; a frame as CSV.

Each escapes what its readers would run or misread.
"""

from __future__ import annotations

import csv as csv_files
import html as markup
import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from framework_compare.report.latex import escape_latex, latex
from framework_compare.report.tables import Row, Table, clean
from framework_compare.report.terminal import render as terminal

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

DIGITS = 9  # of numbers in CSV and JSON: more than any clock or counter is good for, and all that a float32 has
_CODE = re.compile(r"(`[^`\\]+`)")
_MARKDOWN = re.compile(r"([\\`*\[\]|~$#])|((?<![^\W_])_|_(?![^\W_]))")


def escape_markdown(text: object) -> str:
    """Text as GitHub's Markdown shows it, also within a table."""
    parts = _CODE.split(clean(text))  # every second one is code, whose only mark is that of a table's columns
    escaped = (_MARKDOWN.sub(r"\\\g<0>", markup.escape(part, quote=False)) for part in parts[::2])
    code = (part.replace("|", r"\|") for part in parts[1::2])
    return "".join(piece for both in itertools.zip_longest(escaped, code, fillvalue="") for piece in both)


def markdown(table: Table) -> str:
    """A pipe table; the group's title stands before each of its headings, as there are no spans."""
    below = "\n\n".join(map(escape_markdown, table.below()))
    above = "\n\n".join(map(escape_markdown, table.verdicts))
    return "\n\n".join(filter(None, [above, escape_markdown(table.caption), _pipe_table(table), below])) + "\n"


def _pipe_table(table: Table) -> str:
    names, columns = len(table.headings), table.columns
    lines = [
        _pipes(list(map(escape_markdown, columns))),
        _pipes([":---"] * names + ["---:"] * (len(columns) - names)),
        *(_pipes([*map(escape_markdown, row.names), *_values(table, row)]) for row in table.rows),
    ]
    return "\n".join(lines)


def _values(table: Table, row: Row) -> list[str]:
    texts = [escape_markdown(table.text(value)) for value in row.values]
    return [f"**{text}**" if value.best else text for text, value in zip(texts, row.values)]


def _pipes(fields: Sequence[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def github(table: Table) -> str:
    """Markdown for GitHub's job summaries, issues and comments: verdicts as a list, notes folded away."""
    verdicts = "\n".join(f"- {escape_markdown(line)}" for line in table.verdicts)
    notes = "\n".join(f"- {escape_markdown(line)}" for line in table.below())
    folded = f"<details><summary>Notes</summary>\n\n{notes}\n\n</details>" if notes else ""
    caption = f"**{escape_markdown(table.caption)}**" if clean(table.caption) else ""
    return "\n\n".join(filter(None, [verdicts, caption, _pipe_table(table), folded])) + "\n"


def environment(*more: str) -> Any:
    """Return Jinja with the templates and filters of this package, and the templates of more packages."""
    import jinja2

    packages = ("framework_compare.report.page", *more)
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name, "templates") for name in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["clean"] = clean
    made.filters["code"] = code
    return made


def code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(clean(text)))))


def html(table: Table) -> str:
    """A fragment without scripts: verdicts and caption above the table, notes below."""
    return str(environment().get_template("table.html").module.whole(table))


def csv(frame: "pd.DataFrame") -> str:
    """A frame as plain CSV, a header line and one line per row; numbers to 9 digits, a missing value as an empty field."""
    file = io.StringIO()
    writer = csv_files.writer(file, lineterminator="\n")
    writer.writerow(frame.columns)
    for row in frame.itertuples(index=False):
        writer.writerow([_csv_field(value) for value in row])
    return file.getvalue()


def _csv_field(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.{DIGITS}g}"
    text = clean(value)
    # A spreadsheet would run it as a formula.
    return "'" + text if isinstance(value, str) and text.startswith(("=", "+", "-", "@")) else text


__all__ = ["RENDERERS", "csv", "escape_latex", "escape_markdown", "github", "html", "latex", "markdown", "terminal"]
RENDERERS: dict[str, Callable[[Table], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "github": github,
    "html": html,
    "latex": latex,
}
