"""Is a submission what it says? Its files, checksums, figures recomputed from the stored rounds, and plausibility.

Nothing of a submission is executed, and nothing but its own files is opened.
"""

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from framework_compare.archive import conditions, documents, plausibility, publish, repeating
from framework_compare.archive.documents import MANIFEST, PARITY, RECORDS, STUDY, Refused, shown
from framework_compare.archive.installed import installed
from framework_compare.archive.records import Tables, restore
from framework_compare.archive.scrub import KINDS
from framework_compare.comparison import Comparison
from framework_compare.errors import FrameworkCompareError, UsageError
from framework_compare.json_types import JSON
from framework_compare.protocol import Document
from framework_compare.results.parity import FAILED, PASSED, PROVED, VERDICT_COLUMNS, verdict_key
from framework_compare.store.study_file import REQUEST

_KEEP = 1e-6  # by which figures of another processor's arithmetic may differ
# Sentences of the code: other code has other words. The site writes its own.
_PROSE = {"warnings", "sentence", "reason", "labels", "metrics"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_SHA = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TEXTS = ("id", "published_at", "license", "command")
_FIELDS = {"schema_version", *_TEXTS, "measured_by", "published_by", "allowed", "replaced", "files"}
_BY = {"version": str, "commit": (str, type(None)), "checksum": str, "modified": str, "sources": dict}


class Checked(NamedTuple):
    """A submission whose files are what its manifest lists; `run_ids`: what tells its runs from those of others."""

    folder: Path
    manifest: Document
    document: Document
    run_ids: frozenset[tuple[object, ...]] = frozenset()


class Result(NamedTuple):
    """Outcome for a submission: refused is one sentence, "" where it is valid."""

    folder: Path
    refused: str = ""
    checked: Checked | None = None


def submissions(archive: Path) -> list[Path]:
    """The folders of an archive, or the one submission that a folder is; UsageError where there is none."""
    if not archive.is_dir():
        raise UsageError(f"{archive} is not a folder; allowed: a submission, or a folder of submissions")
    if (archive / MANIFEST).exists():
        return [archive]
    found = [path for path in sorted(archive.iterdir()) if path.name != ".gitkeep"]
    if not found:
        raise UsageError(
            f"{archive} contains no submission; `framework-compare publish STUDY --out {archive}` adds one"
        )
    return found


def validate(archive: Path, *, recompute: bool = True) -> Iterator[Result]:
    """Check every submission of a folder, in order; duplicates are refused with the name of the one before.

    recompute: as `check` has it.
    """
    ids: dict[str, str] = {}
    runs: dict[tuple[object, ...], str] = {}
    for folder in submissions(archive):
        try:
            checked = check(folder, recompute=recompute)
            name = str(checked.manifest["id"])
            if name in ids:
                raise Refused(f"it has the same id, {name}, as {ids[name]}; remove one")
            if twin := next((runs[one] for one in checked.run_ids if one in runs), ""):
                raise Refused(f"its runs are the same as those of {twin}; remove one")
        except (FrameworkCompareError, OSError) as error:
            yield Result(folder, " ".join(str(error).split()))
            continue
        ids[name] = folder.name
        runs.update(dict.fromkeys(checked.run_ids, folder.name))
        yield Result(folder, "", checked)


def check(folder: Path, *, recompute: bool = True) -> Checked:
    """A submission in which nothing is wrong; Refused for any other.

    recompute: also make every figure again from the stored rounds, which takes most of the time; else figures are taken as
    they are.
    """
    manifest, contents = _files(folder)
    document, records, parity = (documents.parse(name, contents[name]) for name in (STUDY, RECORDS, PARITY))
    slug, _, ending = manifest["id"].rpartition("-")
    if not manifest["files"][RECORDS]["sha256"].startswith(ending) or len(ending) != publish.ID_DIGITS:
        raise Refused(f"the id {manifest['id']} does not end in the checksum of {RECORDS}")
    for name, one in ((STUDY, document), (RECORDS, records)):
        if not isinstance(one, dict):
            raise Refused(f"{name} is not an object")
    if document.get("study") != manifest["id"]:
        raise Refused(f"{STUDY} belongs to the study {shown(document.get('study'))}, not to {manifest['id']}")
    parity, figures = _parity(parity), document
    try:
        if recompute:
            figures = publish.figures(records, parity, manifest["id"])
            if difference := next(_differences(document, figures, "", _same_code(manifest)), ""):
                raise Refused(f"{STUDY} does not follow from its stored rounds: {difference}")
        study = Tables(records)
        found = {
            **conditions.of_figures(figures, study.column("run", "status")),
            **conditions.of_code(manifest["measured_by"], manifest["published_by"]),
        }
        for word in sorted(set(found) - set(manifest["allowed"])):  # which would have stopped `publish`
            raise Refused(f"{found[word]}, but its manifest does not say so ({word})")
        _check_belonging(manifest, parity, study)
        _check_code(manifest, records)
        for fault in plausibility.faults(study, figures, datetime.datetime.now(datetime.timezone.utc)):
            raise Refused(f"it is not plausible: {fault}")
        repeating.check(manifest, contents, study)
        compared = publish.slug_of(*([cell[of] for cell in figures["cells"]] for of in ("framework", "model")))
        if slug != compared:
            raise Refused(f"the id {manifest['id']} does not begin with what it compares, {compared}")
        return Checked(folder, manifest, document, frozenset(_run_ids(study)))
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FrameworkCompareError):
            raise
        raise Refused(f"no figures can be read from its files: {type(error).__name__} {shown(str(error))}") from None


def load_submission(submission: str | Path, folder: str | Path) -> Comparison:
    """Check a published submission and return its study, written into a new folder that every command can read.

    Raise a FrameworkCompareError if anything in the submission is wrong, as `framework-compare validate` does.
    """
    contents = _files(check(Path(submission)).folder)[1]
    tables, parity = (documents.parse(name, contents[name]) for name in (RECORDS, PARITY))
    if documents.REQUEST in contents:  # so that the study can be repeated and published again
        request = repeating.parsed(documents.text(documents.REQUEST, contents[documents.REQUEST]))
        tables = {**tables, "settings": {**tables["settings"], REQUEST: request}}
    return Comparison(restore(tables, _parity(parity), Path(folder)))


def _files(folder: Path) -> tuple[Document, Mapping[str, bytes]]:
    """The manifest, and the content of each file that it lists."""
    names = documents.names_in(folder)
    manifest = documents.parse(MANIFEST, documents.read(folder, MANIFEST))
    _check_manifest(manifest, folder.name)
    if sorted([MANIFEST, *manifest["files"]]) != names:
        raise Refused(
            f"its files are {', '.join(names)}, but its manifest lists {', '.join(sorted(manifest['files']))}"
        )
    contents = {name: documents.read(folder, name) for name in manifest["files"]}
    for name, content in contents.items():
        noted = manifest["files"][name]
        if documents.digest(content) != noted["sha256"] or len(content) != noted["bytes"]:
            raise Refused(f"{name} is not the file that the manifest lists: its checksum differs")
    return manifest, contents


def _check_belonging(manifest: Document, parity: Document, study: Tables) -> None:
    """Verdicts on parity belong to cells of the study, and nothing was published before it was measured."""
    rows = ({**study.configs[number].to_dict(), **cell} for number, cell in study.cells.items())
    strange = set(parity) - set(map(verdict_key, rows))
    if strange:
        raise Refused(f"{PARITY} has a verdict on {shown(min(strange))}, which is no cell of its records")
    starts = filter(None, map(plausibility.time_of, filter(None, study.column("run", "started_at"))))
    ahead = datetime.timedelta(seconds=plausibility.AHEAD_S)
    published = plausibility.time_of(manifest["published_at"])
    if published is None or max(starts, default=published) > published + ahead:
        raise Refused(f"{MANIFEST} says that it was published on {published}, before its last run")


def _same_code(manifest: Document) -> bool:
    return bool(manifest["published_by"]["checksum"] == installed().checksum)


def _check_code(manifest: Document, records: Document) -> None:
    """The manifest names the code that the records name, and no other adapters than that code has."""
    if manifest["measured_by"] != publish.measured_by(records):
        raise Refused("its manifest and its records name different versions or different code")
    if not _same_code(manifest):
        return
    if manifest["published_by"]["version"] != installed().version:
        raise Refused(f"the code that its manifest names has the version {installed().version}")
    stated = manifest["published_by"]["sources"]
    for label, checksum in publish.published_by(records)["sources"].items():
        if checksum not in (publish.NOT_KNOWN, stated.get(label)):
            raise Refused(f"the code that its manifest names has another adapter of {shown(label)}")


def _run_ids(study: Tables) -> Iterator[tuple[object, ...]]:
    """Yield what tells each run from all others: when it began, and how long its epochs lasted, in nanoseconds.

    The second finds a run whose clock or date was changed.
    """
    phases, epochs = study.by_run("phase"), study.by_run("epoch")
    for number, run in study.runs.items():
        if number in phases:
            yield run["started_at"], phases[number][-1]["start_ns"]
        if number in epochs:
            yield "lengths", hash(tuple(row["end_ns"] - row["start_ns"] for row in epochs[number]))


def _check_manifest(manifest: JSON, folder: str) -> None:
    if not isinstance(manifest, dict) or set(manifest) != _FIELDS:
        raise Refused(f"{MANIFEST} must have exactly {', '.join(sorted(_FIELDS))}")
    if manifest["schema_version"] != publish.VERSION or type(manifest["schema_version"]) is not int:
        raise Refused(f"{MANIFEST} has schema_version {shown(manifest['schema_version'])}; allowed: {publish.VERSION}")
    for name in _TEXTS:
        if not isinstance(manifest[name], str):
            raise Refused(f"{name} of {MANIFEST} is not text")
    if not _NAME.fullmatch(manifest["id"]) or manifest["id"] != folder:
        raise Refused(f"the id {shown(manifest['id'])} is not the name of its folder, {shown(folder)}")
    if manifest["license"] != publish.LICENCE:
        raise Refused(f"its license is {shown(manifest['license'])}; allowed: {publish.LICENCE}")
    for by, names in (("measured_by", ("version", "sources")), ("published_by", tuple(_BY))):
        part = manifest[by]
        if not isinstance(part, dict) or set(part) != {*names} or not all(isinstance(part[n], _BY[n]) for n in names):  # type: ignore[arg-type]
            raise Refused(f"{by} of {MANIFEST} must have {', '.join(names)}")
    code = manifest["published_by"]
    if not _SHA.fullmatch(code["checksum"]) or not _COMMIT.fullmatch(code["commit"] or "0" * 40):
        raise Refused(f"published_by of {MANIFEST} must have the SHA-256 of the code, and a full commit or null")
    latest = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=plausibility.AHEAD_S)
    published = plausibility.time_of(manifest["published_at"])
    if published is None or not plausibility.FIRST <= published <= latest:
        raise Refused(
            f"published_at of {MANIFEST} is {shown(manifest['published_at'])}, not an ISO 8601 time up to now"
        )
    replaced = manifest["replaced"]
    if not isinstance(replaced, dict) or not all(type(n) is int and n > 0 for n in replaced.values()):
        raise Refused(f"replaced of {MANIFEST} must be counts by kind")
    if not set(replaced) <= set(KINDS):
        raise Refused(
            f"replaced of {MANIFEST} has {shown(min(set(replaced) - set(KINDS)))}; allowed: {', '.join(KINDS)}"
        )
    allowed, files = manifest["allowed"], manifest["files"]
    texts = isinstance(allowed, dict) and {*map(type, allowed.values())} <= {str}
    if not texts or not set(allowed) <= set(conditions.ALLOWED):
        raise Refused(f"allowed of {MANIFEST} may have {', '.join(conditions.ALLOWED)}, each with a sentence")
    whole = isinstance(files, dict) and {STUDY, RECORDS, PARITY} <= set(files)
    if not whole or not all(map(_is_entry, files.values())):
        raise Refused(f"files of {MANIFEST} must have the sha256 and the bytes of each file, {STUDY} among them")


def _is_entry(entry: JSON) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"sha256", "bytes"}:
        return False
    return isinstance(entry["sha256"], str) and bool(_SHA.fullmatch(entry["sha256"])) and type(entry["bytes"]) is int


def _parity(known: JSON) -> Document:
    """Verdicts on parity whose text and status say the same."""
    if not isinstance(known, dict):
        raise Refused(f"{PARITY} is not an object")
    for key, verdict in known.items():
        if (
            not isinstance(verdict, dict)
            or set(verdict) != set(VERDICT_COLUMNS)
            or not isinstance(verdict["parity"], str)
        ):
            raise Refused(f"the verdict {shown(key)} of {PARITY} is not a verdict")
        text, status = verdict["parity"], verdict["parity_status"]
        fails = text == FAILED or ", not " in text.replace(", not asked", "")
        if (text in PROVED and status != PASSED) or (status == FAILED) != fails:
            raise Refused(
                f"the verdict {shown(key)} of {PARITY} has the levels {shown(text)} and the status {shown(status)}"
            )
    return known


def _differences(published: JSON, made: JSON, where: str, same_code: bool) -> Iterator[str]:
    """Yield each figure that is not what the stored rounds give."""
    if isinstance(made, dict) and isinstance(published, dict):
        unknown, lacking = set(published) - set(made), set(made) - set(published)
        if unknown:
            yield f"{shown(min(unknown))} of {where or 'the document'} is unknown"
        if lacking and (same_code or len(lacking) == len(made)):  # other code may have figures that it had not
            yield f"{shown(min(lacking))} of {where or 'the document'} is missing"
        # Whether there is a reason at all decides what is shown.
        if bool(published.get("reason")) != bool(made.get("reason")):
            yield f"{where}.reason is {shown(published.get('reason'))} instead of {shown(made.get('reason'))}"
        for name in sorted((set(published) & set(made)) - (set() if same_code else _PROSE)):
            yield from _differences(published[name], made[name], f"{where}.{name}".lstrip("."), same_code)
    elif isinstance(made, list) and isinstance(published, list):
        if len(made) != len(published):
            yield f"{where} has {len(published)} entries instead of {len(made)}"
        for number, (one, other) in enumerate(zip(published, made)):
            yield from _differences(one, other, f"{where}[{number}]", same_code)
    else:
        numbers = {type(published), type(made)} <= {int, float}
        same = math.isclose(published, made, rel_tol=_KEEP, abs_tol=1e-12) if numbers else published == made
        if not same or not (numbers or type(published) is type(made)):
            yield f"{where} is {shown(published)} instead of {shown(made)}"
