"""A table in LaTeX, to paste: booktabs rules, siunitx columns that align decimal points and intervals, a label."""

import re
from collections.abc import Iterable, Sequence

from framework_compare.errors import UsageError
from framework_compare.report.tables import Row, Table, Value, clean
from framework_compare.report.terminal import Span, stacks

PREAMBLE = (
    "% In the preamble (siunitx 3; names in non-Latin letters need LuaLaTeX):\n"
    "% \\usepackage[T1]{fontenc} \\usepackage{booktabs,textcomp,siunitx}"
)
_NUMBER = re.compile(r"(≈)?(-?\d{1,3}(?:,\d{3})+|-?\d+)(?:\.(\d+))?(?: ±(\d+)(?:\.(\d+))?)?")
ABOUT = "\\approx "
WIDTH = 68  # characters beside each other on a page of `article` in small print; wider tables are stacked
_ESCAPES = {
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
    "…": r"\ldots{}",
    "·": r"\textperiodcentered{}",
    "°": r"\textdegree{}",
    # At the start of a row these would be read as arguments of the line break before it.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    **{c: "\\" + c for c in "&%$#_{}"},
}


def escape_latex(text: object) -> str:
    # Two hyphens would make a dash.
    escaped = re.sub("-(?=-)", "-{}", "".join(_ESCAPES.get(c, c) for c in clean(text)))
    tick = re.escape(_ESCAPES["`"])
    return re.sub(f"{tick}(.+?){tick}", r"\\texttt{\1}", escaped)


def latex(table: Table, label: str = "") -> str:
    """A floating table, with verdicts and notes in small print below; label: what the text refers to it by.

    UsageError for a label that would end its command.
    """
    if re.search(r"[\\{}%#~\s]", label):
        raise UsageError(f"the label is {label!r}; allowed: text such as tab:time, without blanks, \\ {{ }} % # ~")
    notes = [f"\\par\\smallskip\\raggedright {escape_latex(line)}" for line in (*table.verdicts, *table.below())]
    return "\n".join(
        [
            PREAMBLE,
            "\\begin{table}",
            "\\centering",
            "\\sisetup{separate-uncertainty,detect-weight,table-align-text-after=false}",
            f"\\caption{{{escape_latex(table.caption)}}}",
            *([f"\\label{{{label}}}"] if label else []),
            "\\footnotesize\\setlength{\\tabcolsep}{3pt}",
            "\n\\par\\medskip\n".join(_tabular(table, *stack) for stack in stacks(table, WIDTH)),
            *notes,
            "\\end{table}\n",
        ]
    )


def _tabular(table: Table, spans: Sequence[Span], rows: Sequence[Row]) -> str:
    heads = [heading for group in table.groups for heading in group.headings]
    places = [place for _, some in spans for place in some]
    values = [[row.values[place] for place in places] for row in rows]
    columns = [_format(table, column) for column in zip(*values)] if values else [""] * len(places)
    return "\n".join(
        [
            f"\\begin{{tabular}}{{{'l' * len(table.headings)}{''.join(column or 'r' for column in columns)}}}",
            "\\toprule",
            *_titles(table, spans),
            _row(table.headings, [f"{{{escape_latex(heads[place])}}}" for place in places]),
            "\\midrule",
            *(_row(row.names, [_value(table, *both) for both in zip(own, columns)]) for row, own in zip(rows, values)),
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def _format(table: Table, values: Sequence[Value]) -> str:
    """siunitx's column for these values, "" where none is a number."""
    numbers = [number for number in map(_number, values) if number]
    if not numbers:
        return ""
    whole, decimals, uncertainty, about = (max(map(len, parts)) for parts in zip(*numbers))
    room_of = [str(width or "") for width in (whole, decimals, uncertainty)]
    note = max(map(table.number, values))
    room = f"{{\\textsuperscript{{({note})}}}}" if note else ""
    return f"S[table-format={_source((*room_of, ABOUT if about else ''))}{room}]"


def _source(number: Sequence[str]) -> str:
    """A number of `_number`, or the room for one, as siunitx reads it: 12.3(4), or \\approx 12.3(4)."""
    whole, decimals, uncertainty, about = number
    point = f".{decimals}" if decimals else ""
    return f"{about}{whole}{point}" + (f"({uncertainty})" if uncertainty else "")


def _number(value: Value) -> tuple[str, str, str, str] | None:
    """The digits of a figure such as "12.3 ±0.4": before the point, after it, of the uncertainty; the sign of an estimate."""
    match = _NUMBER.fullmatch(clean(value.text))
    if not match:
        return None
    about, whole, decimals, arm, places = match.groups(default="")
    uncertainty = (arm + places).lstrip("0") or "0" if arm else ""
    return whole.replace(",", ""), decimals, uncertainty, ABOUT if about else ""


def _titles(table: Table, spans: Sequence[Span]) -> list[str]:
    """The line of the groups' titles, and the rules below them."""
    if not any(title for title, _ in spans):
        return []
    titles, rules, first = [], [], len(table.headings) + 1
    for title, places in spans:
        last = first + len(places) - 1
        titles.append(f"\\multicolumn{{{len(places)}}}{{c}}{{{escape_latex(title)}}}")
        rules.append(f"\\cmidrule(lr){{{first}-{last}}}" if title else "")
        first = last + 1
    return [_row([""] * len(table.headings), titles), "".join(rules)]


def _row(names: Iterable[object], fields: Iterable[str]) -> str:
    return " & ".join([*map(escape_latex, names), *fields]) + r" \\"


def _value(table: Table, value: Value, column: str) -> str:
    """A number as siunitx aligns it, anything else in braces, which it leaves alone."""
    note = f"\\textsuperscript{{({table.number(value)})}}" if value.note else ""
    weight = "\\bfseries " if value.best else ""
    number = _number(value)
    if column and number:
        return f"{weight}{_source(number)}{f' {{{note}}}' if note else ''}"
    return f"{{{weight}{escape_latex(value.text)}{note}}}"
