"""The archive of this repository: its submissions are valid, its template is whole."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from framework_compare import registry
from framework_compare.archive import installed, site, validate

ARCHIVE = Path(__file__).parent.parent / "archive"
SUBMISSIONS = sorted(path for path in (ARCHIVE / "submissions").iterdir() if path.is_dir())
LEAST = 14


def test_there_are_submissions_to_start_with():
    assert len(SUBMISSIONS) >= LEAST


def test_every_submission_is_valid():
    refused = [one for one in validate.validate(ARCHIVE / "submissions") if one.refused]
    assert not refused


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
    if subprocess.run(
        ["git", "-C", ARCHIVE, "cat-file", "-e", f"{commit}^{{commit}}"], stderr=subprocess.DEVNULL
    ).returncode:
        pytest.skip(f"this clone lacks the commit {commit}: git fetch --unshallow")
    assert manifest["published_by"]["checksum"] == checksum_at(commit)
    assert (
        re.fullmatch("[0-9a-f]{40}", manifest["published_by"]["commit"]) and manifest["published_by"]["modified"] == ""
    )


def test_the_site_of_the_archive_is_built(tmp_path):
    built = site.build(ARCHIVE / "submissions", tmp_path / "site")
    assert built.submissions == len(SUBMISSIONS) and not built.refused


def test_the_template_says_what_to_replace_and_runs_commands_that_exist():
    workflow = (ARCHIVE / ".github" / "workflows" / "archive.yml").read_text()
    assert "FRAMEWORK_COMPARE: REPLACE ME" in workflow
    assert re.findall(r"- run: framework-compare (\w+) submissions", workflow) == ["validate", "site"]
    assert "pull_request_target" not in workflow and "permissions: {contents: read}" in workflow
    assert "CC0-1.0" in (ARCHIVE / "LICENSE").read_text()


def test_the_guide_is_one_page():
    assert len((ARCHIVE / "README.md").read_text().split()) < 500
