"""Ways to tamper with a submission: each takes a copy of an honest one."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile

import tomli_w

from framework_compare.archive import publish
from framework_compare.archive.documents import MANIFEST, PARITY, RECORDS, REQUEST, STUDY

SCRIPT = "</script><img src=x onerror=window.broken=1>"
BOMB = 10_000_000


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
