"""Tampered submissions whose records contradict each other, or what lies beside them: the tampering, and what is said of it.

Every figure is made again after it, as somebody with this package can.
"""

from __future__ import annotations

from published_study import PROVED
from tampering import again, allowing, column, manifest, of_machine, raw, recounted, request

from framework_compare.archive.documents import MANIFEST, PARITY, RECORDS, STUDY, digest


def table(name, edit):
    return again(lambda records: edit(records["tables"][name]))


def exchange_runs(one):
    one["run_id"] = [{1: 2, 2: 1}.get(run, run) for run in one["run_id"]]


def copy_a_block(records):
    """Block 3 becomes what block 2 measured, at its own time."""
    tables = records["tables"]
    run = tables["run"]
    at = {(cell, block): number for cell, block, number in zip(run["cell_id"], run["repeat"], run["run_id"])}
    for name in ("phase", "epoch", "slice"):
        rows = tables[name]
        places = {n: [p for p, run_id in enumerate(rows["run_id"]) if run_id == n] for n in run["run_id"]}
        for (cell, block), number in at.items():
            if block != 2:
                continue
            source, target = places[number], places[at[cell, 3]]
            later = rows["start_ns"][target[0]] - rows["start_ns"][source[0]]
            for place, into in zip(source, target):
                for one, values in rows.items():
                    moved = later if one in ("start_ns", "end_ns") else 0
                    values[into] = (
                        values[into] if one == "run_id" else values[place] + moved if moved else values[place]
                    )


def pair_other_blocks(run):
    places = [place for place, cell in enumerate(run["cell_id"]) if cell == run["cell_id"][0]]
    first, second = places[:2]
    run["repeat"][first], run["repeat"][second] = run["repeat"][second], run["repeat"][first]


def turn_rounds_round(rows):
    places = [place for place, run in enumerate(rows["run_id"]) if run == 1]
    for place, number in zip(places, [rows["round"][place] for place in places][::-1]):
        rows["round"][place] = number


def leave_rounds_out(rows):
    kept = [place for place, number in enumerate(rows["round"]) if number not in (3, 4)]
    rows.update({name: [values[place] for place in kept] for name, values in rows.items()})


def at_one_time(records):
    tables = records["tables"]
    begun = dict(zip(tables["phase"]["run_id"][::-1], tables["phase"]["start_ns"][::-1]))
    tables["run"]["started_at"][1] = tables["run"]["started_at"][0]
    for name in ("phase", "epoch", "slice"):
        rows = tables[name]
        for one in ("start_ns", "end_ns"):
            rows[one] = [v - begun[2] + begun[1] if run == 2 else v for run, v in zip(rows["run_id"], rows[one])]


def move(rows, columns, by, run=1):
    for name in columns:
        rows[name] = [value + by if one == run else value for one, value in zip(rows["run_id"], rows[name])]


def later(rows):
    move(rows, ("start_ns", "end_ns"), 10**10)


def halve(name):
    return lambda rows: rows.update({name: [value // 2 for value in rows[name]]})


def twice(rows):
    for values in rows.values():
        values.append(values[-1])


def quality(value, epoch=1):
    return again(
        lambda records: records["tables"].update(
            quality={"run_id": [1], "epoch": [epoch], "split": ["validation"], "name": ["accuracy"], "value": [value]}
        )
    )


def another_version(records):
    for facts in records["environments"].values():
        facts["version"] = "9.9.9"
    records["tables"]["run"]["framework_version"] = ["9.9.9"] * 6


def on_a_gpu(one):
    table("cell", lambda cell: cell.update(device=["cuda"] * 2))(one)
    one.write(PARITY, {})
    request(device="cuda")(one)


def named(name, old, new):
    return table("cell", lambda cell: cell.update({name: [value.replace(old, new) for value in cell[name]]}))


def on_a_node(change_tables):
    """All runs move to a node of a cluster, whose description is that of the machine."""

    def change_records(records):
        tables = records["tables"]
        tables["node"] = {"node_id": [1], "name": ["HOST"], "machine": [dict(records["machine"])]}
        tables["run"]["node_id"] = [1] * len(tables["run"]["run_id"])
        change_tables(tables)

    return change_records


def overlap(rows):
    rows["start_ns"] = [start - (number > 1) for start, number in zip(rows["start_ns"], rows["number"])]


def verdict_on_another_cell(one):
    one.write(PARITY, {**one.read(PARITY), "torch resnet50 cuda": PROVED})


def study_of_another(one):
    document = {**one.read(STUDY), "study": "torch-jax-alexnet-000000000000"}
    one.write(STUDY, document, sealed=False)
    manifest, content = one.read(MANIFEST), (one.folder / STUDY).read_bytes()
    manifest["files"][STUDY] = {"sha256": digest(content), "bytes": len(content)}
    one.write(MANIFEST, manifest, sealed=False)


def lock_named(name):
    return lambda one: one.write(f"locks/{name}.txt", (one.folder / "locks" / "torch.txt").read_text())


def without_lock(one):
    (one.folder / "locks" / "torch.txt").unlink()
    one.seal()


def linked_locks(one):
    target = (one.folder / "locks").rename(one.folder.parent.parent / "locks")
    (one.folder / "locks").symlink_to(target)


def in_capitals(one):
    one.folder = one.folder.rename(one.folder.with_name(one.folder.name.upper()))


CONTRADICTIONS = {
    # nodes of a cluster
    "a process of 10 TB on a node": (
        again(on_a_node(lambda tables: tables["run"].update(peak_rss_bytes=[10**13] * 6))),
        "peak_rss_bytes of table run is",
    ),
    "more CPU time than all cores of a node have": (
        again(on_a_node(lambda tables: tables["slice"].update(cpu_s=[100.0] * 60))),
        "s of CPU time in turns of",
    ),
    "a node without cores": (
        again(on_a_node(lambda tables: tables["node"]["machine"][0].pop("available_cores"))),
        "available_cores of the machine is 'None'",
    ),
    "a GPU that a node lacks": (
        allowing("unverified", lambda one: (on_a_gpu(one), again(on_a_node(lambda tables: None))(one))),
        "ran on cuda, but the machine has no GPU",
    ),
    # rounds
    "rounds of two cells exchanged": (table("slice", exchange_runs), "turns of"),
    "rounds in another order": (table("slice", turn_rounds_round), "not numbered from 0 in the order"),
    "rounds left out for all": (table("slice", leave_rounds_out), "not numbered from 0"),
    "rounds of another hour": (table("slice", later), "turns at the same|turns of 0"),
    "turns of rivals at one time": (again(at_one_time), "had turns at the same time"),
    "runs paired with another block": (table("run", pair_other_blocks), "took turns with runs of another block"),
    "a block copied": (again(copy_a_block), "the same lengths to the nanosecond"),
    # epochs, phases and readings
    "epochs at one time": (table("epoch", overlap), "two epochs of run 1 overlap"),
    "the first epoch left out": (
        table("epoch", lambda rows: rows.update(number=[number + 1 for number in rows["number"]])),
        "not numbered from 1",
    ),
    "disturbances without a reading": (
        again(lambda records: records["tables"].update(sample={})),
        "states its disturbances, but has no reading",
    ),
    "disturbances below zero": (recounted("epoch", "disturbed_share", -1.0), "disturbed_share of table epoch"),
    "fewer samples than batches hold": (table("epoch", lambda rows: rows.update(images=rows["steps"])), "only 10"),
    "steps of no time": (column("epoch", "step_s_median", 1e-12), "does not follow|do not fit"),
    "steps of no time, recomputed": (recounted("epoch", "step_s_median", 1e-12), "steps of run 1 do not fit"),
    "more waiting for data than time": (recounted("epoch", "data_wait_s", 1e4), "waited longer for data"),
    "runs shorter than their epochs": (recounted("run", "wall_s", 1e-3), "took 0.001 s, but its epochs"),
    "runs that crashed": (recounted("run", "exit_code", -11), "is ok, but ended with the code -11"),
    "a phase twice": (table("phase", twice), "has a phase twice"),
    "a peak below the readings": (table("run", halve("peak_rss_bytes")), "shows more memory than its peak"),
    "readings of another day": (table("sample", lambda rows: move(rows, ("t_ns",), 10**13)), "lies outside its phases"),
    "a hundred times all cores": (recounted("sample", "cpu_percent", 8e4), "% of a core"),
    "energy below zero": (recounted("energy", "energy_j", -1.0), "energy_j of table energy is -1"),
    "energy that falls": (table("energy", lambda rows: rows.update(energy_j=rows["energy_j"][::-1])), "energy of run"),
    "energy of a power station": (
        table("energy", lambda rows: rows.update(energy_j=[value * 1e9 for value in rows["energy_j"]])),
        "the energy of run",
    ),
    "an accuracy of 150 %": (quality(1.5), "accuracy of run 1 is 1.5"),
    "an accuracy below zero": (quality(-0.5), "accuracy of run 1 is -0.5"),
    "a metric of an epoch that never was": (quality(0.5, epoch=99), "a metric for epoch 99"),
    # machine, versions, data
    "a GPU that the machine lacks": (allowing("unverified", on_a_gpu), "ran on cuda, but the machine has no GPU"),
    "more cores than Linux runs on": (of_machine("available_cores", 10**5), "allowed: 8192"),
    "more memory than addresses": (of_machine("memory_bytes", 10**17), "memory_bytes of the machine"),
    "a version that no package has": (again(another_version), "has the version 9.9.9, but no package in it has"),
    "runs of a version that no environment has": (
        recounted("run", "framework_version", "9.9.9"),
        "has the version 9.9.9, but its environment has 2.13.0",
    ),
    "another build than the environment has": (
        recounted("run", "framework_version", "2.13.0+cu999"),
        "has the version 2.13.0\\+cu999, which no package of its environments has",
    ),
    "praise as a comment of the request": (
        lambda one: one.write("study.toml", "# torch wins\n" + (one.folder / "study.toml").read_text()),
        "has a comment",
    ),
    "a lock without the framework": (raw("locks/torch.txt", "numpy==2.4.6\n"), "pins no package of the version 2.13.0"),
    "a package twice in a lock": (raw("locks/torch.txt", "numpy==2.4.6\n" * 2), "has 'numpy' twice"),
    "another data set in the records": (named("dataset", "fire-smoke-small", "cifar10"), "asks for the data set"),
    "another data set in the request": (request(dataset=["PATH/other"]), "asks for the data set 'other'"),
    "fewer samples in the request": (request(limit=10), "asks for 10 samples, but an epoch has 100"),
    "shorter samples in the request": (request(sample="1s"), "asks for samples of 1 s"),
    "another rate of readings in the request": (request(sampling_hz=1), "asks for sampling_hz 1, but its records have"),
    "another version in the request": (request(frameworks=["torch@1.0", "jax"]), "asks for 'torch@1.0'"),
    "verdicts of another cell": (verdict_on_another_cell, "which is no cell of its records"),
    "the study of another submission": (study_of_another, "belongs to the study 'torch-jax-alexnet-000000000000'"),
    "published before it was measured": (manifest("published_at", to="2021-01-01T00:00:00+00:00"), "before its last"),
    "a date as a week": (manifest("published_at", to="2026-W48-4"), "not an ISO 8601 time"),
    "a start as a week": (recounted("run", "started_at", "2026-W01-1"), "is not an ISO 8601 time"),
    "fewer than no replacements": (manifest("replaced", to={"paths": -5}), "must be counts"),
    "praise among the replacements": (manifest("replaced", to={"replicated on 900 machines": 1}), "allowed: paths"),
    # names
    "a machine with a Cyrillic letter": (of_machine("cpu", "A proc\u0435ssor"), "another alphabet"),
    "a data set with a Cyrillic letter": (named("dataset", "smoke", "sm\u043eke"), "another alphabet"),
    "a machine in styled letters": (of_machine("cpu", "A\U0001d429rocessor"), "another alphabet"),
    "marks piled on a letter": (of_machine("cpu", "A" + "\u0301" * 300), "several marks on one letter"),
    "an address in the machine": (of_machine("cpu", "see https://evil.com/x"), "has the address"),
    "a person in the machine": (of_machine("cpu", "ask me@corp.com"), "has the address"),
    "an address as data set": (request(dataset=["https://evil.com/x.zip"]), "has the address"),
    # files
    "a second document behind the first": (
        lambda one: one.write(STUDY, (one.folder / STUDY).read_text() + "{}"),
        "Extra data",
    ),
    "records twice": (lambda one: one.write(RECORDS, (one.folder / RECORDS).read_text() * 2), "Extra data"),
    "a lock of no environment": (lock_named("mxnet"), "no lock of an environment"),
    "locks that differ in case": (lock_named("Torch"), "no lock of an environment"),
    "a lock missing": (without_lock, "locks/torch.txt is missing"),
    "a folder in place of a lock": (lambda one: (one.folder / "locks" / "a.txt").mkdir(), "manifest lists"),
    "a folder more": (lambda one: (one.folder / "more").mkdir(), "is not a file of a submission"),
    "locks as a link": (linked_locks, "is not a file of a submission"),
    "a file that takes its owner's rights": (lambda one: (one.folder / STUDY).chmod(0o4644), "is executable"),
    "a name with a line break": (raw("locks/a\nb.txt", "x"), "is not a file of a submission"),
    "a folder in capitals": (in_capitals, "is not the name of its folder"),
}
