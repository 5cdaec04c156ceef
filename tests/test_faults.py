"""Every way a cell can die: its status and evidence, the next cell unharmed, no process left."""

import json
import os
from typing import Any, Dict

import pytest
from faulty import FAULTS, pids
from nightly import some_nightly
from processes import is_running

from framework_compare import compare, resume
from framework_compare.launch.limits import KEPT_LOG_BYTES
from framework_compare.report.exports import export
from framework_compare.store.study_file import Store

QUICK = dict(batch_size=4, epochs=2, threads=1, loader_workers=1, image_size=32)
MIB = 1 << 20

# fault -> (limits, status, what the reason says, phase died in)
ENDINGS = {
    "segfault": ({}, "crashed", "killed by SIGSEGV in phase build; the log ends:", "build"),
    "bus-error": ({}, "crashed", "killed by SIGBUS in phase build", "build"),
    "killed": ({}, "crashed", "killed by SIGKILL in phase build", "build"),
    "exit-0": ({}, "crashed", "exited with code 0 in phase build without reporting an outcome", "build"),
    "exit-3": ({}, "crashed", "exited with code 3 in phase build", "build"),
    "sys-exit": ({}, "crashed", "the log ends: sys.exit was called", "build"),
    "raise": ({}, "failed", "ValueError: deliberate; DROP TABLE run; -- <b>bold</b>", "build"),
    "raise-long": ({}, "failed", "ValueError: long long", "build"),
    "raise-interrupt": ({}, "crashed", "the log ends: KeyboardInterrupt", "build"),
    "recurse": ({}, "failed", "RecursionError", "build"),
    "hang-silent": ({"silence_timeout_s": 1}, "timed-out", "no event or output; it was at ", "build"),
    "hang-printing": ({"phase_timeout_s": 1}, "timed-out", "phase build not finished within 1 s", "build"),
    "hang-stopped": ({"timeout_s": 2}, "timed-out", "not finished within 2 s", "build"),
    "leak": ({"memory_limit": 256 * MIB}, "out-of-memory", "in use, ended at the memory_limit of 0.25 GiB", "build"),
    "leak-in-a-daemon": ({"memory_limit": "256MiB"}, "out-of-memory", "ended at the memory_limit of 0.25 GiB", "build"),
    "daemon": ({}, "ok", "", None),
    "daemon-without-environment": ({}, "ok", "", None),
    "daemon-then-segfault": ({}, "crashed", "killed by SIGSEGV", "build"),
    "fork-and-leave": ({"timeout_s": 20}, "crashed", "exited with code 4 in phase build", "build"),
    "kill-the-supervisor": ({"timeout_s": 20}, "crashed", "the process that supervises the worker was killed", "build"),
    "garbage": ({}, "failed", "the worker sent ", "build"),
    "flood": ({}, "ok", "", None),
    "malformed-events": ({}, "failed", "'this is no JSON', which is not JSON", "build"),
    "json-but-no-event": ({}, "failed", "which is not an event; allowed: hello", "build"),
    "huge-event": ({}, "failed", "a line of more than 1048576 bytes", "build"),
    "deep-event": ({}, "failed", "which is not JSON", "build"),
    "huge-number": ({}, "failed", "malformed epoch event", "build"),
    "nan-in-event": ({}, "failed", "malformed epoch event", "build"),
    "halves-of-pairs": ({}, "ok", "", None),
    "epoch-without-length": ({}, "failed", "malformed epoch event", "build"),
    "epoch-twice": ({}, "failed", "malformed epoch event", "build"),
    "unknown-status": ({}, "failed", "malformed outcome event", "build"),
    "settings-no-object": ({}, "failed", "malformed framework event", "build"),
    "phase-twice": ({}, "failed", "malformed phase event", "build"),
    "interleaved": ({"timeout_s": 20}, "failed", "which is not ", "build"),
    "forged-success": ({}, "failed", "reported success after 0 of 2 epochs", "build"),
    "memoryerror": ({}, "out-of-memory", "MemoryError: no more", "build"),
    "numpy-allocation": ({}, "out-of-memory", "Unable to allocate", "build"),
    "torch-allocation": ({}, "out-of-memory", "DefaultCPUAllocator: not enough memory", "build"),
    "tensorflow-allocation": ({}, "out-of-memory", "ResourceExhaustedError: OOM when allocating", "build"),
    "bad-alloc": ({}, "out-of-memory", "SIGABRT in phase build after its allocator failed; the log says:", "build"),
    "nan": ({}, "diverged", "the mean loss of epoch 1 is nan", "epochs"),
    "unsupported": ({}, "unsupported", "faulty was told so", None),
    "crash-in-epoch-2": ({}, "crashed", "killed by SIGSEGV in phase epochs", "epochs"),
}
LIMITS = dict.fromkeys(repr(limits) for limits, *_ in ENDINGS.values())


@pytest.fixture
def study(faulty, images, own_cache, tmp_path):
    def run(*faults: str, **given: Any) -> Any:
        return compare(faulty, list(faults), dataset=images, out=tmp_path / "study", **{**QUICK, **given})

    return run


def row_of(result: Any, number: int) -> Dict[str, Any]:
    with Store.open(result.folder) as store:
        names, rows = store.table("SELECT * FROM run ORDER BY run_id")
    return dict(zip(names, rows[number]))


def test_every_fault_has_its_ending():
    elsewhere = {name for name in FAULTS if name.startswith(("profile-", "log-"))}  # in test_profile.py, and below
    assert set(ENDINGS) == set(FAULTS) - elsewhere - {"fine", "slow", "at-most-25"}


# Faults whose worker's start could matter: of each way to end one by day in an interpreter of its own, all by night.
COLD = ("exit-3", "sys-exit", "hang-silent", "leak", "daemon", "kill-the-supervisor", "garbage", "bad-alloc")


@pytest.mark.cold
@pytest.mark.parametrize("fault", some_nightly(ENDINGS, set(ENDINGS) - set(COLD)))
def test_a_fault_of_a_worker_in_an_interpreter_of_its_own_is_a_row(fault, study):
    check_faults([fault], study)


WARM = {limits: [one for one in ENDINGS if one not in COLD and repr(ENDINGS[one][0]) == limits] for limits in LIMITS}
WARM = {limits: faults for limits, faults in WARM.items() if faults}


@pytest.mark.parametrize("limits", WARM)
def test_faults_are_rows_and_the_next_cell_runs_unharmed(limits, study):
    check_faults(WARM[limits], study)


def check_faults(faults, study):
    """Each fault is a cell: the next one shows that it harmed none, and the last is fine."""
    result = study(*faults, "fine", **ENDINGS[faults[0]][0])
    for number, fault in enumerate(faults):
        _, status, reason, phase = ENDINGS[fault]
        run = row_of(result, number)
        assert (run["status"], reason in run["reason"], run["died_in"]) == (status, True, phase), (fault, run["reason"])
        assert (result.folder / run["log_path"]).is_file()
        # A supervisor that was killed told nothing: then it is what was sampled, perhaps before the worker had begun.
        assert run["peak_rss_bytes"] > (5 * MIB if fault != "kill-the-supervisor" else 0), fault
    assert result.frame.status.iloc[-1] == "ok" and result.frame.epochs_measured.iloc[-1] == 2
    left = [pid for pid in pids(result.folder) if is_running(pid)]
    assert not left and len(pids(result.folder)) > len(faults), f"processes {left} were left by {faults}"


@pytest.mark.cold  # whose stack is shorter
def test_a_reason_says_what_happened_once_and_where_and_the_evidence_is_kept(study):
    result = study("nan", "raise", "segfault")
    diverged, failed, crashed = (row_of(result, number) for number in range(3))
    assert diverged["reason"] == "the mean loss of epoch 1 is nan"
    assert "Fatal Python error: Segmentation fault; File " in crashed["reason"]
    assert "in raise_it" in failed["traceback"] and failed["signal"] is None
    assert "Segmentation fault" in crashed["log_tail"] and "faulty.py" in crashed["log_tail"]
    assert crashed["signal"] == "SIGSEGV" and crashed["exit_code"] is None


def test_what_was_measured_before_a_crash_is_kept_and_texts_and_logs_are_bounded(study, tmp_path):
    result = study("crash-in-epoch-2", "halves-of-pairs", "flood", "raise-long")
    assert list(result.epochs.epoch[result.epochs.model == "crash-in-epoch-2"]) == [1]
    assert result.frame.status[0] == "crashed"
    assert "half ? of a pair" in str(result.table()) and "half ? of a pair" in result.frame.warnings[1]
    assert list(result.phases.phase[result.phases.phase.str.startswith("half")]) == ["half ? of a pair"]
    for kind in ("csv", "json"):
        assert not export(result.folder, tmp_path / kind, kind).damage
    log = result.folder / result.frame.log_path[2]
    assert log.stat().st_size < 3 * KEPT_LOG_BYTES
    content = log.read_bytes()
    assert b"bytes of this log were left out" in content and b"the end of the flood" in content
    run = row_of(result, 3)
    assert len(run["reason"]) <= 16_000 and len(run["traceback"]) <= 16_000


@pytest.mark.parametrize("fault", [name for name in FAULTS if name.startswith("log-")])
def test_what_a_worker_puts_in_the_place_of_its_log_is_neither_waited_on_nor_followed(fault, study, tmp_path):
    result = study(fault, timeout_s=30)
    assert row_of(result, 0)["reason"].startswith("exited with code 3 in phase build")
    (tmp_path / "study" / "precious.txt").write_text("precious")
    again = resume(result.folder, retry=["crashed"])
    assert row_of(again, 0)["reason"].startswith("exited with code 3 in phase build")
    assert (tmp_path / "study" / "precious.txt").read_text() == "precious"


def test_limits_and_what_held_them_are_recorded(study):
    run = row_of(study("fine", memory_limit="1GiB", timeout_s=60, phase_timeout_s={"import": 30}), 0)
    limits = json.loads(run["limits"])
    assert limits.pop("memory_by") in ("cgroup", "watchdog")
    assert limits == {"memory_bytes": 1 << 30, "timeout_s": 60, "phase_timeout_s": {"import": 30}}


def test_nothing_of_the_parent_is_open_in_a_worker_but_the_pipe(study):
    before = set(os.listdir("/proc/self/fd"))
    study("fine", "segfault", "hang-silent", silence_timeout_s=1)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1, "descriptors of the parent leak from run to run"
