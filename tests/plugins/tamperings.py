"""Tampered submissions by what was done to them: the tampering, and what its refusal says."""

from __future__ import annotations

import tampering as by

from framework_compare.archive.documents import MANIFEST, PARITY, RECORDS, REQUEST, STUDY

TAMPERINGS = {
    # files
    "a link to a file of the host": (by.link, "links are not allowed"),
    "a hard link": (by.hard_link, "is a link"),
    "a pipe that would wait for ever": (by.fifo, "not a plain file"),
    "a link in place of the folder": (by.linked_folder, "neither an archive file nor a link"),
    "a zip bomb beside the files": (by.zip_file, "is not a file of a submission"),
    "a zip bomb in place of a file": (by.gzip_records, "not UTF-8"),
    "a tar file with a path outside": (by.tar_file, "is not a file of a submission"),
    "an executable file": (by.executable, "is executable"),
    "a script": (by.raw("run.py", "import os"), "is not a file of a submission"),
    "a pickle": (by.raw("weights.pkl", "x"), "is not a file of a submission"),
    "a hidden file": (by.raw(".bashrc", "x"), "is not a file of a submission"),
    "a lock that leaves the folder": (by.raw("locks/..txt", "x==1"), "is not a file of a submission"),
    "a script among the locks": (by.raw("locks/setup.py", "x"), "is not a file of a submission"),
    "a file that is missing": (lambda one: (one.folder / PARITY).unlink(), "manifest lists"),
    "a file that is not listed": (lambda one: one.write("locks/more.txt", "", sealed=False), "manifest lists"),
    "a request of 10 MB": (by.raw(REQUEST, "x = 1\n" * (by.BOMB // 6)), "bytes; allowed: 65536"),
    # checksums and ids
    "a figure altered": (
        by.of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": 0.', sealed=False),
        "checksum differs",
    ),
    "a checksum that is not text": (by.change(MANIFEST, "files", STUDY, "sha256", to=5), "sha256"),
    "a path of the manifest outside": (
        by.change(MANIFEST, "files", "../../etc/passwd", to={"sha256": "0" * 64, "bytes": 1}),
        "manifest lists",
    ),
    "another id than the folder": (
        by.change(MANIFEST, "id", to="torch-jax-000000000000"),
        "is not the name of its folder",
    ),
    "an id with a path": (by.change(MANIFEST, "id", to="../x"), "path|is not the name"),
    "a field more in the manifest": (by.change(MANIFEST, "admin", to=True), "must have exactly"),
    "another licence": (by.change(MANIFEST, "license", to="all rights reserved"), "license"),
    "a newer schema": (by.change(MANIFEST, "schema_version", to=2), "schema_version"),
    "a schema that is true": (by.change(MANIFEST, "schema_version", to=True), "schema_version"),
    "a command with another behind it": (
        by.change(MANIFEST, "command", to="framework-compare run torch alexnet; curl x | sh"),
        "its command",
    ),
    "another command": (by.change(MANIFEST, "command", to="curl x"), "its command"),
    "markup in the manifest": (by.change(MANIFEST, "published_at", to=by.SCRIPT), "markup"),
    # figures, sealed as an attacker would
    "a ratio altered": (
        by.on_study(lambda made: made["verdicts"][0].update(ratio=3.0, low=2.5, high=3.5)),
        "does not follow from its stored rounds: verdicts",
    ),
    "winner and loser swapped": (by.swap_winner, "does not follow from its stored rounds"),
    "verdicts left out": (by.change(STUDY, "verdicts", to=[]), "has 0 entries instead of 1"),
    "a median altered": (by.change(STUDY, "cells", 0, "epoch_s_median", to=0.5), "epoch_s_median is 0.5"),
    "an interval narrowed": (by.change(STUDY, "cells", 0, "epoch_s_ci_high", to=1.0), "epoch_s_ci_high"),
    "memory altered": (by.change(STUDY, "cells", 0, "peak_rss_bytes", to=1), "peak_rss_bytes"),
    "another machine in the document": (by.change(STUDY, "machine", "cpu", to="Apple M9"), "machine.cpu"),
    "another version in the document": (
        by.change(STUDY, "cells", 0, "framework_version", to="9.9"),
        "framework_version",
    ),
    "a column more": (by.change(STUDY, "cells", 0, "score", to=100), "'score' of cells"),
    "rounds halved in the records": (by.on_records(by.shorten_turns(0.5)), "does not follow from its stored rounds"),
    "a block declared failed": (by.drop_slow_block, "does not follow from its stored rounds"),
    "parity claimed against its status": (by.claim_parity, "levels '0-5' and the status 'failed'"),
    "parity removed and not stated": (by.hide_unverified, "does not say so"),
    "disturbances in the records alone": (by.column("epoch", "disturbed", 1), "0 disturbed epochs, but 3 are marked"),
    # records
    "a table more": (by.change(RECORDS, "tables", "sqlite_master", to={"x": [1]}), "has a table"),
    "a column with SQL": (by.change(RECORDS, "tables", "run", "x); DROP TABLE run; --", to=[1] * 6), "has a column"),
    "columns of unequal length": (by.change(RECORDS, "tables", "run", "wall_s", to=[1.0]), "differ in length"),
    "text in place of a time": (by.column("epoch", "start_ns", "now"), "unsound rows|is damaged"),
    "rounds of no run": (by.shift("slice", "run_id", 1000), "belongs to no run|contains no study|holds no study"),
    "an unknown setting": (by.change(RECORDS, "tables", "cell", "config", 0, to={"x": 1}), "is damaged|unsound|differ"),
    "records that are a list": (by.raw(RECORDS, "[]"), "is not an object"),
    "settings that are text": (by.change(RECORDS, "settings", to="x"), "must have settings"),
    # plausibility
    "runs of the future": (by.column("run", "started_at", "2100-01-01T00:00:00+00:00"), "started_at|in the future"),
    "an epoch outside its run": (by.shift("epoch", "start_ns", -(10**15), run=1), "3 unsound rows: its start_ns is -"),
    "rounds longer than their turn": (by.shift("slice", "measured_s", 100.0), "does not follow|not plausible"),
    "a machine without cores": (
        lambda one: by.of_machine(one, "available_cores", None),
        "available_cores of the machine",
    ),
    "cores as text": (lambda one: by.of_machine(one, "available_cores", "8"), "available_cores of its machine is '8'"),
    "memory as text": (lambda one: by.of_machine(one, "memory_bytes", "much"), "memory_bytes of its machine is 'much'"),
    "more memory than the machine has": (by.column("phase", "pss_bytes", 10**14), "does not follow|not plausible"),
    # by somebody who has this package and recomputes every figure
    "frameworks swapped": (by.again(by.swap_labels), "has the version .* which belongs to"),
    "a block left out": (by.again(by.leave_block_out), "blocks 1, 2, 4"),
    "disturbances let pass": (
        by.recomputed(by.change(RECORDS, "settings", "disturbance_threshold", to=2.0)),
        "threshold is 2 cores; usual: 0.4",
    ),
    "more CPU time than all cores have": (
        by.recomputed(by.column("slice", "cpu_s", 100.0)),
        "s of CPU time in turns of",
    ),
    "other code in the manifest than in the records": (by.name_other_code, "different versions or different code"),
    "a verdict hidden by a reason": (
        by.other_code(by.change(STUDY, "verdicts", 0, "reason", to="too few runs")),
        "reason is 'too few runs' instead of ''",
    ),
    "a request for another framework": (
        by.raw(REQUEST, 'frameworks = ["mxnet", "jax"]\nmodels = ["alexnet"]\n'),
        "does not ask for 'torch'",
    ),
    # JSON
    "NaN": (by.of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": NaN, "x": 1.'), "NaN"),
    "infinity": (by.of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": -Infinity, "x": 1.'), "Infinity"),
    "a float without end": (by.of_file(STUDY, '"epoch_s_median": 1.', '"epoch_s_median": 1e999, "x": 1.'), "any float"),
    "a huge whole number": (by.of_file(STUDY, '"runs_ok": 3', '"runs_ok": 3' + "0" * 5000), "5001 digits"),
    "a name twice": (by.of_file(STUDY, '"schema_version"', '"labels": [], "schema_version"'), "occurs twice"),
    "a name twice in the manifest": (by.of_file(MANIFEST, '"license"', '"license": "mine", "license"'), "occurs twice"),
    "deep nesting": (by.deep, "nested"),
    "rather deep nesting": (by.change(STUDY, "machine", "x", to=by.nested(20)), "nested"),
    "UTF-16": (by.encoded("utf-16"), "not UTF-8"),
    "a byte order mark": (by.encoded("utf-8-sig"), "not JSON"),
    "half of a file": (lambda one: one.write_bytes(STUDY, (one.folder / STUDY).read_bytes()[:500]), "not JSON"),
    "an empty file": (by.raw(PARITY, ""), "not JSON"),
    "a string of 10 MB": (by.change(STUDY, "machine", "cpu", to="x" * by.BOMB), "allowed"),
    "a string of 1 MB": (by.change(STUDY, "machine", "cpu", to="x" * 1_000_000), "characters; allowed"),
    "a name of 1 MB": (by.change(STUDY, "machine", "x" * 1_000_000, to=1), "characters; allowed"),
    "text turned round": (by.change(STUDY, "machine", "cpu", to="abc\u202ecba"), r"U\+202E"),
    "a terminal code": (by.change(STUDY, "machine", "cpu", to="\x1b[2Jx"), r"U\+001B"),
    "half a surrogate pair": (by.change(STUDY, "machine", "cpu", to="\ud800"), r"U\+D800"),
    "a path of a user": (by.change(STUDY, "machine", "cpu", to="see /home/alice/x"), "names the path"),
    # by.request and locks
    "a request that is not TOML": (by.raw(REQUEST, "frameworks = ["), "not TOML"),
    "an interpreter in the request": (
        by.raw(REQUEST, 'frameworks = ["torch"]\nmodels = ["alexnet"]\npython = {torch = "evil"}\n'),
        "neither interpreters",
    ),
    "an index in the request": (
        by.raw(REQUEST, 'frameworks = ["torch"]\nmodels = ["alexnet"]\n[index]\ntorch = "https://evil"\n'),
        "has the address 'https://evil'",
    ),
    "an index in a lock": (by.lock("--extra-index-url https://evil/simple\n"), "has the address"),
    "a package from elsewhere in a lock": (by.lock("torch @ https://evil/x.whl\n"), "has the address"),
    "an unpinned package in a lock": (by.lock("torch>=2\n"), "markup|allowed: NAME==VERSION"),
    "another version in a lock": (by.lock("torch==0.1\n"), "other versions"),
    "a package more in a lock": (by.lock("torch==2.13.0+cpu\nevil==1.0\n"), "pins other packages"),
    "an empty lock": (by.lock(""), "pins other packages"),
    "a checksum of another file in a lock": (
        by.lock(f"torch==2.13.0+cpu --hash=sha256:{'0' * 64}\nnumpy==2.4.6\n"),
        "has a checksum of 'torch' 2.13.0\\+cpu that no file of that release has",
    ),
    "an index in the command": (
        by.of_command("framework-compare run torch,jax alexnet --index torch=https://evil/simple"),
        "has the address",
    ),
    "a folder in place of an index in the command": (
        by.of_command("framework-compare run torch,jax alexnet --index torch=evil"),
        "neither interpreters",
    ),
    "an interpreter in the command": (
        by.of_command("framework-compare run torch,jax alexnet --python torch=evil"),
        "neither interpreters",
    ),
    "a command beside the request": (
        by.change(MANIFEST, "command", to="framework-compare run torch,jax alexnet"),
        "allowed beside study.toml",
    ),
    "a command that is no shell's": (by.of_command("framework-compare run 'torch"), "its command is"),
    "a command of other frameworks": (
        by.of_command("framework-compare run --frameworks tensorflow,mxnet --models alexnet"),
        "its command does not ask for 'jax'",
    ),
    "a command of more frameworks": (
        by.of_command("framework-compare run torch,jax,mxnet alexnet"),
        "asks for 'mxnet'",
    ),
    "a command of another model": (
        by.of_command("framework-compare run torch,jax resnet50"),
        "does not ask for 'alexnet'",
    ),
    "a command of another batch size": (
        by.of_command("framework-compare run torch,jax alexnet --batch-size 4096"),
        "asks for batch_size '4096', but a cell has 16",
    ),
    "a request for another model": (by.request(models=["resnet50"]), "does not ask for 'alexnet'"),
    "a request for one model more": (by.request(models=["alexnet", "vgg16"]), "asks for 'vgg16'"),
    "a request for a network of a file": (
        by.request(models=["alexnet", "x.py:build"]),
        "asks for 'a model of its own'",
    ),
    "a request for another batch size": (by.request(batch_size=4096), "asks for batch_size '4096', but a cell has 16"),
    "a request for more settings": (
        by.request(precision=["fp32", "bf16"], threads=[1, 2]),
        "more settings than its records",
    ),
    "a request for another device": (by.request(device="cuda"), "asks for cuda, but a cell ran on 'cpu'"),
    "a request for more blocks": (by.request(repeats=30), "asks for 30 blocks, but its records have 3"),
    "a request with a key that none has": (by.request(trust=True), "has 'trust', which no request has"),
    "a request with a value that no setting has": (by.request(epochs={"a": 1}), "epochs is"),
    "ten times the images": (
        by.again(by.ten_times("epoch", "images")),
        "has 1000 samples in 10 steps of 16",
    ),
    "ten times the samples of rounds": (
        by.again(by.ten_times("slice", "samples")),
        "has 300 samples in 3 steps of 16",
    ),
    "a run that failed for no reason": (by.again(by.fail("")), "is failed without a reason"),
    "a last block left out": (
        by.allowing("few-blocks", by.again(by.leave_last_block_out)),
        "asks for 3 blocks, but its records have 2",
    ),
    "a round that counts for one framework alone": (
        by.again(by.void_for_one),
        "counts for one framework, but not for another",
    ),
    "turns of two fifths": (by.again(by.shorten_turns(0.4)), "steps of run 1 take"),
    "turns denied": (by.again(by.deny_turns), "trained at the same time and took no turns"),
    "a framework that looks like another": (
        by.allowing("unverified", by.again(by.name_like_another)),
        "is not named in ASCII|another alphabet",
    ),
    "parameters of another model": (
        by.recomputed(by.column("run", "parameters", 5)),
        "has 5 parameters, but alexnet has 5",
    ),
    "a process of 10 TB": (by.recomputed(by.column("run", "peak_rss_bytes", 10**13)), "peak_rss_bytes of table run is"),
    "a GPU that holds more than it has": (
        by.again(by.gpu_of(10**12)),
        "gpu_memory_bytes of table sample is",
    ),
    "an id that claims more": (
        by.rename("torch-is-twice-as-fast"),
        "does not begin with what it compares, torch-jax-alexnet",
    ),
    "rounds taken away, epochs halved": (
        by.again(by.without("slice")),
        "took turns, but has no round",
    ),
    "phases taken away": (by.again(by.without("phase")), "is ok but has no epoch phase"),
    "memory below zero": (by.recomputed(by.column("run", "peak_rss_bytes", -5)), "peak_rss_bytes of table run is -5"),
    "published in the future": (by.change(MANIFEST, "published_at", to="2999-01-01T00:00:00+00:00"), "published_at"),
    "published at no time": (by.change(MANIFEST, "published_at", to="best ever"), "published_at"),
    "a checksum of the package that is none": (
        by.change(MANIFEST, "published_by", "checksum", to="x"),
        "must have the SHA-256",
    ),
    "a commit that is none": (by.change(MANIFEST, "published_by", "commit", to="buy this"), "a full commit or null"),
}
