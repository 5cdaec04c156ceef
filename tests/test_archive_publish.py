"""`publish`: what a submission holds, what is replaced in it, what is refused; `cite`: a study for a paper."""

import getpass
import json
import platform
import re
import subprocess

import jsonschema
import pytest
from command_line import run
from published_study import CLEAN, PROVED, study, submission

from framework_compare import Comparison
from framework_compare.archive import conditions, documents, installed, publish, scrub, validate
from framework_compare.errors import StudyError, UsageError
from framework_compare.records import Run
from framework_compare.report import json_document
from framework_compare.store.study_file import REQUEST, Store


@pytest.fixture
def clean(monkeypatch):
    monkeypatch.setattr(publish, "installed", lambda: CLEAN)


def test_a_submission_holds_what_recomputes_its_figures(tmp_path, monkeypatch):
    folder = submission(study(tmp_path / "s"), tmp_path / "out", monkeypatch)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    expected = ["locks/jax.txt", "locks/torch.txt", *sorted([*documents.MAX_BYTES])]
    assert names == sorted(expected)
    document = json.loads((folder / "study.json").read_text())
    jsonschema.Draft202012Validator(json_document.schema()).validate(document)
    stored = json.loads(Comparison.load(tmp_path / "s").to_json())
    assert document["cells"] == stored["cells"] and document["verdicts"] == stored["verdicts"]
    assert document["study"] == folder.name
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["published_by"]["commit"] == CLEAN.commit and manifest["allowed"] == {}
    assert manifest["license"] == "CC0-1.0" and manifest["command"] == "framework-compare run --from study.toml"
    (result,) = validate.validate(folder)
    assert result.refused == ""


def test_the_same_study_has_one_name_and_two_versions_of_a_framework_are_published(tmp_path, clean):
    folder = study(tmp_path / "s")
    first, again = publish.prepare(folder), publish.prepare(folder)
    assert first.name == again.name
    first.write(tmp_path / "out")
    with pytest.raises(StudyError, match="is published"):
        again.write(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [first.name]
    folder = study(tmp_path / "two-s", ("jax@0.9.2", "jax"))
    (result,) = validate.validate(publish.prepare(folder).write(tmp_path / "two-out"))
    assert result.refused == ""
    assert {cell["framework"] for cell in result.checked.document["cells"]} == {"jax@0.9.2", "jax"}


REFUSALS = {
    "unverified": {"parity": None},
    "few-blocks": {"repeats": 2},
    "disturbed": {"disturbed": True},
    "modified": {"sources": lambda name: ["0" * 64]},
}


@pytest.mark.parametrize("word", REFUSALS)
def test_a_condition_is_refused_unless_it_is_allowed_and_stated(tmp_path, clean, word):
    folder = study(tmp_path / "s", **REFUSALS[word])
    with pytest.raises(StudyError, match=f"--allow {word}"):
        publish.prepare(folder)
    made = publish.prepare(folder, [word])
    assert list(made.manifest["allowed"]) == [word]
    (result,) = validate.validate(made.write(tmp_path / "out"))
    assert result.refused == ""


@pytest.mark.parametrize(
    ("changes", "word", "says"),
    [
        ({"sampled": False}, "disturbed", "was not sampled"),
        ({"sources": lambda name: []}, "modified", "no known versions of the code"),
        ({"sources": lambda name: ["0" * 64, "1" * 64]}, "modified", "2 versions of the code"),
        ({"parity": {**PROVED, "parity": "0-1, not 2: fc.weight", "parity_status": "failed"}}, "unverified", "not 2"),
    ],
)
def test_a_refusal_says_why(tmp_path, clean, changes, word, says):
    with pytest.raises(StudyError, match=says):
        publish.prepare(study(tmp_path / "s", **changes), [one for one in conditions.ALLOWED if one != word])


def test_a_study_without_figures_or_with_runs_to_come_is_not_published(tmp_path, clean):
    folder = study(tmp_path / "s")
    with Store.open(folder, readonly=False) as store:
        store.record(1, Run("interrupted"))
    with pytest.raises(StudyError, match="runs left: 1"):
        publish.prepare(folder, conditions.ALLOWED)
    with Store.open(folder, readonly=False) as store:
        for run_id in range(1, 7):
            store.record(run_id, Run("failed", "no memory"))
    with pytest.raises(StudyError, match="nothing to publish"):
        publish.prepare(folder, conditions.ALLOWED)
    folder = study(tmp_path / "repeated")
    with Store.open(folder, readonly=False) as store:
        store._connection.execute("INSERT INTO run (cell_id, repeat, retry_of, status) VALUES (1, 4, 1, 'interrupted')")
    assert (Comparison.load(folder).frame["status"] == "ok").all()
    with pytest.raises(StudyError, match="runs left: 1"):
        publish.prepare(folder, conditions.ALLOWED)


SECRETS = ("/home/alice/secret images", "alice", "login07", "10.1.2.3", "alice@example.org", "git.intern", "/scratch")


def test_paths_users_hosts_and_addresses_are_replaced_and_listed(tmp_path, clean, monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "login07.cluster.example")
    request = {"frameworks": ["torch", "jax"], "models": ["alexnet"], "dataset": ["/home/alice/secret images"]}
    folder = study(tmp_path / "s", request=request)
    warning = (
        "login07: /scratch/tmp/x.bin is slow <b>; ask alice@example.org or https://git.intern/wiki, 10.1.2.3 for ALICE"
    )
    with Store.open(folder, readonly=False) as store:
        (first, *_) = [row[0] for row in store.select("SELECT run_id FROM run")]
        store.select("SELECT 1")
        store._connection.execute("UPDATE run SET warnings = ? WHERE run_id = ?", (json.dumps([warning]), first))
        store._connection.execute("UPDATE run SET log_tail = '/home/alice/x', log_path = 'logs/alice' WHERE run_id = 2")
    made = publish.prepare(folder)
    whole = b"\n".join(made.files.values()).decode()
    assert not [secret for secret in SECRETS if secret in whole]
    assert "PATH/secret images" in made.files["study.toml"].decode()
    assert "HOST: PATH/x.bin is slow \u2039b\u203a; ask EMAIL or URL, ADDRESS for USER" in whole
    assert {"paths", "user names", "host names", "addresses"} == set(made.replaced)
    assert "/home/alice/secret images → PATH/secret images" in made.replaced["paths"]
    (result,) = validate.validate(made.write(tmp_path / "out"))
    assert result.refused == ""


def test_secrets_are_replaced_and_nothing_else():
    for text in (
        "images/s",
        "a / b",
        "2.13.0+cpu",
        "https://pypi.org/simple",
        "0-3, 5",
        "1/s",
        "torch alexnet",
        "n/a",
        *("jax@0.9.2", "torch~=2.0", "encoder.layers.0.weight", "own_net.py:build", "c10::add", "12:30:00"),
        *("about ~3 s", "see https://github.com/pytorch/pytorch/issues/1 and pypi.org", "Linux 6.1.0-18-cloud-amd64"),
    ):
        made = scrub.Scrubber(hosts=["torch", "node"], users=["jax", "root"])
        assert made.text(text) == text and not made.replaced
    for text in (
        *(r"\\fileserver\alice\x", r"\\fileserver\my share\x", "//nas/alice/x", "~alice/x", "see ~alice"),
        *("fe80::1ff:fe23:4567:890a", "at [2001:db8:85a3::8a2e:370:7334]:80", "alice@node17", "on node17.acme.corp"),
        *("login1.hpc.uni-bonn.de is down", "USER=alice; alice ran it", "HOSTNAME=node17, node17", r"C:\Users\alice\x"),
        *("https://github.com/x/y?token=alice", "/etc/passwd", "~/x", r"C:\Users\me\x", "see (/a b/c)", "at '/opt/x'"),
        "file:///home/me",
    ):
        made = scrub.Scrubber(scrub.names_in([text], scrub.HOSTS), scrub.names_in([text], scrub.USERS))
        cleaned = made.text(text)
        assert not re.search("alice|fileserver|nas|my share|node17|acme|bonn|[0-9a-f]{4}:", cleaned), cleaned
        assert made.replaced and documents.fault_of(cleaned) == ""


def test_what_a_machine_calls_itself_is_replaced_and_versions_stay(monkeypatch):
    made = scrub.Scrubber().document({"packages": {"nvidia-curand": "10.3.9.90"}, "at": "10.3.9.90"})
    assert made == {"packages": {"nvidia-curand": "10.3.9.90"}, "at": "ADDRESS"}
    monkeypatch.setattr(platform, "node", lambda: "bench-box.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "grace")
    assert scrub.Scrubber().text("Grace ran it on bench-box") == "USER ran it on HOST"


def git(folder, *words):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True)


def test_the_code_is_known_by_its_checksum_and_its_changes(tmp_path, monkeypatch):
    names = set(installed._files())
    assert {"__init__.py", "adapters/torch/trainer.py", "models/alexnet.py", "cli/root.py"} <= names
    assert not [name for name in names if "__pycache__" in name]
    package = tmp_path / "framework_compare"
    (tmp_path / "adapters").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "datasets").mkdir()
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(installed, "_files", lambda: {path.name: path for path in package.iterdir()})
    fresh = installed.installed.__wrapped__
    assert "neither a git checkout nor an installed release" in fresh().modified or fresh().modified
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    clean = fresh()
    assert clean.modified == "" and len(clean.commit) == 40
    (package / "__init__.py").write_text("x = 2\n")
    changed = fresh()
    assert "1 files differ" in changed.modified and changed.checksum != clean.checksum


def test_the_command_shows_what_is_replaced_and_asks(tmp_path, clean):
    folder = study(tmp_path / "s", request={"dataset": ["/data/x"]})
    shown = run("publish", folder, "--out", tmp_path / "out", "--dry-run").stderr
    assert "/data/x → PATH/x (1 time)" in shown and "records.json" in shown and not (tmp_path / "out").exists()
    assert "give --yes" in run("publish", folder, "--out", tmp_path / "out", check=2).stderr
    written = run("publish", folder, "--out", tmp_path / "out", "--yes").stdout.strip()
    assert run("validate", written).stdout.splitlines()[-1] == "1 of 1 valid"
    assert json.loads(run("validate", tmp_path / "out", "--json").stdout)[0]["refused"] is None


def test_a_study_is_cited_with_machine_versions_design_and_intervals(tmp_path):
    text = run("cite", study(tmp_path / "s")).stdout
    assert text.count("@") == 2 and text.count("{") == text.count("}")
    for part in (
        "author = {{framework\\_compare contributors}}",
        "A processor, 8 cores, 32 GB memory",
        "training time of AlexNet",
        "title = {{Training times of AlexNet in PyTorch and JAX}}",
        "in PyTorch 2.13.0 and JAX 2.13.0 with",
        "ran 3 times, each time in a new process, in blocks of random order; the workers",
        "verified against a float64 reference",
        "95 % confidence intervals",
        "AlexNet: PyTorch is 1.",
    ):
        assert part in text, part
    escaped = run("cite", tmp_path / "s", "--style", "latex").stdout
    assert "95 \\% confidence" in escaped and "95 % confidence" not in escaped and escaped.startswith(text[:40])
    assert "allowed: text, latex" in run("cite", tmp_path / "s", "--style", "word", check=2).stderr
    assert "Settings: CPU, batch 16, image size 224" in text
    poor = run("cite", study(tmp_path / "poor", parity=None, repeats=2)).stdout
    assert "0 of 2 implementations were verified" in poor and "torch alexnet on cpu has 2 blocks of runs.\n" in poor
    of_text = run("cite", study(tmp_path / "text", model="gpt_nano")).stdout
    assert "Settings: CPU, batch" in of_text and "image size" not in of_text


def test_a_submission_is_read_like_a_study_and_published_again_under_its_id(tmp_path, monkeypatch):
    made = submission(study(tmp_path / "s"), tmp_path / "out", monkeypatch)
    loaded = validate.load_submission(made, tmp_path / "loaded")
    assert loaded.settings[REQUEST]["frameworks"] == ["torch", "jax"] and "repeats = 3" in loaded.to_toml()
    again = submission(tmp_path / "loaded", tmp_path / "again", monkeypatch)
    assert again.name == made.name and (again / "study.toml").read_text() == (made / "study.toml").read_text()
    assert "Epoch time in seconds" in run("show", made, "--table", "time").stdout
    run("figure", "F1", made, "--out", tmp_path / "overview.svg")
    assert (tmp_path / "overview.svg").read_text().startswith("<svg")
    assert "it is a published submission" in run("resume", made, check=2).stderr
    (made / "study.json").write_text("{}")
    assert "its checksum differs" in run("show", made, check=2).stderr


def test_what_validate_site_and_publish_need(tmp_path, clean):
    (tmp_path / "empty").mkdir()
    assert "contains no submission" in run("validate", tmp_path / "empty", check=2).stderr
    assert "is not a folder" in run("site", tmp_path / "none", check=2).stderr
    with pytest.raises(UsageError, match="unverified, few-blocks, disturbed, modified"):
        publish.prepare(study(tmp_path / "s"), ["unverifed"])
