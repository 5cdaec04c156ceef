"""A table as text: terminal, Markdown, LaTeX; a frame as CSV. Each escapes what its readers would run or misread."""

from __future__ import annotations

import csv as csv_files
import io
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from framework_compare.report import terminal as terminal_renderer
from framework_compare.report.tables import Figure, Table, clean

if TYPE_CHECKING:
    import pandas as pd

_MARKDOWN = re.compile(r"([\\`*\[\]|~$#])|((?<![^\W_])_|_(?![^\W_]))")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape_markdown(text: object) -> str:
    """Text as GitHub's Markdown shows it, also within a table."""
    line = "".join(_HTML.get(c, c) for c in clean(text))
    return _MARKDOWN.sub(r"\\\g<0>", line)


def markdown(table: Table) -> str:
    """A pipe table; the group's title stands before each of its headings, as there are no spans."""
    heads = [" / ".join(filter(None, (group.title, heading))) for group in table.groups for heading in group.headings]
    lines = [
        _pipes([escape_markdown(text) for text in (*table.headings, *heads)]),
        _pipes([":---"] * len(table.headings) + ["---:"] * len(heads)),
        *(_pipes([*map(escape_markdown, row.names), *map(_markdown_figure, row.figures)]) for row in table.rows),
    ]
    below = "\n\n".join(map(escape_markdown, table.below()))
    above = "\n\n".join(map(escape_markdown, table.verdicts))
    return "\n\n".join(filter(None, [above, escape_markdown(table.caption), "\n".join(lines), below])) + "\n"


def _markdown_figure(figure: Figure) -> str:
    text = escape_markdown(figure.plain)
    return f"**{text}**" if figure.best else text


def _pipes(fields: Sequence[str]) -> str:
    return "| " + " | ".join(fields) + " |"


_LATEX: Dict[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    # At the start of a row these would be read as arguments of the line break before it.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    **{c: "\\" + c for c in "&%$#_{}"},
}


def escape_latex(text: object) -> str:
    # Two hyphens would make a dash.
    return re.sub("-(?=-)", "-{}", "".join(_LATEX.get(c, c) for c in clean(text)))


def latex(table: Table) -> str:
    """A floating table for booktabs, with the notes in small print below."""
    columns = "l" * len(table.headings) + "r" * sum(len(group.headings) for group in table.groups)
    heads = [*table.headings, *(heading for group in table.groups for heading in group.headings)]
    body = [[*map(escape_latex, row.names), *map(_latex_figure, row.figures)] for row in table.rows]
    return "\n".join(
        [
            "% \\usepackage{booktabs,textcomp} \\usepackage[T1]{fontenc}",
            "\\begin{table}",
            *(f"\\par\\raggedright {escape_latex(line)}" for line in table.verdicts),
            "\\centering",
            f"\\caption{{{escape_latex(table.caption)}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            *_latex_titles(table),
            _latex_row(map(escape_latex, heads)),
            "\\midrule",
            *map(_latex_row, body),
            "\\bottomrule",
            "\\end{tabular}",
            *(f"\\par\\smallskip\\footnotesize\\raggedright {escape_latex(line)}" for line in table.below()),
            "\\end{table}\n",
        ]
    )


def _latex_titles(table: Table) -> List[str]:
    if not any(group.title for group in table.groups):
        return []
    titles, rules, first = [""] * len(table.headings), [], len(table.headings) + 1
    for group in table.groups:
        last = first + len(group.headings) - 1
        titles.append(f"\\multicolumn{{{len(group.headings)}}}{{c}}{{{escape_latex(group.title)}}}")
        rules.append(f"\\cmidrule(lr){{{first}-{last}}}" if group.title else "")
        first = last + 1
    return [_latex_row(titles), "".join(rules)]


def _latex_row(fields: Any) -> str:
    return " & ".join(fields) + r" \\"


def _latex_figure(figure: Figure) -> str:
    text = escape_latex(figure.text)
    note = f"\\textsuperscript{{({figure.note})}}" if figure.note else ""
    return (f"\\textbf{{{text}}}" if figure.best else text) + note


def csv(frame: "pd.DataFrame") -> str:
    """A frame as plain CSV, a header line and one line per row; a missing value is an empty field."""
    file = io.StringIO()
    writer = csv_files.writer(file, lineterminator="\n")
    writer.writerow(frame.columns)
    for row in frame.itertuples(index=False):
        writer.writerow([_csv_field(value) for value in row])
    return file.getvalue()


def _csv_field(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = clean(value)
    # A spreadsheet would run it as a formula.
    return "'" + text if isinstance(value, str) and text.startswith(("=", "+", "-", "@")) else text


def terminal(table: Table, *, width: Optional[int] = None, bold: Optional[bool] = None) -> str:
    """Columns that fit `width`, stacked where they do not fit beside each other; nothing is cut off."""
    return terminal_renderer.render(table, width=width, bold=bold)


RENDERERS: Dict[str, Callable[[Table], str]] = {"terminal": terminal, "markdown": markdown, "latex": latex}
