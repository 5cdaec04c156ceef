"""Sphinx: the pages of this folder; those of the command line and of the API are made from the code; the notebook is executed."""

import importlib.metadata
import re
from pathlib import Path

import typer
from typer.cli import get_docs_for_click
from typer.core import MARKUP_MODE_KEY

from framework_compare.cli import root

project = "framework_compare"
release = importlib.metadata.version("framework-compare")
copyright = f"the authors of {project}, Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of one cell on a busy machine; the notebook reads a study and trains nothing
html_theme = "furo"
html_title = "framework-compare"
html_theme_options = {"top_of_page_buttons": []}  # the button for a page's source is outside all landmarks
exclude_patterns = ["records/fairness"]  # files that a command wrote; fairness-levels.md quotes them
suppress_warnings = ["toc.no_title"]  # records/h200/tables.md, as a command wrote it, begins with a table
myst_heading_anchors = 4  # pages link to headings, as GitHub names them
# `nox -s links` asks every site that a page links to. Sites that refuse robots (403, 429) cannot be judged by one.
linkcheck_timeout, linkcheck_retries, linkcheck_workers = 20, 3, 4
linkcheck_anchors = False  # pages that a script fills have none
linkcheck_allow_unauthorized = True
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100

# What axe-core misses in Furo's pages: levels of headings, names of landmarks, and the keyboard for what scrolls.
ACCESSIBLE = (
    ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
    ('<aside class="sidebar-drawer"', '<aside class="sidebar-drawer" aria-label="Site navigation"'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ("<th></th>", "<td></td>"),  # the corner of a data frame
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)
ARGUMENT = re.compile(r"([a-z_0-9]+(?:, [a-z_0-9]+)*): (?=\S)")


def write_commands(app) -> None:
    """The page of the command line, by typer's own generator, with the options that only `--help-all` shows."""
    page = Path(app.srcdir) / "generated" / "cli.md"
    page.parent.mkdir(exist_ok=True)
    command = typer.main.get_command(root.app)
    _unhide(command)
    context = typer.Context(command, obj={MARKUP_MODE_KEY: root.app.rich_markup_mode})
    text = get_docs_for_click(obj=command, ctx=context, name="framework-compare", title="Command line")
    page.write_text(re.sub(r"^(framework-compare .+)$", r"    \1", text, flags=re.MULTILINE), encoding="utf-8")


def _unhide(command) -> None:
    for one in command.params:
        one.hidden = False
    for inner in getattr(command, "commands", {}).values():
        inner.short_help = inner.help.partition("\n\n")[0]  # whole, where typer would cut it
        _unhide(inner)


def format_docstring(app, what, name, obj, options, lines) -> None:
    """Paragraphs stay; one whose lines begin with "name: " becomes a list of arguments. Indents mean nothing else."""
    blocks = "\n".join(lines).strip().split("\n\n")
    lines[:] = "\n\n".join(map(_block, blocks)).splitlines() + [""]


def _block(text: str) -> str:
    rows = text.splitlines()
    if not ARGUMENT.match(rows[0]) or not all(ARGUMENT.match(row) or row.startswith(" ") for row in rows):
        return "\n".join(row.strip() for row in rows)
    starts = [ARGUMENT.sub(r"* **\1**: ", row, count=1) if ARGUMENT.match(row) else f"  {row.strip()}" for row in rows]
    return "\n".join(starts)


def link_outside(app, name, source) -> None:
    """Pages outside this folder, such as CONTRIBUTING.md, are linked as files, as all other files outside it are."""
    folder = (Path(app.srcdir) / name).parent

    def as_file(found: re.Match) -> str:
        inside = (folder / found[1]).resolve().is_relative_to(Path(app.srcdir).resolve())
        return found[0] if inside else f"](path:{found[1]})"

    source[0] = re.sub(r"\]\(((?:\.\./)+[^)#\s]+\.md)(?:#[^)\s]*)?\)", as_file, source[0])


def name_pages(app, name, source) -> None:
    """A link whose text is the name of a file shows the title of that page or section."""
    source[0] = re.sub(r"\[[\w/-]*?([\w-]+\.md)\]\((?=[\w/.-]*\b\1[)#])", "[](", source[0])


def make_accessible(app, exception) -> None:
    """Add to each page what screen readers and keyboards need."""
    for page in Path(app.outdir).rglob("*.html") if app.builder.format == "html" and not exception else ():
        text = page.read_text(encoding="utf-8")
        for old, new in ACCESSIBLE:
            text = text.replace(old, new)
        page.write_text(re.sub(r"<dl>\n<dd>.*?</dl>", _plain_lines, text, flags=re.DOTALL), encoding="utf-8")


def _plain_lines(found: re.Match) -> str:
    """The arguments of a signature, which Sphinx writes as a list of definitions without terms."""
    text = found[0].replace("<dd>", '<div style="margin-left: 2em">').replace("</dd>", "</div>")
    return text.replace("<dl>", "<div>").replace("</dl>", "</div>")


def setup(app) -> None:
    app.connect("source-read", link_outside)
    app.connect("source-read", name_pages)  # of the links that are left
    app.connect("builder-inited", write_commands)
    app.connect("build-finished", make_accessible)
    app.connect("autodoc-process-docstring", format_docstring)
