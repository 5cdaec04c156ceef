"""A study as a submission: one folder of plain files that holds its figures and all that is needed to recompute them."""

import dataclasses
import datetime
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from framework_compare import registry
from framework_compare.archive import conditions, documents, records, repeating
from framework_compare.archive.installed import installed
from framework_compare.archive.scrub import HOSTS, USERS, Scrubber, names_in
from framework_compare.comparison import Comparison
from framework_compare.environments import venvs
from framework_compare.errors import FrameworkCompareError, StudyError, UsageError, check_name
from framework_compare.launch import staging
from framework_compare.protocol import Document, Fields
from framework_compare.report import json_document
from framework_compare.report.page import report
from framework_compare.results.parity import read_verdicts
from framework_compare.store import schema
from framework_compare.store.study_file import REQUEST, Store

VERSION = 1  # of the manifest
LICENCE = "CC0-1.0"
NOT_KNOWN = "unknown"
ID_DIGITS = 12  # of the checksum that an id ends in


@dataclasses.dataclass(frozen=True)
class Submission:
    """A study ready to be written: its files by name, the manifest, and by kind what was replaced in it."""

    manifest: Document
    files: Mapping[str, bytes]
    replaced: Mapping[str, Mapping[str, int]]

    @property
    def name(self) -> str:
        return str(self.manifest["id"])

    def write(self, out: Path) -> Path:
        """Write the folder of the submission into `out`, which is made if absent; StudyError where it is there already."""
        folder = out.absolute() / self.name
        with schema.study_errors(folder):
            out.mkdir(parents=True, exist_ok=True)
            if folder.exists():
                raise StudyError(f"{folder} already exists: this study is published")
            # Under another name until it is whole.
            with tempfile.TemporaryDirectory(prefix=".half-", dir=out) as half:
                for name, content in self.files.items():
                    path = Path(half) / self.name / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                    path.chmod(0o644)
                (Path(half) / self.name).rename(folder)
        return folder


def prepare(folder: Path, allow: Iterable[str] = ()) -> Submission:
    """The submission of a study; StudyError where it may not be published, unless `allow` names the condition."""
    allow = list(allow)
    for word in allow:
        check_name("condition to allow", word, conditions.ALLOWED)
    comparison = Comparison.load(folder)
    with Store.open(folder) as store:
        nodes = [node["name"] for node in store.nodes().values()]
    raw = records.of_study(folder)
    request = comparison.settings.get(REQUEST)
    named = [raw, request, comparison.settings.get("python")]
    scrub = Scrubber([*nodes, *names_in(named, HOSTS)], names_in(named, USERS))
    parity = scrub.document(read_verdicts(folder))
    cleaned = scrub.document(raw)
    files = {
        documents.RECORDS: documents.packed(cleaned),
        documents.PARITY: documents.written(parity),
        **_request(comparison, scrub),
        **_locks(comparison, scrub),
    }
    slug = slug_of(comparison.frame["framework"], comparison.frame["model"])
    name = identity_of(slug, files[documents.RECORDS])
    document = figures(cleaned, parity, name)
    found = {
        **conditions.of_figures(document, records.Tables(cleaned).column("run", "status")),
        **conditions.of_code(measured := measured_by(raw), published := published_by(raw)),
    }
    for word, sentence in found.items():
        if word not in allow:
            raise StudyError(f"{sentence}; to publish it anyway, with a note in the manifest: --allow {word}")
    files[documents.STUDY] = documents.written(document)
    manifest = {
        "schema_version": VERSION,
        "id": name,
        "published_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "license": LICENCE,
        "measured_by": measured,
        "published_by": published,
        "allowed": scrub.document(found),
        "replaced": {kind: sum(counts.values()) for kind, counts in scrub.replaced.items()},
        "command": repeating.FROM_REQUEST if documents.REQUEST in files else scrub.text(report.command(comparison)),
        "files": {
            file: {"sha256": documents.digest(content), "bytes": len(content)}
            for file, content in sorted(files.items())
        },
    }
    files[documents.MANIFEST] = documents.written(manifest)
    for file, content in files.items():
        if len(content) > documents.MAX_BYTES.get(file, documents.MAX_LOCK_BYTES):
            raise StudyError(
                f"{file} would have {len(content)} bytes, more than an archive accepts; sample less often (--sampling-hz)"
            )
    return Submission(manifest, files, scrub.replaced)


def figures(cleaned: Document, parity: Document, name: str) -> Fields:
    """The study document that these records and verdicts on parity give, under the name of the submission."""
    with tempfile.TemporaryDirectory(prefix="framework-compare-") as place:
        study = Comparison(records.restore(cleaned, parity, Path(place) / "study"))
        document = json_document.document(study)
        if study.damage:
            raise documents.Refused(f"records.json is damaged: {len(study.damage)} tables have invalid rows")
    return {**document, "study": name}


def identity_of(slug: str, content: bytes) -> str:
    """The name of a submission: what it compares, and a checksum of its records."""
    return f"{slug}-{documents.digest(content)[:ID_DIGITS]}"


def slug_of(frameworks: Iterable[str], models: Iterable[str]) -> str:
    """Return what a study compares, as the beginning of an id: its frameworks and its first two models."""
    words = [*dict.fromkeys(frameworks), *list(dict.fromkeys(models))[:2]]
    return re.sub(r"[^a-z0-9_]+", "-", "-".join(map(str, words)).lower()).strip("-")[:60].strip("-") or "study"


def _request(comparison: Comparison, scrub: Scrubber) -> dict[str, bytes]:
    """The request as TOML; nothing of a study that keeps none."""
    import tomli_w

    request = comparison.settings.get(REQUEST)
    if not isinstance(request, dict):
        return {}
    private = {name: value for name, value in request.items() if name not in repeating.PRIVATE}
    return {documents.REQUEST: tomli_w.dumps(scrub.document(private)).encode("utf-8")}


def _locks(comparison: Comparison, scrub: Scrubber) -> dict[str, bytes]:
    """A lock file per environment: the pins with checksums that it was made from, else the versions in it."""
    locks = {}
    for label, facts in comparison.environments.items():
        framework, packages = label.partition(" ")[0], facts.get("packages") or {}
        devices = comparison.frame.loc[comparison.frame["framework"] == framework, "device"]
        text = _pins(framework, devices.iloc[0] if len(devices) else "cpu", packages)
        text = text or "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))
        if text:  # nothing is known of the packages of some interpreters of users
            locks[repeating.lock_name(scrub.text(label))] = text.encode("utf-8")
    return locks


def _pins(framework: str, device: str, packages: Mapping[str, str]) -> str:
    """The requirements of a framework with their checksums, "" where the environment has other versions."""
    try:
        spec = registry.framework(framework)
        lines = venvs.requirement_lines(venvs.requirements_path(spec, registry.device_kind(device)))
    except (FrameworkCompareError, OSError):
        return ""
    pins = [line.split()[0].partition("==") for line in lines]
    same = all(packages.get(venvs.normal_name(name)) == version for name, _, version in pins)
    return "".join(f"{line}\n" for line in lines) if lines and same and packages else ""


def measured_by(raw: Document) -> Fields:
    """Version of the package, and by environment the checksums of the code that workers ran, as its records say."""
    sources = {name: list(facts.get("sources") or []) for name, facts in raw["environments"].items()}
    return {"version": str(raw["settings"].get("framework_compare") or NOT_KNOWN), "sources": sources}


def published_by(raw: Document) -> Fields:
    """The installed package, and the checksums of what its workers would run."""
    sources = {}
    for label in raw["environments"]:
        try:
            sources[label] = staging.checksum(registry.framework(label.partition(" ")[0]))
        except UsageError:  # of a plug-in that is not installed here
            sources[label] = NOT_KNOWN
    return {**dataclasses.asdict(installed()), "sources": sources}
