"""Ways to tamper with a submission: each takes a copy of an honest one."""

from __future__ import annotations

import functools
import gzip
import io
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


manifest, study, tables = (functools.partial(change, name) for name in (MANIFEST, STUDY, RECORDS))


def of_file(name, old, new, sealed=True):
    """Replace text in a file, and seal unless it is the manifest."""

    def tamper(one):
        text = (one.folder / name).read_text()
        assert old in text
        one.write(name, text.replace(old, new, 1), sealed=sealed and name != MANIFEST)

    return tamper


def edited(name):
    """Make a function that changes a document in place a tampering with that file of a submission."""

    def tampering(edit):
        def tamper(one):
            document = one.read(name)
            edit(document)
            one.write(name, document)

        return tamper

    return tampering


on_records, on_study, on_parity = map(edited, (RECORDS, STUDY, PARITY))


def again(edit):
    """Change the records, and make every figure and interval again, as somebody with this package can."""
    return recomputed(on_records(edit))


def recomputed(tamper):
    """Tamper, and make every figure and interval again."""

    def whole(one):
        tamper(one)
        one.write(STUDY, publish.figures(one.read(RECORDS), one.read(PARITY), one.read(MANIFEST)["id"]))

    return whole


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


def of_machine(name, value):
    def tamper(one):
        for file in (RECORDS, STUDY):
            document = one.read(file)
            document["machine"][name] = value
            one.write(file, document)

    return tamper


@on_records
def drop_slow_block(records):
    records["tables"]["run"]["status"][0] = "failed"


@on_study
def swap_winner(document):
    verdict = document["verdicts"][0]
    verdict["faster"], verdict["slower"] = verdict["slower"], verdict["faster"]


@on_parity
def claim_parity(parity):
    for verdict in parity.values():
        verdict.update(parity="0-5", parity_status="failed")


def hide_unverified(one):
    @on_study
    def deny(document):
        for cell in document["cells"]:
            cell.update(parity=None, parity_status=None)
        for verdict in document["verdicts"]:
            verdict["verified"] = False
            verdict["sentence"] += " (not verified)"

    one.write(PARITY, {})
    deny(one)


def shift(table, column, by, run=None):
    @on_records
    def tamper(records):
        columns = records["tables"][table]
        runs = columns["run_id"]
        columns[column] = [v + by if run in (None, n) else v for n, v in zip(runs, columns[column])]

    return tamper


def column(table, name, value):
    @on_records
    def tamper(records):
        columns = records["tables"][table]
        columns[name] = [value] * len(next(iter(columns.values())))

    return tamper


def recounted(table, name, value):
    """A column of one value, and every figure made again."""
    return recomputed(column(table, name, value))


def deep(one):
    one.write(STUDY, '{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}")


def nested(levels):
    return [nested(levels - 1)] if levels > 1 else []


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


def of_command(words):
    """A submission without a request, whose manifest has a command to run alone."""

    def tamper(one):
        (one.folder / REQUEST).unlink()
        one.seal()
        one.change(MANIFEST, "command", to=f"framework-compare run {words}")

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
        "other programs took CPU time" if run == 1 and n == 3 else ""
        for run, n in zip(slices["run_id"], slices["round"])
    ]


def void_for_all(records):
    slices = records["tables"]["slice"]
    slices["void"] = ["other programs took CPU time" if number == 3 else "" for number in slices["round"]]


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
