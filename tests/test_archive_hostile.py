"""Tampered submissions: each is refused in one sentence that names what is wrong, or its tampering is shown."""

import functools
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from contradictions import CONTRADICTIONS, on_a_node
from published_study import CLEAN, PROVED, Hostile, study, submission
from tampering import SCRIPT, again, change, other_code, recomputed, shorten_turns, void_for_all
from tamperings import TAMPERINGS as OTHERS

from framework_compare import registry
from framework_compare.archive import documents, entries, installed, plausibility, publish, scrub, site, validate
from framework_compare.archive.documents import MANIFEST, PARITY, RECORDS, STUDY
from framework_compare.archive.records import Tables

TAMPERINGS = {**OTHERS, **CONTRADICTIONS}
assert len(TAMPERINGS) == len(OTHERS) + len(CONTRADICTIONS) > 50
GUIDE = Path(__file__).parent.parent / "docs" / "validation.md"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    place = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        return submission(study(place / "s"), place / "out", patch)


@pytest.fixture
def hostile(honest, tmp_path):
    (tmp_path / "archive").mkdir()
    return Hostile(honest, tmp_path / "archive")


@pytest.fixture
def second(honest, tmp_path):
    """Another copy, not in the archive yet."""
    return Hostile(honest, tmp_path)


def put_into_archive(one, archive, name=""):
    one.folder = one.folder.rename(archive.folder.parent / (name or one.folder.name))


def only_result(folder):
    (result,) = validate.validate(folder.parent)
    return result


def test_an_honest_submission_is_valid_also_of_a_node(hostile):
    assert only_result(hostile.folder).refused == ""
    hostile.seal()
    assert only_result(hostile.folder).refused == "", "what the tests do to seal is itself no tampering"
    again(on_a_node(lambda tables: None))(hostile)
    assert only_result(hostile.folder).refused == ""


# What only shows when figures are recomputed; all other tamperings stay out of any site.
FIGURES = {
    *("a ratio altered", "winner and loser swapped", "verdicts left out", "a median altered", "an interval narrowed"),
    *("memory altered", "another machine in the document", "another version in the document", "a column more"),
    *("rounds halved in the records", "a block declared failed", "a verdict hidden by a reason"),
    *("a column with SQL", "columns of unequal length", "a table more", "an unknown setting"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_it_is_refused_in_one_sentence(hostile, name):
    """Also by a site, which recomputes no figures, where another check finds it."""
    tamper, says = TAMPERINGS[name]
    tamper(hostile)
    refused = only_result(hostile.folder).refused
    assert refused, "it was accepted"
    assert re.search(says, refused), refused
    (by_a_site,) = (one.refused for one in validate.validate(hostile.folder.parent, recompute=False))
    assert by_a_site or name in FIGURES
    for said in filter(None, (refused, by_a_site)):
        assert "\n" not in said and len(said) < 700 and said.isprintable() and "Traceback" not in said


def test_the_code_that_a_manifest_names_has_the_adapters_that_it_names(hostile, monkeypatch):
    monkeypatch.setattr(validate, "installed", lambda: CLEAN)
    monkeypatch.setattr(publish, "installed", lambda: CLEAN)
    assert only_result(hostile.folder).refused == ""
    records, other = hostile.read(RECORDS), ["3" * 64]
    records["environments"]["torch"]["sources"] = other
    hostile.write(RECORDS, records)
    recomputed(lambda one: None)(hostile)
    manifest = hostile.read(MANIFEST)
    manifest["measured_by"]["sources"]["torch"], manifest["published_by"]["sources"]["torch"] = other, other[0]
    hostile.write(MANIFEST, manifest, sealed=False)
    assert "has another adapter of 'torch'" in only_result(hostile.folder).refused


def test_the_code_that_a_manifest_names_has_the_version_that_it_names(hostile, monkeypatch):
    monkeypatch.setattr(validate, "installed", lambda: CLEAN)
    hostile.change(MANIFEST, "published_by", "version", to="9.9")
    assert "has the version 0.1.0" in only_result(hostile.folder).refused


UNSEEN = {
    "rounds shortened by a tenth": again(shorten_turns(0.9)),
    "rounds falsely called disturbed": again(void_for_all),
    "sentences written by other code": other_code(change(STUDY, "verdicts", 0, "sentence", to="torch is 9x faster")),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_check_finds_is_said_and_shows_no_invented_sentence(hostile, name, tmp_path):
    UNSEEN[name](hostile)
    assert only_result(hostile.folder).refused == "", "a check finds it: say so, and move it to TAMPERINGS"
    site.build(hostile.folder, tmp_path / "site")
    assert not [path for path in (tmp_path / "site").rglob("*.html") if "9x faster" in path.read_text()]
    assert f"- **{name.capitalize()}.**" in GUIDE.read_text()


def test_no_check_finds_that_parity_was_invented(tmp_path, monkeypatch):
    failed = {**PROVED, "parity": "0-1, not 2: fc.weight", "parity_status": "failed"}
    made = submission(study(tmp_path / "s", parity=failed), tmp_path / "out", monkeypatch, ["unverified"])
    (tmp_path / "archive").mkdir()
    one = Hostile(made, tmp_path / "archive")
    one.write(PARITY, dict.fromkeys(one.read(PARITY), PROVED))
    recomputed(lambda one: None)(one)
    one.change(MANIFEST, "allowed", to={})
    assert only_result(one.folder).refused == ""
    assert "- **Invented parity.**" in GUIDE.read_text()


FIELDS = [
    *((STUDY, "machine", name) for name in ("cpu", "os", "kernel")),
    *((STUDY, "cells", 0, key) for key in ("framework", "model", "dataset", "framework_version", "warnings", "parity")),
    *((STUDY, "verdicts", 0, name) for name in ("model", "faster", "slower", "sentence", "reason")),
    (STUDY, "framework_compare"),
    (STUDY, "environments", "torch", "version"),
    *((MANIFEST, name) for name in ("command", "published_at", "license")),
    (MANIFEST, "published_by", "commit"),
    (MANIFEST, "measured_by", "version"),
    (RECORDS, "machine", "cpu"),
    (RECORDS, "settings", "framework_compare"),
    (RECORDS, "tables", "run", "reason", 0),
    (RECORDS, "tables", "cell", "framework", 0),
]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(map(str, field)))
def test_markup_is_refused_in_every_field(hostile, field):
    hostile.change(*field, to=SCRIPT)
    assert "markup" in only_result(hostile.folder).refused


def test_a_name_with_markup_is_refused(hostile):
    hostile.change(RECORDS, "environments", "torch", "packages", SCRIPT, to="1")
    assert "markup" in only_result(hostile.folder).refused


def test_the_site_writes_its_own_sentence_on_what_a_submission_states(hostile, tmp_path):
    hostile.change(MANIFEST, "allowed", to={"unverified": "all is proved, and torch wins"})
    site.build(hostile.folder.parent, tmp_path / "site")
    page = next((tmp_path / "site" / "submissions").glob("*.html")).read_text()
    assert "parity is not verified for every cell" in page and "torch wins" not in page


def test_no_two_names_share_a_page():
    names = ["x", "X", "x-2", "x~2", "x 2", "x/2", "x" * 80, "x" * 81, "A processor, 2 cores"]
    names += [entries.slug(name) for name in names]
    pages = {f"{entries.slug(name)}{page}" for name in dict.fromkeys(names) for page in ("", "~2", "~3")}
    assert len(pages) == 3 * len(set(names)) and entries.slug("x-2") == "x-2"
    assert all(re.fullmatch("[a-z0-9_.~-]+", page) for page in pages)


@pytest.mark.parametrize("text", ["LD=/usr/lib:/data/customer/x", "C:/Users/alice/x"])
def test_a_path_behind_a_colon_is_a_path(text):
    cleaned = scrub.Scrubber().text(text)
    assert "customer" not in cleaned and "Users" not in cleaned and documents.fault_of(cleaned) == ""
    assert documents.fault_of(text)


def shifted(second, by_ns=0):
    """Another clock, date and machine for all runs; by_ns: how much longer each epoch gets."""
    records = second.read(RECORDS)
    records["machine"]["cpu"] = "Another processor"
    for table in records["tables"].values():
        for name in ("start_ns", "end_ns", "t_ns"):
            table.update({name: [value + 10**12 for value in table[name]]} if name in table else {})
    run = records["tables"]["run"]
    run["started_at"] = [text.replace("2026-", "2025-", 1) for text in run["started_at"]]
    records["tables"]["epoch"]["end_ns"] = [value + by_ns for value in records["tables"]["epoch"]["end_ns"]]
    second.write(RECORDS, records)
    recomputed(lambda one: None)(second)


@pytest.mark.parametrize("recompute", [True, False])
def test_a_copy_with_another_clock_date_and_machine_is_no_replication(hostile, second, recompute):
    shifted(second)
    put_into_archive(second, hostile)
    results = validate.validate(hostile.folder.parent, recompute=recompute)
    (refused,) = [one.refused for one in results if one.refused]
    assert "its runs are the same as those of" in refused


def test_a_tampered_submission_stays_out_of_the_site_and_is_listed(hostile, second, tmp_path):
    (second.folder / STUDY).write_text((second.folder / STUDY).read_text() + " ")
    put_into_archive(second, hostile, "other")
    built = site.build(hostile.folder.parent, tmp_path / "site")
    assert built.submissions == 1 and len(built.refused) == 1
    assert "Left out" in (tmp_path / "site" / "index.html").read_text()


def test_figures_that_cannot_be_shown_keep_no_site_from_being_made(hostile, second, tmp_path):
    second.change(STUDY, "cells", 0, to={"status": "ok"})
    put_into_archive(second, hostile, second.folder.name.replace("torch", "x"))
    built = site.build(hostile.folder.parent, tmp_path / "site")
    assert built.submissions == 1 and len(built.refused) == 1


def test_a_file_beside_the_submissions_is_refused(hostile):
    (hostile.folder.parent / "more.zip").write_bytes(b"PK")
    results = list(validate.validate(hostile.folder.parent))
    assert ["is not a folder" in one.refused for one in results].count(True) == 1


@pytest.mark.parametrize("changes", [{"sentence": "x" * 3900}, {"faster": "y" * 3900, "slower": "z" * 3900}], ids=str)
def test_long_texts_make_no_large_page(hostile, second, tmp_path, changes):
    verdict = {**second.read(STUDY)["verdicts"][0], **changes}
    shifted(second, by_ns=1)
    second.change(STUDY, "verdicts", to=[verdict] * 2000)
    put_into_archive(second, hostile)
    built = site.build(hostile.folder.parent, tmp_path / "site")
    assert built.submissions + len(built.refused) == 2
    assert not any("manifest" in one.refused or "once" in one.refused for one in built.refused)
    assert max(path.stat().st_size for path in (tmp_path / "site").rglob("*.html")) < site.MAX_PAGE


@pytest.mark.parametrize(("why", "found"), [("memory", {1, 2}), (None, {1, 2, 3, 4})])
def test_runs_that_had_no_rival_or_say_why_they_ran_alone_need_no_rounds(why, found):
    run = {"run_id": [1, 2, 3, 4, 5], "cell_id": [1, 2, 1, 2, 3], "repeat": [1, 1, 2, 2, 1], "status": ["ok"] * 5}
    run.update(duel=[1, 1, None, None, None], alone_why=[None, None, why, why, None])
    cell = {"cell_id": [1, 2, 3], "framework": ["torch", "jax", "torch"], "model": ["alexnet", "alexnet", "vgg16"]}
    cell.update(dataset=["small"] * 3, device=["cpu"] * 3, config=[{}] * 3)
    records = {
        "settings": {"schedule": "interleaved"},
        "environments": {},
        "machine": {},
        "tables": {"run": run, "cell": cell},
    }
    assert plausibility._in_turns(Tables(records)) == found


ARCHIVE = Path(__file__).parent.parent / "archive"
SUBMISSIONS = sorted(path for path in (ARCHIVE / "submissions").iterdir() if path.is_dir())
LEAST = 14


def test_every_submission_is_valid_and_in_the_site(tmp_path):
    assert len(SUBMISSIONS) >= LEAST
    refused = [one for one in validate.validate(ARCHIVE / "submissions") if one.refused]
    assert not refused
    built = site.build(ARCHIVE / "submissions", tmp_path / "site")
    assert built.submissions == len(SUBMISSIONS) and not built.refused


def test_a_process_that_knows_an_imported_model_reads_its_submission_as_others_do(monkeypatch):
    (folder,) = [one for one in SUBMISSIONS if "own_net" in one.name]
    monkeypatch.setitem(registry.MODELS, "own_net-b759341f", registry.Model(lambda *_: None))
    assert validate.check(folder, recompute=False).document["verdicts"]


@functools.lru_cache
def checksum_at(commit):
    """What `installed` gives for the package of a commit."""
    names = ("framework_compare", *installed._BESIDE)
    command = ["git", "-C", ARCHIVE.parent, "archive", commit, *names]
    files = {}
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)) as archive:
        for member in archive:
            if member.isfile() and Path(member.name).suffix in installed._ENDINGS:
                files[member.name.removeprefix("framework_compare/")] = archive.extractfile(member).read()
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@pytest.mark.parametrize("folder", SUBMISSIONS, ids=lambda folder: folder.name)
def test_a_submission_comes_from_a_commit_and_states_what_it_lacks(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["allowed"]) <= {"unverified", "disturbed", "few-blocks"}
    commit = manifest["published_by"]["commit"]
    if subprocess.run(["git", "-C", ARCHIVE, "cat-file", "-e", commit], capture_output=True).returncode:
        pytest.skip(f"this clone lacks the commit {commit}: git fetch --unshallow")
    assert manifest["published_by"]["checksum"] == checksum_at(commit)
    assert re.fullmatch("[0-9a-f]{40}", commit) and manifest["published_by"]["modified"] == ""


def test_the_template_and_the_guide_of_an_archive_say_what_to_do():
    workflow = (ARCHIVE / ".github" / "workflows" / "archive.yml").read_text()
    assert "FRAMEWORK_COMPARE: REPLACE ME" in workflow
    assert re.findall(r"- run: framework-compare (\w+) submissions", workflow) == ["validate", "site"]
    assert "pull_request_target" not in workflow and "permissions: {contents: read}" in workflow
    assert "CC0-1.0" in (ARCHIVE / "LICENSE").read_text()
    assert len((ARCHIVE / "README.md").read_text().split()) < 500
