"""Sphinx: the pages of this folder; those of the command line and of the API are made from the code; the notebook is executed."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

project = "framework_compare"
release = importlib.metadata.version("framework-compare")
copyright = f"the authors of {project}, Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120  # seconds of one cell; the notebook reads a study and trains nothing
html_theme = "furo"
html_title = "framework-compare"
exclude_patterns = ["records/fairness"]  # files that a command wrote; fairness-levels.md quotes them
# records/h200/tables.md, as a command wrote it, begins with a table. Links to files outside this folder lead nowhere on the
# site and somewhere in the repository: tests/test_docs.py follows every link.
suppress_warnings = ["toc.no_title", "myst.xref_missing"]
myst_heading_anchors = 4  # pages link to headings, as GitHub names them
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100

ARGUMENT = re.compile(r"([a-z_0-9]+(?:, [a-z_0-9]+)*): (?=\S)")


def write_commands(app) -> None:
    """The page of the command line, by typer's own generator."""
    page = Path(app.srcdir) / "generated" / "cli.md"
    page.parent.mkdir(exist_ok=True)
    typer = [sys.executable, "-m", "typer", "framework_compare.cli.root", "utils", "docs"]
    names = ["--name", "framework-compare", "--title", "Command line", "--output", str(page)]
    subprocess.run([*typer, *names], check=True, capture_output=True)
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"^(framework-compare .+)$", r"    \1", text, flags=re.MULTILINE), encoding="utf-8")


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


def setup(app) -> None:
    app.connect("builder-inited", write_commands)
    app.connect("autodoc-process-docstring", format_docstring)
