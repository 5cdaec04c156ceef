"""`framework-compare publish`, `validate`, `site` and `cite`: studies for others, and the archive that they make."""

from __future__ import annotations

import json as json_files
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framework_compare.cli import console
from framework_compare.cli.report import STUDY
from framework_compare.errors import UsageError
from framework_compare.study.progress import one_line

if TYPE_CHECKING:
    from framework_compare.archive.publish import Submission
    from framework_compare.archive.validate import Checked

ARCHIVE = typer.Argument(help="A submission, or a folder of submissions.")
MAX_SHOWN = 40  # replaced texts of one kind


def publish(
    study: Annotated[str, STUDY] = "latest",
    out: Annotated[
        Path, typer.Option(help="Folder of submissions, created if missing. The submission is a folder in it.")
    ] = Path("submissions"),
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Publish despite this condition, which the manifest will state: unverified, few-blocks, disturbed, "
            "modified. Repeatable."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")] = False,
) -> None:
    """Write a study as a submission to an archive: figures, stored rounds, request, lock files, parity, machine, checksums.

    Paths, user names and host names are replaced; what was replaced is shown before anything is written.
    """
    from framework_compare.archive.publish import prepare
    from framework_compare.archive.validate import check
    from framework_compare.study import names

    made = prepare(names.find(study), allow or ())
    with tempfile.TemporaryDirectory(prefix="framework-compare-") as place:
        check(made.write(Path(place)), recompute=False)  # what an archive would refuse helps nobody
    _show(made)
    if dry_run:
        return
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("there is no terminal to ask for confirmation; check with --dry-run, then give --yes")
        typer.confirm("Write this?", abort=True, err=True)
    print(made.write(out))


def _show(made: Submission) -> None:
    """Show what would become public: what was replaced, the machine, the files."""
    lines = []
    for kind, counts in made.replaced.items():
        lines.append(f"{kind} replaced:")
        lines += [f"  {what} ({count} time{'s' * (count != 1)})" for what, count in list(counts.items())[:MAX_SHOWN]]
        lines += [f"  and {len(counts) - MAX_SHOWN} more"] * (len(counts) > MAX_SHOWN)
    lines += [] if made.replaced else ["No path, user name, host name or address was found."]
    lines += [f"stated: {sentence}" for sentence in made.manifest["allowed"].values()]
    sizes = (f"  {name}, {len(content):,} bytes" for name, content in sorted(made.files.items()))
    lines += [f"license: {made.manifest['license']}", f"folder: {made.name}", *sizes]
    print("\n".join(map(one_line, lines)), file=sys.stderr)


def validate(
    archive: Annotated[Path, ARCHIVE],
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Check submissions: files, checksums, parity levels, figures recomputed from the stored rounds, plausibility.

    Nothing in a submission is executed. Exit code 0 if all are valid, 1 if one is refused, 2 for wrong input.
    """
    from framework_compare.archive.validate import validate as check

    results = []
    for one in check(archive):
        results.append(one)
        if not json:
            outcome = _facts(one.checked) if one.checked else one.refused
            print(one_line(f"{'valid' if one.checked else 'refused'} {one.folder.name}: {outcome}"))
    refused = sum(bool(one.refused) for one in results)
    if json:
        rows = [{"submission": one.folder.name, "refused": one.refused or None} for one in results]
        print(json_files.dumps(rows, indent=1))
    else:
        print(f"{len(results) - refused} of {len(results)} valid")
    if refused:
        raise typer.Exit(1)


def _facts(checked: Checked) -> str:
    allowed = ", ".join(checked.manifest["allowed"])
    count = f"{len(checked.document['cells'])} cells, {len(checked.document['verdicts'])} verdicts recomputed"
    return f"{count}; states {allowed}" if allowed else count


def site(
    archive: Annotated[Path, ARCHIVE],
    out: Annotated[Path, typer.Option(help="Folder of the site: new, empty, or a site to be replaced.")] = Path("site"),
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute", help="Leave out submissions whose figures differ from those of their stored rounds."
        ),
    ] = False,
) -> None:
    """Write a static site of an archive: by model, framework, machine, version and month, with a JSON file for every page.

    It works offline and sends no request to any other host. Submissions that `validate` refuses are left out, and the
    first page lists them; only --recompute detects altered figures.
    """
    from framework_compare.archive.site import build

    built = build(archive, out, recompute=recompute)
    for one in built.refused:
        print(one_line(f"left out {one.folder.name}: {one.refused}"), file=sys.stderr)
    print(f"{out / 'index.html'}: {built.submissions} submissions, {built.pages} pages")


def cite(
    study: Annotated[str, STUDY] = "latest",
    style: Annotated[str, typer.Option(help="Style of the paragraph: text, latex.")] = "text",
) -> None:
    """Print BibTeX and a paragraph on methods for a paper: machine, versions, design, intervals, results."""
    from framework_compare.archive.cite import cite as text

    with console.reading(study) as result:
        print(text(result, style), end="")
